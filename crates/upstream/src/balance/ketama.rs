//! Consistent hashing as nginx does it, compatible with `Cache::Memcached::Fast`: 160 points for each unit
//! of weight, `crc32(HOST \0 PORT PREVIOUS)`.

use super::PeerSettings;

const POINTS_PER_WEIGHT: usize = 160;

/// A point on the circle.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Point {
    hash: u32,
    /// Index into the names.
    server: u32,
}

/// All points, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Points {
    points: Vec<Point>,
    servers: Vec<Box<str>>,
}

impl Points {
    pub(super) fn new<'a>(peers: impl Iterator<Item = &'a PeerSettings>) -> Self {
        let mut all = Self::default();
        for peer in peers {
            let known = all.servers.iter().position(|known| *known == peer.server);
            let server = known.unwrap_or_else(|| {
                all.servers.push(peer.server.clone());
                all.servers.len() - 1
            }) as u32;
            let (host, port) = host_and_port(&peer.server);
            let mut base = crc32fast::Hasher::new();
            base.update(host);
            base.update(b"\0");
            base.update(port);
            let mut previous = [0; 4];
            for _ in 0..peer.weight as usize * POINTS_PER_WEIGHT {
                let mut hasher = base.clone();
                hasher.update(&previous);
                let hash = hasher.finalize();
                all.points.push(Point { hash, server });
                previous = hash.to_le_bytes();
            }
        }
        all.points.sort_by_key(|point| point.hash);
        all.points.dedup_by_key(|point| point.hash);
        all
    }

    /// The first point at or behind the hash of a key; it may be one beyond the last.
    pub(super) fn find(&self, key: &[u8]) -> u32 {
        let hash = crc32fast::hash(key);
        self.points.partition_point(|point| point.hash < hash) as u32
    }

    /// The server at a point; the circle wraps around.
    pub(super) fn server(&self, point: u32) -> Option<&str> {
        let index = (point as usize).checked_rem(self.points.len())?;
        Some(&self.servers[self.points[index].server as usize])
    }
}

/// The two parts of a `server`: a port is the part after the last colon, if it is digits.
fn host_and_port(server: &str) -> (&[u8], &[u8]) {
    let bytes = server.as_bytes();
    if let Some((scheme, path)) = bytes.split_at_checked(5)
        && scheme.eq_ignore_ascii_case(b"unix:")
    {
        return (path, b"");
    }
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match bytes[..bytes.len() - digits].split_last() {
        Some((b':', host)) => (host, &bytes[bytes.len() - digits..]),
        _ => (bytes, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for (server, host, port) in [
            ("127.0.0.1:8080", "127.0.0.1", "8080"),
            ("backend", "backend", ""),
            ("backend:", "backend", ""),
            ("unix:/run/a:1", "/run/a:1", ""),
            ("[::1]:80", "[::1]", "80"),
            ("[::1]", "[::1]", ""),
            ("80", "80", ""),
        ] {
            assert_eq!(host_and_port(server), (host.as_bytes(), port.as_bytes()), "{server}");
        }
    }

    #[test]
    fn points_are_in_order_and_each_weight_has_its_share() {
        let mut heavy = PeerSettings::new("b:2");
        heavy.weight = 3;
        let peers = [PeerSettings::new("a:1"), heavy];
        let points = Points::new(peers.iter());
        assert!(points.points.len() <= 640 && points.points.len() > 630);
        assert!(points.points.is_sorted_by(|a, b| a.hash < b.hash));
        let last = points.points.len() as u32;
        assert_eq!(points.server(last), points.server(0), "a circle");
        assert_eq!(Points::default().server(0), None);
    }
}
