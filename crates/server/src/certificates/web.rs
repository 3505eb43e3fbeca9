//! Requests to authorities: one connection each, over TLS, bounded in time and size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Limited;
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

/// How long a request may take, all in all.
const LIMIT: Duration = Duration::from_secs(30);
/// No answer of an authority is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why a request came to nothing.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A client for one authority.
#[derive(Clone)]
pub(super) struct Web {
    tls: Arc<ClientConfig>,
}

impl Web {
    /// With the roots that the configuration names.
    pub(super) fn new(issuer: &AcmeIssuer) -> Result<Self, String> {
        if issuer.verifies {
            return Ok(Self { tls: client_tls(issuer.trusted_certificate.as_deref())? });
        }
        let any = Arc::new(AnyCertificate::new());
        let builder = client_tls::builder()?.dangerous().with_custom_certificate_verifier(any);
        Ok(Self { tls: Arc::new(builder.with_no_client_auth()) })
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
            let response = match tokio::time::timeout(LIMIT, web.send(request)).await {
                Ok(response) => response.map_err(|error| failed(&error))?,
                Err(_) => return Err(failed(&format_args!("no answer within {LIMIT:?}"))),
            };
            Ok(BytesResponse::from(response.map(|body| Limited::new(body, ANSWER_BYTES_MAX))))
        })
    }
}
