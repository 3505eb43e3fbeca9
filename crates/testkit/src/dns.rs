//! A DNS server of the test's own.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A DNS server that knows the addresses it is told, and says that others do not exist. `alias-of-NAME` stands for NAME,
/// whose addresses it does not say with it.
#[derive(Debug)]
pub struct Dns {
    /// Where it answers, by UDP and TCP.
    pub address: SocketAddr,
    names: Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>,
    asked: Arc<AtomicUsize>,
    /// Answers by UDP are cut, so that TCP is needed.
    pub is_cut: Arc<AtomicBool>,
}

impl Dns {
    /// Starts one on a free port; it ends with the process.
    pub fn start() -> Self {
        // One port for both, which some other program may have for one of them.
        let both = (0..100).find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
        });
        let (udp, tcp) = both.expect("a port is free");
        let address = udp.local_addr().expect("it has an address");
        let dns =
            Self { address, names: Arc::default(), asked: Arc::default(), is_cut: Arc::default() };
        let (names, asked, is_cut) =
            (Arc::clone(&dns.names), Arc::clone(&dns.asked), Arc::clone(&dns.is_cut));
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((count, from)) = udp.recv_from(&mut query) {
                asked.fetch_add(1, Ordering::SeqCst);
                let is_cut = is_cut.load(Ordering::SeqCst);
                let _ = udp.send_to(&answer(&query[..count], &names, is_cut), from);
            }
        });
        let names = Arc::clone(&dns.names);
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut length = [0; 2];
                if stream.read_exact(&mut length).is_err() {
                    continue;
                }
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                if stream.read_exact(&mut query).is_ok() {
                    let answer = answer(&query, &names, false);
                    let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&answer);
                }
            }
        });
        dns
    }

    /// Tells it the addresses of a name.
    pub fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned(), addresses.to_vec());
    }

    /// How often it was asked by UDP.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// RFC 1035: the question again, and its addresses with a time of an hour.
fn answer(query: &[u8], names: &Mutex<HashMap<String, Vec<Ipv4Addr>>>, is_cut: bool) -> Vec<u8> {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    let kind = query[at + 2];
    let question = &query[12..at + 5];
    if let Some(rest) = labels[0].strip_prefix("alias-of-") {
        labels[0] = rest.to_owned();
        let label = |label: &String| [&[label.len() as u8], label.as_bytes()].concat();
        let name = labels.iter().flat_map(label).chain([0]).collect::<Vec<u8>>();
        let head = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], question].concat();
        let record = [0xc0, 12, 0, 5, 0, 1, 0, 0, 14, 16, 0, name.len() as u8];
        return [&head[..], &record, &name].concat();
    }
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.get(&labels.join("."));
    let found = known.filter(|_| kind == 1 && !is_cut).cloned().unwrap_or_default();
    let flags = match known {
        None => [0x81, 0x83],
        Some(_) if is_cut => [0x83, 0x80],
        Some(_) => [0x81, 0x80],
    };
    let mut out =
        [&query[..2], &flags, &[0, 1, 0, found.len() as u8, 0, 0, 0, 0], question].concat();
    for address in found {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    out
}
