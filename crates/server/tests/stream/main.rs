//! Connections and datagrams that are passed on as they are (`stream`), over the real binary and real sockets.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod balance;
mod control;
mod datagrams;
mod gateway;
mod peers;
mod relay;
mod secured;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sekisho_testkit::{Server, Tree};

use crate::common::{BINARY, LONG};

/// A configuration whose `stream` block holds `body`. The error log tells everything.
fn stream(body: &str) -> String {
    format!(
        "worker_processes 2;\nerror_log {{dir}}/error.log debug;\nevents {{}}\n\
         stream {{\nlog_format all '$protocol $status $bytes_received $bytes_sent $upstream_addr \
         $upstream_bytes_sent $upstream_bytes_received';\naccess_log {{dir}}/access.log all;\n{body}\n}}\n"
    )
}

#[track_caller]
fn serve(body: &str) -> Server {
    Server::start_in(Tree::new(), BINARY, &stream(body))
}

/// A server of the test's own: each connection is given to this function, in a thread of its own.
#[derive(Debug)]
struct Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Backend {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a port is free"), serve)
    }

    fn start_on(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("it has an address");
        let connections = Arc::<AtomicUsize>::default();
        let (count, serve) = (Arc::clone(&connections), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_read_timeout(Some(LONG)).expect("it can be set");
                stream.set_nodelay(true).expect("it can be set");
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    /// One that greets first and then sends back what it gets.
    fn echo(greeting: &'static str) -> Self {
        Self::start(move |mut stream| {
            // A client that is gone has no use for it.
            let _ = stream.write_all(greeting.as_bytes());
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count) = stream.read(&mut buffer)
                && count > 0
                && stream.write_all(&buffer[..count]).is_ok()
            {}
        })
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
