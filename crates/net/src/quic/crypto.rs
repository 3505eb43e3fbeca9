//! The handshake of a QUIC connection: TLS whose settings are chosen when the client has said which server it wants,
//! as over TCP (S1). `quinn_proto` begins a TLS session before it has read anything, so the session here holds the
//! client's first message back until it is complete.

use std::any::Any;
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::aead;
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs as provider;
use rustls::quic::{self, KeyChange, Secrets, ServerConnection, Suite, Version};
use sekisho_route::TlsFacts;

use crate::tls::hello::{self, Peek};
use crate::tls::{Chooser, Hello, ServerTls};

/// QUIC version 1 (RFC 9000); drafts are not spoken.
const VERSION_1: u32 = 1;
/// The longest first message of a client that is read.
const HELLO_BYTES_MAX: usize = 16 << 10;
/// The head of a handshake message: its type and its length.
const MESSAGE_HEAD_BYTES: usize = 4;
/// `handshake_failure`, `unrecognized_name` and `decode_error` (RFC 8446 §6).
const HANDSHAKE_FAILURE: u8 = 40;
const DECODE_ERROR: u8 = 50;
const UNRECOGNIZED_NAME: u8 = 112;

/// The server's side of handshakes at one address, for one client.
pub(super) struct Crypto {
    pub(super) chooser: Chooser,
    pub(super) remote: SocketAddr,
}

/// The suite that protects the first packets (RFC 9001 §5.2). The provider always has it.
fn initial_suite() -> Option<Suite> {
    provider::cipher_suite::TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite)
}

fn keys_of(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}

impl crypto::ServerConfig for Crypto {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        if version != VERSION_1 {
            return Err(UnsupportedVersion);
        }
        let suite = initial_suite().ok_or(UnsupportedVersion)?;
        Ok(keys_of(suite.keys(dst_cid, rustls::Side::Server, Version::V1)))
    }

    fn retry_tag(&self, _: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        let state = State::Hello { message: Vec::new(), parameters };
        Box::new(Session { crypto: self, state, is_told: false })
    }
}

/// The integrity tag of a Retry packet (RFC 9001 §5.8): it proves nothing but that the packet is meant.
fn retry_tag(orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] =
        [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let mut pseudo = Vec::with_capacity(packet.len() + orig_dst_cid.len() + 1);
    pseudo.push(orig_dst_cid.len() as u8);
    pseudo.extend_from_slice(orig_dst_cid);
    pseudo.extend_from_slice(packet);
    let mut tag = [0; 16];
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &KEY).map(aead::LessSafeKey::new);
    let nonce = aead::Nonce::assume_unique_for_key(NONCE);
    let sealed =
        key.and_then(|key| key.seal_in_place_separate_tag(nonce, aead::Aad::from(pseudo), &mut []));
    if let Ok(sealed) = sealed {
        tag.copy_from_slice(sealed.as_ref());
    }
    tag
}

enum State {
    /// What has come of the client's first message, and our transport parameters.
    Hello { message: Vec<u8>, parameters: Vec<u8> },
    /// The server is chosen.
    Chosen(Box<Chosen>),
}

struct Chosen {
    server: Arc<ServerTls>,
    hello: Hello,
    tls: ServerConnection,
    next: Option<Secrets>,
}

/// One handshake.
struct Session {
    crypto: Arc<Crypto>,
    state: State,
    /// The driver knows that there are facts about the handshake.
    is_told: bool,
}

/// What a handshake came to, as the driver is told.
pub(super) struct Handshake {
    pub(super) facts: TlsFacts,
}

fn alert(code: u8, reason: impl Into<String>) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(code), frame: None, reason: reason.into() }
}

impl Session {
    fn chosen(&self) -> Option<&Chosen> {
        match &self.state {
            State::Hello { .. } => None,
            State::Chosen(chosen) => Some(chosen),
        }
    }

    /// Reads on in the client's first message. When it is complete the server is chosen, and rustls reads it.
    fn read_hello(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let State::Hello { message, parameters } = &mut self.state else { return Ok(()) };
        message.extend_from_slice(bytes);
        if message.len() > HELLO_BYTES_MAX {
            return Err(alert(DECODE_ERROR, "the hello is too long"));
        }
        let Some(&[_, high, middle, low]) = message.first_chunk::<MESSAGE_HEAD_BYTES>() else {
            return Ok(());
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > HELLO_BYTES_MAX {
            return Err(alert(DECODE_ERROR, "the hello is too long"));
        }
        if message.len() < MESSAGE_HEAD_BYTES + length {
            return Ok(());
        }
        let (server_name, offered) = match hello::peek_message(message) {
            Peek::Hello(name, offered) => (name, offered),
            Peek::Odd(_, error) => return Err(alert(DECODE_ERROR, error.to_string())),
            Peek::More | Peek::Clear => return Err(alert(DECODE_ERROR, "no hello")),
        };
        let hello = Hello { server_name, offered: Some(offered), session_id: String::new() };
        let Crypto { chooser, remote } = &*self.crypto;
        let Some(server) = chooser.choose(&hello.server_name) else {
            return Err(alert(UNRECOGNIZED_NAME, "no server of this name takes handshakes"));
        };
        let Some(quic) = &server.quic else {
            return Err(alert(UNRECOGNIZED_NAME, "the server of this name has no HTTP/3"));
        };
        let config = chooser
            .config_for(&server, &quic.config, &hello, || Some(*remote))
            .map_err(|why| alert(HANDSHAKE_FAILURE, why))?;
        let tls = ServerConnection::new(config, Version::V1, std::mem::take(parameters))
            .map_err(|error| alert(HANDSHAKE_FAILURE, error.to_string()))?;
        let message = std::mem::take(message);
        self.state = State::Chosen(Box::new(Chosen { server, hello, tls, next: None }));
        self.read_chosen(&message)
    }

    fn read_chosen(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let State::Chosen(chosen) = &mut self.state else { return Ok(()) };
        chosen.tls.read_hs(bytes).map_err(|error| match chosen.tls.alert() {
            Some(code) => alert(code.into(), error.to_string()),
            None => TransportError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame: None,
                reason: format!("TLS error: {error}"),
            },
        })
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        let suite = initial_suite().expect("the provider has AES-128-GCM with SHA-256");
        keys_of(suite.keys(dst_cid, side, Version::V1))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let Chosen { server, hello, tls, .. } = self.chosen()?;
        let facts = server.facts(tls, hello.clone());
        Some(Box::new(Handshake { facts }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let chain = self.chosen()?.tls.peer_certificates()?;
        let chain: Vec<_> = chain.iter().map(|it| it.clone().into_owned()).collect();
        Some(Box::new(chain))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.chosen()?.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.chosen().is_none_or(|chosen| chosen.tls.is_handshaking())
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        match self.state {
            State::Hello { .. } => self.read_hello(buf)?,
            State::Chosen(_) => self.read_chosen(buf)?,
        }
        let is_news = !self.is_told && self.chosen().is_some();
        self.is_told |= is_news;
        Ok(is_news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.chosen().and_then(|it| it.tls.quic_transport_parameters()) else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let State::Chosen(chosen) = &mut self.state else { return None };
        Some(keys_of(match chosen.tls.write_hs(buf)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                chosen.next = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let State::Chosen(chosen) = &mut self.state else { return None };
        let keys = chosen.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        // Only clients get Retry packets.
        false
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // Nothing here asks for it.
        Err(ExportKeyingMaterialError)
    }
}
