//! The endpoint itself: a server on its thread, clients of each kind on ours.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;

use sekisho_endpoint::{
    Client, Config, Echo, Endpoint, Manner, Request, Response, Services, Stream, blocking, ipc,
    loopback, service_fn,
};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::measure::{Cores, Sample, cpu_nanos, finish, now, pin, throughput};

/// The service that streams records: its body is "count size".
const STREAM: u32 = 100;
const MESSAGE: [u8; 64] = [7; 64];

/// How long sides look before they sleep, where they do.
const SPIN: std::time::Duration = std::time::Duration::from_micros(20);

/// A server on its thread, until it is dropped.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    address: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = (folder.path().join("unix"), folder.path().join("ipc"));
        let spinning = folder.path().join("spin");
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            pin(Cores::SERVER);
            local(async move {
                let endpoint = endpoint();
                let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let address = tcp.local_addr().expect("bound");
                let unix = tokio::net::UnixListener::bind(paths.0).expect("bound");
                let shared = tokio::net::UnixListener::bind(paths.1).expect("bound");
                tokio::task::spawn_local(Rc::clone(&endpoint).listen_tcp(tcp));
                tokio::task::spawn_local(Rc::clone(&endpoint).listen_unix(unix));
                let config = ipc::Config::default();
                tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(shared, config));
                let shared = tokio::net::UnixListener::bind(spinning).expect("bound");
                let config = ipc::Config { spin: SPIN, ..ipc::Config::default() };
                tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(shared, config));
                tell.send(address).expect("heard");
                let _ = stopped.await;
                endpoint.shut_down_all(Manner::Forceful).await;
            });
        });
        let address = told.recv().expect("it listens");
        Self { folder, address, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn tcp(&self) -> blocking::Client<std::net::TcpStream> {
        let stream = std::net::TcpStream::connect(self.address).expect("connected");
        stream.set_nodelay(true).expect("set");
        blocking::Client::connect(stream, "bench").expect("admitted")
    }

    pub(crate) fn unix(&self) -> blocking::Client<std::os::unix::net::UnixStream> {
        blocking::Client::connect(connect(&self.path("unix")), "bench").expect("admitted")
    }

    pub(crate) fn ipc(&self) -> blocking::Client<ipc::BlockingStream> {
        let stream = ipc::BlockingStream::connect(connect(&self.path("ipc"))).expect("shared");
        blocking::Client::connect(stream, "bench").expect("admitted")
    }

    /// The same, where both sides look for a while before they sleep.
    pub(crate) fn ipc_spinning(&self) -> blocking::Client<ipc::BlockingStream> {
        let stream = ipc::BlockingStream::connect(connect(&self.path("spin")));
        let mut stream = stream.expect("shared");
        stream.set_spin(SPIN);
        blocking::Client::connect(stream, "bench").expect("admitted")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

/// So many echoes with so many in flight, by a client that blocks.
pub(crate) fn echo<T: blocking::Transport>(
    client: &mut blocking::Client<T>,
    count: usize,
    in_flight: usize,
    cores: Cores,
) -> Sample {
    pin(cores.client());
    let mut run = |count: usize| {
        let mut times = Vec::with_capacity(count);
        let mut running = VecDeque::with_capacity(in_flight);
        for at in 0..count + in_flight {
            if running.len() == in_flight || at >= count {
                let Some((ticket, start)) = running.pop_front() else { break };
                let answer = client.answer(ticket).expect("a result");
                assert_eq!(answer.len(), MESSAGE.len());
                times.push(now() - start);
            }
            if at < count {
                let start = now();
                running.push_back((client.request(Echo::NUMBER, &MESSAGE).expect("made"), start));
            }
        }
        times
    };
    run(count / 10 + 1);
    let (cpu, start) = (cpu_nanos(), now());
    let times = run(count);
    finish(times, now() - start, cpu)
}

/// The same by the async client, over any stream, whose server is wherever it is.
async fn echo_async<S: Stream>(client: &Client<S>, count: usize, in_flight: usize) -> Sample {
    let run = async |count: usize| {
        let mut times = Vec::with_capacity(count);
        let mut running = VecDeque::with_capacity(in_flight);
        for at in 0..count + in_flight {
            if running.len() == in_flight || at >= count {
                let Some((call, start)) = running.pop_front() else { break };
                let mut call: sekisho_endpoint::Call<S> = call;
                assert_eq!(call.answer().await.expect("a result").len(), MESSAGE.len());
                times.push(now() - start);
            }
            if at < count {
                let start = now();
                running.push_back((client.request(Echo::NUMBER, &MESSAGE).expect("made"), start));
            }
        }
        times
    };
    run(count / 10 + 1).await;
    let (cpu, start) = (cpu_nanos(), now());
    let times = run(count).await;
    finish(times, now() - start, cpu)
}

/// Client and server in one thread, joined by the loopback: an embedded service.
pub(crate) fn echo_loopback(count: usize, in_flight: usize, cores: Cores) -> Sample {
    pin(cores.client());
    local(async move {
        let endpoint = endpoint();
        let (near, far) = loopback::pair();
        tokio::task::spawn_local(endpoint.serve(far));
        let client = Client::connect(near, "bench").await.expect("admitted");
        echo_async(&client, count, in_flight).await
    })
}

/// The async client through shared memory.
pub(crate) fn echo_ipc_async(
    server: &Server,
    count: usize,
    in_flight: usize,
    cores: Cores,
) -> Sample {
    pin(cores.client());
    let path = server.path("ipc");
    local(async move {
        let socket = tokio::net::UnixStream::connect(path).await.expect("connected");
        let client = Client::connect(ipc::Stream::connect(socket), "bench").await;
        echo_async(&client.expect("admitted"), count, in_flight).await
    })
}

/// Records through a channel.
pub(crate) fn channel<T: blocking::Transport>(
    client: &mut blocking::Client<T>,
    record: usize,
    total: u64,
    cores: Cores,
) -> Sample {
    pin(cores.client());
    let records = total / record as u64;
    let body = format!("{records} {record}");
    throughput(records * record as u64, records, || {
        let ticket = client.request(STREAM, body.as_bytes()).expect("made");
        let mut count = 0;
        while let Some(bytes) = client.next_record(&ticket).expect("alive") {
            assert_eq!(bytes.len(), record);
            count += 1;
        }
        assert_eq!(count, records);
        client.answer(ticket).expect("a result");
    })
}

fn endpoint() -> Rc<Endpoint> {
    let mut services = Services::default();
    services.add(Echo::NUMBER, "echo", Rc::new(Echo)).expect("free");
    services.add(STREAM, "stream", service_fn(stream)).expect("free");
    Endpoint::new(Config::default(), services)
}

async fn stream(request: Request, response: Response) {
    let text = String::from_utf8_lossy(request.body()).into_owned();
    let mut numbers = text.split(' ').map(|number| number.parse::<usize>().expect("a number"));
    let (count, size) = (numbers.next().expect("a count"), numbers.next().expect("a size"));
    let record = vec![7; size];
    let channel = response.acquire_channel().expect("a channel");
    for _ in 0..count {
        channel.write(&record).await.expect("written");
    }
    response.release_channel(channel);
    let _ = response.body(b"done");
}

fn connect(path: &Path) -> std::os::unix::net::UnixStream {
    std::os::unix::net::UnixStream::connect(path).expect("connected")
}

fn local<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), work)
}
