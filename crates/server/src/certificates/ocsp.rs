//! OCSP responses (`ssl_stapling`): for each certificate one that is not out of date, fetched from its responder before
//! the last one ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use sekisho_config::Level;
use sekisho_handler::upstream::addresses_of;
use sekisho_net::tls::Staple;
use sekisho_net::tls::ocsp::ANSWER_BYTES_MAX;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::acme::{chance, now};
use super::schedule::{self, Failure};
use super::{Context, web};

/// So many responders are asked at a time.
pub(super) const REQUESTS_MAX: usize = 4;
/// How long a responder may take, all in all.
const LIMIT: Duration = Duration::from_secs(30);
/// Nobody waits longer for a responder to come back.
const RETRY_MAX: Duration = Duration::from_mins(5);

/// Sees to it that there is always a response to send.
pub(super) async fn keep(staple: Arc<Staple>, turns: Arc<Semaphore>, mut context: Context) {
    let (source, responder) = (&staple.source, &staple.responder);
    let mut failures = 0;
    loop {
        let turn = turns.acquire().await;
        let fetched = match tokio::time::timeout(LIMIT, fetch(&staple)).await {
            Ok(fetched) => fetched.map_err(|why| why.to_string()),
            Err(_) => Err(format!("no answer within {LIMIT:?}")),
        };
        drop(turn);
        let put = fetched.and_then(|response| {
            staple.put(&response, now()).map_err(|why| format!("what it sent {why}"))
        });
        match put {
            Ok(answer) => {
                if failures > 0 {
                    let message = format!("OCSP response for \"{source}\" fetched again");
                    context.log(Level::Notice, &message);
                }
                failures = 0;
                tokio::time::sleep(schedule::refresh_after(now(), answer.until)).await;
            }
            Err(why) => {
                let pause = schedule::retry_after(failures, Failure::Unreachable, chance());
                let pause = pause.min(RETRY_MAX);
                failures = failures.saturating_add(1);
                let secs = pause.as_secs();
                let message = format!(
                    "no OCSP response for \"{source}\" from \"{responder}\": {why}; next try in {secs} s"
                );
                context.log(Level::Error, &message);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    // An operator has changed something: it may be what was wrong.
                    changed = context.sites.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

/// Asks a responder.
async fn fetch(staple: &Staple) -> Result<Bytes, web::Failure> {
    let uri: Uri = staple.responder.parse()?;
    let host = uri.host().ok_or("a URL without a host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect(&addresses(staple, host, port).await?[..]).await?;
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let path = staple.question.path(uri.path());
    let request = Request::get(format!("http://{authority}{path}")).body(Empty::<Bytes>::new())?;
    let response = web::exchange(stream, request).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers {}", response.status()).into());
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
    Ok(body.to_bytes())
}

/// Where a responder is: as the `resolver` of the server says, or the system.
async fn addresses(
    staple: &Staple,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, web::Failure> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if staple.resolver.servers.is_empty() {
        return Ok(tokio::net::lookup_host((host, port)).await?.collect());
    }
    let found = addresses_of(&staple.resolver, host).await?;
    Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}
