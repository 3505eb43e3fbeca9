//! Who a caller is, and what it may do. Every protocol names its callers in the same way, so that one rule holds for
//! all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sekisho_native::Code;

use crate::limits::{RequestCounter, RequestLimits, RequestPermit};
use crate::request::{Caller, Peer};

/// Who a caller is, as far as it has proved it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Identity {
    /// It has proved nothing: its address is all that is known.
    #[default]
    Anonymous,
    /// A local user, as the kernel vouches for it.
    Unix(u32),
    /// The holder of the token with this name.
    Token(Arc<str>),
    /// The user with this name, whose password was right.
    User(Arc<str>),
    /// The subject of a client certificate that was verified.
    Certificate(Arc<str>),
    /// An operator of another node of the cluster, as that node says.
    Node(Arc<str>),
}

impl Identity {
    /// Of a peer that has shown nothing: what its transport knows.
    pub const fn of_peer(peer: &Peer) -> Self {
        match peer {
            Peer::Local { uid, .. } => Self::Unix(*uid),
            Peer::Tcp(_) | Peer::Loopback | Peer::Unknown => Self::Anonymous,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => out.write_str("anonymous"),
            Self::Unix(uid) => write!(out, "unix:{uid}"),
            Self::Token(name) => write!(out, "token:{}", name.escape_debug()),
            Self::User(name) => write!(out, "user:{}", name.escape_debug()),
            Self::Certificate(subject) => write!(out, "certificate:{}", subject.escape_debug()),
            Self::Node(operator) => write!(out, "node:{}", operator.escape_debug()),
        }
    }
}

/// What a caller may do with the service `control`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ControlAccess {
    /// Nothing.
    #[default]
    None,
    /// See everything, and change nothing.
    Read,
    /// All.
    Full,
}

/// The key of limits by address: an IPv4 address, an IPv6 network of 64 bits, a local user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressKey {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 network of 64 bits.
    V6([u16; 4]),
    /// A local user.
    User(u32),
}

impl AddressKey {
    /// That of a peer, where it has one.
    pub fn of(peer: &Peer) -> Option<Self> {
        match peer {
            Peer::Tcp(address) => Some(match address.ip().to_canonical() {
                IpAddr::V4(address) => Self::V4(address),
                IpAddr::V6(address) => {
                    let [a, b, c, d, ..] = address.segments();
                    Self::V6([a, b, c, d])
                }
            }),
            Peer::Local { uid, .. } => Some(Self::User(*uid)),
            Peer::Loopback | Peer::Unknown => None,
        }
    }
}

/// The callers that a rule means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityMatch {
    /// Every caller.
    All,
    /// Callers that have proved nothing.
    Anonymous,
    /// Callers that have proved who they are, in whatever way.
    Identified,
    /// This local user, whatever it has shown beside.
    Unix(u32),
    /// The holder of the token with this name.
    Token(Box<str>),
    /// The user with this name.
    User(Box<str>),
    /// The subject of a certificate, as `$ssl_client_s_dn` has it.
    Certificate(Box<str>),
    /// Peers whose address begins with these bits.
    Network(IpAddr, u8),
}

impl IdentityMatch {
    /// Whether this caller is meant.
    pub fn is_meant(&self, peer: &Peer, identity: &Identity) -> bool {
        match self {
            Self::All => true,
            Self::Anonymous => *identity == Identity::Anonymous,
            Self::Identified => *identity != Identity::Anonymous,
            Self::Unix(uid) => matches!(peer, Peer::Local { uid: own, .. } if own == uid),
            Self::Token(name) => matches!(identity, Identity::Token(own) if **own == **name),
            Self::User(name) => matches!(identity, Identity::User(own) if **own == **name),
            Self::Certificate(name) => {
                matches!(identity, Identity::Certificate(own) if **own == **name)
            }
            Self::Network(network, bits) => match peer {
                Peer::Tcp(address) => begins_with(address.ip().to_canonical(), *network, *bits),
                _ => false,
            },
        }
    }
}

