//! gRPC (tonic) over a Unix socket: the echo that `cargo bench -p sekisho-endpoint` compares the native endpoint
//! with. One thread serves, one calls, each with a runtime of its own, as in that benchmark.
//!
//! `sekisho-bench-tonic COUNT IN_FLIGHT SERVER_CPU CLIENT_CPU` prints one line:
//! calls a second, p50 and p99 in nanoseconds, nanoseconds of CPU for each call.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

#[derive(Clone, PartialEq, prost::Message)]
struct Bytes {
    #[prost(bytes = "vec", tag = "1")]
    body: Vec<u8>,
}

/// What `tonic-build` would have written.
#[derive(Clone)]
struct EchoServer;

impl NamedService for EchoServer {
    const NAME: &'static str = "bench.Echo";
}

#[derive(Clone)]
struct EchoCall;

impl tonic::server::UnaryService<Bytes> for EchoCall {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

impl tower::Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec: ProstCodec<Bytes, Bytes> = ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).unary(EchoCall, request).await)
        })
    }
}

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|argument| argument.parse().expect("a number")).collect();
    let [count, in_flight, server_cpu, client_cpu] = arguments[..] else {
        panic!("COUNT IN_FLIGHT SERVER_CPU CLIENT_CPU")
    };
    let path = std::env::temp_dir().join(format!("sekisho-tonic-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    listener.set_nonblocking(true).expect("set");
    std::thread::spawn(move || {
        pin(server_cpu);
        runtime().block_on(async move {
            let listener = UnixListener::from_std(listener).expect("registered");
            Server::builder()
                .add_service(EchoServer)
                .serve_with_incoming(UnixListenerStream::new(listener))
                .await
                .expect("served");
        });
    });
    pin(client_cpu);
    let line = runtime().block_on(call(path.clone(), count, in_flight));
    std::fs::remove_file(path).expect("removed");
    println!("{line}");
}

async fn call(path: std::path::PathBuf, count: usize, in_flight: usize) -> String {
    let channel = Endpoint::from_static("http://bench")
        .connect_with_connector(service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        }))
        .await
        .expect("connected");
    run(&channel, count / 10 + 1, in_flight).await;
    let (cpu, start) = (cpu_nanos(), Instant::now());
    let mut times = run(&channel, count, in_flight).await;
    let (wall, cpu) = (start.elapsed(), cpu_nanos() - cpu);
    times.sort_unstable();
    format!(
        "{:.0} {} {} {}",
        count as f64 / wall.as_secs_f64(),
        times[count / 2],
        times[count * 99 / 100],
        cpu / count as u64
    )
}

async fn run(channel: &Channel, count: usize, in_flight: usize) -> Vec<u64> {
    let mut times = Vec::with_capacity(count);
    if in_flight == 1 {
        for _ in 0..count {
            times.push(one(channel.clone()).await);
        }
        return times;
    }
    let mut running: VecDeque<tokio::task::JoinHandle<u64>> = VecDeque::new();
    for at in 0..count + in_flight {
        if running.len() == in_flight || at >= count {
            let Some(oldest) = running.pop_front() else { break };
            times.push(oldest.await.expect("ran"));
        }
        if at < count {
            running.push_back(tokio::spawn(one(channel.clone())));
        }
    }
    times
}

async fn one(channel: Channel) -> u64 {
    let start = Instant::now();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("ready");
    let codec: ProstCodec<Bytes, Bytes> = ProstCodec::default();
    let path = PathAndQuery::from_static("/bench.Echo/Call");
    let request = Request::new(Bytes { body: vec![7; 64] });
    let answer = client.unary(request, path, codec).await.expect("answered");
    assert_eq!(answer.into_inner().body.len(), 64);
    start.elapsed().as_nanos() as u64
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // Where it is not allowed, the numbers are noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
