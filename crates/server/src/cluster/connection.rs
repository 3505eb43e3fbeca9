//! A connection to a NATS server: opened, proved, and then operations in and bytes out.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::ServerName;
use sekisho_nats::{Address, Connect, Credentials, Decoder, Info, Operation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Membership;

/// How long connecting and the proof may take.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// How long the server may take to read what is sent to it.
const SEND_LIMIT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 32 * 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that is ready.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    /// The longest message that the server takes.
    pub(super) payload_bytes_max: usize,
}

impl Connection {
    /// Connects, within its bound.
    pub(super) async fn open(of: &Membership, address: &Address) -> Result<Self, String> {
        let opened = tokio::time::timeout(OPEN_LIMIT, Self::try_open(of, address)).await;
        opened.unwrap_or_else(|_| Err(format!("no connection within {OPEN_LIMIT:?}")))
    }

    async fn try_open(of: &Membership, address: &Address) -> Result<Self, String> {
        let place = (address.host.as_str(), address.port);
        let socket = TcpStream::connect(place).await.map_err(|error| error.to_string())?;
        let _ = socket.set_nodelay(true);
        let mut new =
            Self { stream: Box::new(socket), decoder: Decoder::default(), payload_bytes_max: 0 };
        let info = new.info().await?;
        let is_tls = address.is_tls || info.is_tls_required;
        if is_tls {
            new = new.encrypt(of, address).await?;
        }
        new.payload_bytes_max = info.payload_bytes_max;
        let mut out = Vec::new();
        introduce(&mut out, of, address, &info, is_tls)?;
        sekisho_nats::ping(&mut out);
        new.send(&out).await?;
        // The answer to the ping says that all was well.
        loop {
            match new.next().await? {
                Operation::Pong => return Ok(new),
                Operation::Error(why) => return Err(format!("it refuses: {why}")),
                _ => {}
            }
        }
    }

    async fn info(&mut self) -> Result<Info, String> {
        match self.next().await? {
            Operation::Info(info) => Ok(info),
            _ => Err("it does not speak NATS".to_owned()),
        }
    }

    async fn encrypt(self, of: &Membership, address: &Address) -> Result<Self, String> {
        let tls = of.tls.as_ref().ok_or("it wants TLS: say tls:// in its address")?;
        let name = ServerName::try_from(address.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, self.stream).await;
        let stream = stream.map_err(|error| format!("TLS: {error}"))?;
        // What was said in the clear is forgotten.
        let decoder = Decoder::default();
        Ok(Self { stream: Box::new(stream), decoder, payload_bytes_max: 0 })
    }

    /// The next operation. May be dropped while it waits, and nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Operation, String> {
        loop {
            if let Some(operation) =
                self.decoder.next_operation().map_err(|error| error.to_string())?
            {
                return Ok(operation);
            }
            let Self { stream, decoder, .. } = self;
            let mut bytes = vec![0; READ_BYTES];
            let read = poll_fn(|cx| {
                let mut into = ReadBuf::new(&mut bytes);
                ready!(Pin::new(&mut **stream).poll_read(cx, &mut into))?;
                decoder.feed(into.filled());
                io::Result::Ok(into.filled().len()).into()
            });
            if read.await.map_err(|error| error.to_string())? == 0 {
                return Err("it closed the connection".to_owned());
            }
        }
    }

    /// Sends everything, within its bound.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        let stream = &mut self.stream;
        let sending = poll_fn(|cx| {
            while !rest.is_empty() {
                let sent = ready!(Pin::new(&mut **stream).poll_write(cx, rest))?;
                rest = &rest[sent..];
            }
            Pin::new(&mut **stream).poll_flush(cx)
        });
        match tokio::time::timeout(SEND_LIMIT, sending).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it took nothing for {SEND_LIMIT:?}")),
        }
    }
}

/// Says who this is.
fn introduce(
    out: &mut Vec<u8>,
    of: &Membership,
    address: &Address,
    info: &Info,
    is_tls: bool,
) -> Result<(), String> {
    let name = format!("sekisho {} {}", of.cluster, of.node);
    let proof = of.credentials.as_ref().map(|credentials| prove(credentials, info)).transpose()?;
    let (key, signature) = proof
        .as_ref()
        .map_or((None, None), |(key, signature)| (Some(key.as_str()), Some(signature.as_str())));
    let jwt = of.credentials.as_ref().and_then(|of| of.token.as_deref());
    let (user, password) = (address.user.as_deref(), address.password.as_deref());
    let token = user.filter(|_| password.is_none());
    sekisho_nats::connect(
        out,
        Connect {
            name: &name,
            version: env!("CARGO_PKG_VERSION"),
            user: user.filter(|_| password.is_some()),
            password,
            token,
            jwt,
            // A token names the key.
            key: key.filter(|_| jwt.is_none()),
            signature,
            is_tls,
        },
    );
    Ok(())
}

/// The public key, and the signature of the server's nonce.
fn prove(credentials: &Credentials, info: &Info) -> Result<(String, String), String> {
    let nonce = info.nonce.as_deref().ok_or("it asks for no proof by a key")?;
    let pair = aws_lc_rs::signature::Ed25519KeyPair::from_seed_unchecked(&credentials.seed);
    let pair = pair.map_err(|_| "the seed is no key")?;
    let public = aws_lc_rs::signature::KeyPair::public_key(&pair).as_ref();
    let public = public.try_into().map_err(|_| "the seed is no key")?;
    let signature = URL_SAFE_NO_PAD.encode(pair.sign(nonce.as_bytes()).as_ref());
    Ok((sekisho_nats::public_key(public), signature))
}