fn begins_with(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let shift = 32_u32.saturating_sub(bits.into());
            (address.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let shift = 128_u32.saturating_sub(bits.into());
            (address.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Which callers may call which services. A service that no rule names may be called by all; `control` only by those
/// that a rule names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Permissions {
    services: BTreeMap<String, Vec<IdentityMatch>>,
    control: Vec<(ControlAccess, IdentityMatch)>,
}

impl Permissions {
    /// These callers may call this service.
    pub fn permit(&mut self, service: &str, who: impl IntoIterator<Item = IdentityMatch>) {
        self.services.entry(service.to_owned()).or_default().extend(who);
    }

    /// These callers may use `control`.
    pub fn permit_control(
        &mut self,
        access: ControlAccess,
        who: impl IntoIterator<Item = IdentityMatch>,
    ) {
        self.control.extend(who.into_iter().map(|who| (access, who)));
    }

    /// Whether any rule names this service.
    pub fn is_restricted(&self, service: &str) -> bool {
        self.services.contains_key(service)
    }

    /// Whether this caller may call this service.
    pub fn allows(&self, service: &str, caller: &Caller) -> bool {
        self.services.is_empty()
            || self.services.get(service).is_none_or(|rules| {
                rules.iter().any(|rule| rule.is_meant(&caller.peer, &caller.identity))
            })
    }

    /// What a caller may do with `control`: the most that a rule for it says.
    pub fn control(&self, peer: &Peer, identity: &Identity) -> ControlAccess {
        let rules = self.control.iter().filter(|(_, who)| who.is_meant(peer, identity));
        rules.map(|(access, _)| *access).max().unwrap_or_default()
    }
}

/// What callers may do, and how much of it at once: the same for every protocol.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccess {
    /// Which callers may call which services.
    pub permissions: Arc<Permissions>,
    /// How many requests of one identity and of one address may run at once.
    pub limits: Arc<RequestLimits>,
}

impl ServiceAccess {
    /// A caller wants to call a service: whether it may, now.
    pub fn admit(
        &self,
        service: &str,
        caller: &Caller,
        counter: &RequestCounter,
    ) -> Result<RequestPermit, (Code, String)> {
        if !self.permissions.allows(service, caller) {
            let text = format!("service \"{service}\" is not permitted to {}", caller.identity);
            return Err((Code::PermissionError, text));
        }
        counter.take().map_err(|full| (Code::ResourceLimitReached, full.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: &str) -> Peer {
        Peer::Tcp((address.parse::<IpAddr>().expect("an address"), 1).into())
    }

    fn caller(peer: Peer, identity: Identity) -> Caller {
        Caller { session: 1, peer, identity, control: ControlAccess::None }
    }

    #[test]
    fn a_rule_means_what_it_says() {
        // E13, E14
        use IdentityMatch as M;
        let local = Peer::Local { uid: 7, pid: None };
        let (v4, v6) = (tcp("192.0.2.7"), tcp("2001:db8::7"));
        let mapped = tcp("::ffff:192.0.2.7");
        let ann = Identity::User("ann".into());
        let token = Identity::Token("ann".into());
        let certificate = Identity::Certificate("CN=ann".into());
        let network =
            |text: &str, bits| IdentityMatch::Network(text.parse().expect("an address"), bits);
        for (rule, peer, identity, expected) in [
            (M::All, v4, Identity::Anonymous, true),
            (M::Anonymous, v4, Identity::Anonymous, true),
            (M::Anonymous, v4, ann.clone(), false),
            (M::Identified, v4, Identity::Anonymous, false),
            (M::Identified, local, Identity::Unix(7), true),
            (M::Unix(7), local, Identity::Unix(7), true),
            (M::Unix(7), local, token.clone(), true),
            (M::Unix(8), local, Identity::Unix(7), false),
            (M::Unix(7), v4, Identity::Anonymous, false),
            (M::Token("ann".into()), v4, token.clone(), true),
            (M::Token("ann".into()), v4, ann.clone(), false),
            (M::User("ann".into()), v4, ann.clone(), true),
            (M::User("ann".into()), v4, token, false),
            (M::User("ann".into()), v4, certificate.clone(), false),
            (M::Certificate("CN=ann".into()), v4, certificate.clone(), true),
            (M::Certificate("CN=an".into()), v4, certificate, false),
            (network("192.0.2.0", 24), v4, Identity::Anonymous, true),
            (network("192.0.2.0", 24), mapped, Identity::Anonymous, true),
            (network("192.0.2.6", 31), v4, Identity::Anonymous, true),
            (network("192.0.2.6", 32), v4, Identity::Anonymous, false),
            (network("0.0.0.0", 0), v4, Identity::Anonymous, true),
            (network("0.0.0.0", 0), v6, Identity::Anonymous, false),
            (network("2001:db8::", 32), v6, Identity::Anonymous, true),
            (network("2001:db9::", 32), v6, Identity::Anonymous, false),
            (network("::", 0), local, Identity::Unix(7), false),
        ] {
            assert_eq!(rule.is_meant(&peer, &identity), expected, "{rule:?} {peer:?} {identity}");
        }
    }

    #[test]
    fn a_named_service_is_for_those_named_and_others_for_all() {
        // E14
        let mut permissions = Permissions::default();
        let ann = caller(tcp("192.0.2.7"), Identity::User("ann".into()));
        let nobody = caller(tcp("192.0.2.7"), Identity::Anonymous);
        assert!(permissions.allows("kv", &nobody));
        permissions.permit("kv", [IdentityMatch::User("ann".into())]);
        assert!(permissions.allows("kv", &ann) && !permissions.allows("kv", &nobody));
        assert!(permissions.allows("echo", &nobody));
        permissions.permit("kv", [IdentityMatch::All]);
        assert!(permissions.allows("kv", &nobody), "any rule of a service is enough");
    }

    #[test]
    fn control_is_for_those_named_and_the_widest_rule_counts() {
        // E14
        let mut permissions = Permissions::default();
        let (peer, ann) = (tcp("192.0.2.7"), Identity::User("ann".into()));
        assert_eq!(permissions.control(&peer, &ann), ControlAccess::None);
        permissions.permit_control(ControlAccess::Read, [IdentityMatch::Identified]);
        assert_eq!(permissions.control(&peer, &ann), ControlAccess::Read);
        permissions.permit_control(ControlAccess::Full, [IdentityMatch::User("ann".into())]);
        permissions.permit_control(ControlAccess::Read, [IdentityMatch::All]);
        assert_eq!(permissions.control(&peer, &ann), ControlAccess::Full);
        assert_eq!(permissions.control(&peer, &Identity::Anonymous), ControlAccess::Read);
    }
}
