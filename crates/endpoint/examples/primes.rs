//! A service that streams prime numbers through a channel, and a client that takes some of them.
//!
//! `cargo run -p sekisho-endpoint --example primes`

use std::rc::Rc;

use sekisho_endpoint::{
    Client, Code, Config, Endpoint, Manner, Request, Response, Services, service_fn,
};
use tokio::net::{TcpListener, TcpStream};

/// Clients call a service by its number; people know it by its name.
const PRIMES: u32 = 1000;

/// The request is a limit in decimal digits. Each record is one prime below it; the answer is their count.
async fn primes(request: Request, response: Response) {
    let Some(limit) = str::from_utf8(request.body()).ok().and_then(|text| text.parse().ok()) else {
        // Exactly one answer is given; if a service gives none, the client gets UNKNOWN.
        let _ = response.error(Code::InvalidRequest, "a number is wanted");
        return;
    };
    let channel = match response.acquire_channel() {
        Ok(channel) => channel,
        Err(error) => {
            let _ = response.error(Code::ResourceLimitReached, &error.to_string());
            return;
        }
    };
    let mut count = 0_u64;
    for number in (2_u64..limit).filter(|number| is_prime(*number)) {
        // Waits while the client has no room, so a slow client costs no memory here. A client that wants
        // no more records, or its request cancelled, is noticed and not waited for.
        if response.is_cancelled() || !channel.is_wanted() {
            break;
        }
        if channel.write(number.to_string().as_bytes()).await.is_err() {
            break;
        }
        count += 1;
    }
    // The answer may only follow when the channel is released.
    response.release_channel(channel);
    let _ = if response.is_cancelled() {
        response.error(Code::OperationCancelled, "as you wished")
    } else {
        response.body(count.to_string().as_bytes())
    };
}

fn is_prime(number: u64) -> bool {
    (2..=number.isqrt()).all(|divisor| !number.is_multiple_of(divisor))
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut services = Services::default();
    services.add(PRIMES, "primes", service_fn(primes))?;
    let endpoint = Endpoint::new(Config::default(), services);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_tcp(listener));

    let client = Client::connect(TcpStream::connect(address).await?, "example").await?;
    let mut call = client.request(PRIMES, b"100")?;
    while let Some(record) = call.next_record().await? {
        print!("{} ", String::from_utf8_lossy(&record));
    }
    println!("\n{} primes", String::from_utf8_lossy(&call.answer().await?));
    println!("sessions: {:?}", endpoint.list().iter().map(|info| &info.label).collect::<Vec<_>>());
    client.shut_down(Manner::Graceful).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run())
}
