//! Requests to authorities: one connection each, over TLS, bounded in time and size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sekisho_config::AcmeIssuer;
use sekisho_handler::upstream::AnyCertificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client_tls::{self, client_tls};

/// How long a request may take, all in all, the body of its response included.
const LIMIT: Duration = Duration::from_secs(30);
/// No authority is waited for longer on its own word: seconds of `Retry-After`.
const RETRY_AFTER_MAX: u64 = 24 * 60 * 60;
/// No answer of an authority is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why a request came to nothing.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A client for one authority.
#[derive(Clone)]
pub(super) struct Web {
    tls: Arc<ClientConfig>,
    limit: Duration,
}

impl Web {
    /// With the roots that the configuration names.
    pub(super) fn new(issuer: &AcmeIssuer) -> Result<Self, String> {
        if issuer.verifies {
            let tls = client_tls(issuer.trusted_certificate.as_deref())?;
            return Ok(Self { tls, limit: LIMIT });
        }
        let any = Arc::new(AnyCertificate::new());
        let builder = client_tls::builder()?.dangerous().with_custom_certificate_verifier(any);
        Ok(Self { tls: Arc::new(builder.with_no_client_auth()), limit: LIMIT })
    }

    async fn send(
        self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        let uri = request.uri();
        if uri.scheme_str() != Some("https") {
            return Err(format!("{uri} is no https:// URL").into());
        }
        let host = uri.host().ok_or("a URL without a host")?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((bare, uri.port_u16().unwrap_or(443))).await?;
        let name = ServerName::try_from(bare.to_owned())?;
        exchange(TlsConnector::from(self.tls).connect(name, socket).await?, request).await
    }

    /// The whole response: a body that never ends must not hold an order up.
    async fn ask(
        self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, Failure> {
        let (mut parts, body) = self.send(request).await?.into_parts();
        bound_retry_after(&mut parts.headers);
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, Full::new(body)))
    }
}

/// One request over a connection of its own.
pub(super) async fn exchange<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<B>,
) -> Result<Response<Incoming>, Failure>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Failure>,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer; what went wrong with it is seen there.
    tokio::spawn(connection);
    let uri = request.uri();
    let authority = uri.authority().ok_or("a URL without a host")?;
    let authority = HeaderValue::from_str(authority.as_str())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    request.headers_mut().insert(HOST, authority);
    Ok(sender.send_request(request).await?)
}

impl HttpClient for Web {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let web = self.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let failed = |why: &dyn std::fmt::Display| {
                Error::Other(format!("{host} cannot be asked: {why}").into())
            };
            let limit = web.limit;
            let response = match tokio::time::timeout(limit, web.ask(request)).await {
                Ok(response) => response.map_err(|error| failed(&error))?,
                Err(_) => return Err(failed(&format_args!("no answer within {limit:?}"))),
            };
            Ok(BytesResponse::from(response))
        })
    }
}

/// A number of seconds that no clock can count to would be added to one, and panic.
fn bound_retry_after(fields: &mut HeaderMap) {
    let said = fields.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if said.is_some_and(|secs: u64| secs > RETRY_AFTER_MAX) {
        fields.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_wait_is_one_that_a_clock_can_count_to() {
        for (said, kept) in [("5", "5"), ("18446744073709551615", "86400"), ("soon", "soon")] {
            let mut fields = HeaderMap::new();
            fields.insert(RETRY_AFTER, HeaderValue::from_static(said));
            bound_retry_after(&mut fields);
            assert_eq!(fields[RETRY_AFTER], kept);
        }
    }

    /// A body that comes byte by byte, or not at all, ends with the time of its request.
    #[tokio::test]
    async fn a_body_without_an_end_is_given_up() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        let server = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![key.cert.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into()),
        )
        .expect("a certificate");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.expect("a client");
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
            let mut stream = acceptor.accept(socket).await.expect("a handshake");
            assert!(stream.read(&mut [0; 4096]).await.expect("a request") > 0);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
            stream.write_all(head).await.expect("sent");
            while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let any = Arc::new(AnyCertificate::new());
        let tls = client_tls::builder().expect("rules").dangerous();
        let tls = tls.with_custom_certificate_verifier(any).with_no_client_auth();
        let web = Web { tls: Arc::new(tls), limit: Duration::from_millis(300) };
        let request = Request::get(format!("https://localhost:{port}/dir"));
        let request = request.body(BodyWrapper::default()).expect("a request");
        let asked = tokio::time::timeout(Duration::from_secs(20), web.request(request));
        let Err(error) = asked.await.expect("it ends") else { panic!("a response") };
        assert!(error.to_string().contains("no answer within 300ms"), "{error}");
    }
}
