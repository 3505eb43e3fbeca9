//! What limits by address tell apart.

use std::net::{IpAddr, Ipv6Addr};

/// One client by its address: for IPv6 its network, as one client has all addresses of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address(IpAddr);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        const NETWORK: u128 = !(u64::MAX as u128);
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}
