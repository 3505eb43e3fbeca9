//! Follows a log by a channel: a request names a file, each line that is appended to it is a record, until the client
//! has seen enough. The server has no more of it in memory than one window.

use std::error::Error;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use sekisho_endpoint::{
    Code, Config, Endpoint, Manner, NewRequest, Request, Response, Services, connect, service_fn,
};
use tokio::net::TcpListener;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(10);

async fn tail(request: Request, response: Response) {
    let path = String::from_utf8_lossy(request.body()).into_owned();
    let Ok(mut file) = std::fs::File::open(&path) else {
        let _ = response.error(Code::IoError, &format!("{path} cannot be opened"));
        return;
    };
    let Ok(channel) = response.acquire_channel() else { return };
    let mut line = Vec::new();
    'follow: while channel.is_wanted() && !response.is_cancelled() {
        let mut bytes = [0; 4096];
        let count = file.read(&mut bytes).unwrap_or(0);
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                line.push(*byte);
            } else if channel.write(&std::mem::take(&mut line)).await.is_err() {
                break 'follow;
            }
        }
        if count == 0 {
            // Ends at once when the client cancels or goes away.
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = response.cancelled() => {}
            }
        }
    }
    response.release_channel(channel);
    let _ = response.body(b"");
}

async fn run() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("sekisho-tail-{}.log", std::process::id()));
    let mut log = std::fs::File::create(&path)?;
    let mut services = Services::default();
    services.add(100, "tail", service_fn(tail))?;
    let endpoint = Endpoint::new(Config::default(), services);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", listener.local_addr()?);
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_tcp(listener));

    let client = connect(&address, "example").await?;
    let name = path.display().to_string();
    let request = NewRequest::to_name("tail").body(name.as_bytes());
    let mut call = client.start(&request.timeout(Duration::from_mins(1)))?;
    for number in 0..5 {
        writeln!(log, "line {number}")?;
        let record = call.next_record().await?.ok_or("the log goes on")?;
        assert_eq!(record, format!("line {number}").as_bytes());
        println!("{}", String::from_utf8_lossy(&record));
    }
    call.cancel();
    call.drain_channel();
    call.answer().await?;
    client.shut_down(Manner::Graceful).await?;
    Ok(std::fs::remove_file(&path)?)
}

/// Runs it.
pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run())
}
