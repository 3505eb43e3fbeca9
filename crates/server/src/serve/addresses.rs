//! Where `serve` listens, and by which addresses others reach it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use sekisho_config::ListenAddress;

use crate::Problem;
use crate::cli::Bind;
use crate::https::Https;

const DEFAULT_PORT: u16 = 8080;
/// With a certificate of this machine's own authority.
const LOCAL_TLS_PORT: u16 = 8443;
const TLS_PORT: u16 = 443;

/// Which machines can connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Loopback addresses and Unix sockets.
    ThisMachine,
    Network,
}

impl Reach {
    /// Of what is to be listened on.
    pub(super) fn of(listens: &[String]) -> Self {
        let addresses = listens.iter().flat_map(|listen| {
            sekisho_config::listen::addresses(listen.as_bytes()).unwrap_or_default()
        });
        Self::of_addresses(&addresses.collect::<Vec<_>>())
    }

    /// Of what is listened on.
    pub(super) fn of_addresses(addresses: &[ListenAddress]) -> Self {
        let is_near = |address: &ListenAddress| match address {
            ListenAddress::Tcp(at) | ListenAddress::Udp(at) => at.ip().is_loopback(),
            ListenAddress::Unix(_) => true,
        };
        if addresses.iter().all(is_near) { Self::ThisMachine } else { Self::Network }
    }
}

/// The addresses to listen on, in the syntax of `listen`. A port without an address means every address of
/// this machine, of both families.
pub(super) fn listens(bind: &Bind, https: &Https) -> Result<Vec<String>, Problem> {
    let port = bind.port.unwrap_or(match https {
        Https::Off => DEFAULT_PORT,
        Https::Local(..) | Https::Given(..) => LOCAL_TLS_PORT,
        Https::Named(_) => TLS_PORT,
    });
    if bind.listen.is_empty() && matches!(https, Https::Named(_)) {
        // A public name is for all networks.
        return expand(&port.to_string(), port);
    }
    if bind.listen.is_empty() {
        return Ok(vec![
            SocketAddr::from((Ipv4Addr::LOCALHOST, free(port, Ipv4Addr::LOCALHOST.into())?))
                .to_string(),
        ]);
    }
    let mut all = Vec::new();
    for word in &bind.listen {
        for listen in expand(word, port)? {
            if !all.contains(&listen) {
                all.push(listen);
            }
        }
    }
    Ok(all)
}

fn expand(word: &str, default_port: u16) -> Result<Vec<String>, Problem> {
    let everywhere = |port: u16| -> Result<Vec<String>, Problem> {
        let any =
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, free(port, Ipv4Addr::UNSPECIFIED.into())?));
        let mut both = vec![any.to_string()];
        if has_ipv6() {
            both.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, any.port())).to_string());
        }
        Ok(both)
    };
    let bare = word.strip_prefix("*:").or(word.strip_prefix(':')).unwrap_or(word);
    if let Ok(port) = bare.parse::<u16>() {
        return everywhere(port);
    }
    if let Ok(at) = word.parse::<SocketAddr>() {
        if at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            return everywhere(at.port());
        }
        return Ok(vec![SocketAddr::new(at.ip(), free(at.port(), at.ip())?).to_string()]);
    }
    let unbracketed = word.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = unbracketed.parse::<IpAddr>() {
        return expand(&SocketAddr::new(ip, default_port).to_string(), default_port);
    }
    match sekisho_config::listen::addresses(word.as_bytes()) {
        Ok(_) => Ok(vec![word.to_owned()]),
        Err(wrong) => Err(Problem::new(format_args!("--listen {word}: {wrong}"))),
    }
}

/// The port itself, or a free one for 0: it must be known before, for it may be listened on in both families.
fn free(port: u16, ip: IpAddr) -> Result<u16, Problem> {
    if port != 0 {
        return Ok(port);
    }
    let found = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr());
    found
        .map(|at| at.port())
        .map_err(|error| Problem::new(format_args!("no port is free: {error}")))
}

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

/// What to open in a browser: every address of this machine that is listened on.
pub(super) fn links(addresses: &[ListenAddress], scheme: &str) -> Vec<String> {
    let own = sekisho_sys::interface_addresses();
    let mut links = Vec::new();
    for address in addresses {
        match address {
            ListenAddress::Tcp(at) if at.ip().is_unspecified() => {
                let is_same_family = |ip: &&IpAddr| ip.is_ipv4() == at.is_ipv4();
                let loopback: IpAddr = match at {
                    SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                };
                let others = own.iter().filter(is_same_family).filter(|ip| can_be_typed(**ip));
                links.extend(
                    [&loopback].into_iter().chain(others).map(|ip| link(scheme, *ip, at.port())),
                );
            }
            ListenAddress::Tcp(at) => links.push(link(scheme, at.ip(), at.port())),
            ListenAddress::Unix(path) => links.push(format!("unix:{}", path.display())),
            ListenAddress::Udp(_) => {}
        }
    }
    links
}

/// The same where a certificate is for a name: no client accepts it for an address.
pub(super) fn named_links(addresses: &[ListenAddress], name: &str) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for address in addresses {
        let link = match address {
            ListenAddress::Tcp(at) if at.port() == TLS_PORT => format!("https://{name}/"),
            ListenAddress::Tcp(at) => format!("https://{name}:{}/", at.port()),
            ListenAddress::Unix(path) => format!("unix:{}", path.display()),
            ListenAddress::Udp(_) => continue,
        };
        if !links.contains(&link) {
            links.push(link);
        }
    }
    links
}

fn link(scheme: &str, ip: IpAddr, port: u16) -> String {
    format!("{scheme}://{}/", SocketAddr::new(ip, port))
}

/// A link-local address of IPv6 needs the name of an interface behind it, which no browser takes.
fn can_be_typed(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// Whether a link is of use on another machine.
pub(super) fn is_for_others(link: &str) -> bool {
    let at = link.split_once("://").and_then(|(_, rest)| rest.strip_suffix('/'));
    // What is no address is a public name.
    at.is_some_and(|at| at.parse::<SocketAddr>().map_or(true, |at| !at.ip().is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_means_every_address_of_both_families() {
        let both: &[&str] = if has_ipv6() { &["0.0.0.0:81", "[::]:81"] } else { &["0.0.0.0:81"] };
        for (word, expected) in [
            ("81", both),
            (":81", both),
            ("*:81", both),
            ("[::]:81", both),
            ("0.0.0.0:81", &["0.0.0.0:81"]),
            ("127.0.0.1:81", &["127.0.0.1:81"]),
            ("127.0.0.1", &["127.0.0.1:8080"]),
            ("[::1]", &["[::1]:8080"]),
            ("::1", &["[::1]:8080"]),
            ("localhost:81", &["localhost:81"]),
            ("unix:/run/x", &["unix:/run/x"]),
        ] {
            assert_eq!(expand(word, 8080).expect(word), expected, "{word}");
        }
        assert!(expand("99999", 1).is_err() && expand("name", 1).is_err());
        let free = expand("127.0.0.1:0", 1).expect("a free port");
        assert!(!free[0].ends_with(":0"), "{free:?}");
    }

    #[test]
    fn only_loopback_addresses_are_for_this_machine() {
        let reach = |word: &str| Reach::of(&[word.to_owned()]);
        for word in ["127.0.0.1:1", "[::1]:1", "unix:/x", "localhost:1"] {
            assert_eq!(reach(word), Reach::ThisMachine, "{word}");
        }
        for word in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            assert_eq!(reach(word), Reach::Network, "{word}");
        }
        for (link, expected) in [
            ("http://192.0.2.1:80/", true),
            ("https://192.0.2.1:443/", true),
            ("https://files.example.org/", true),
            ("http://[::1]:80/", false),
            ("https://127.0.0.1:443/", false),
            ("unix:/run/x/", false),
        ] {
            assert_eq!(is_for_others(link), expected, "{link}");
        }
    }

    #[test]
    fn a_name_is_shown_once_for_each_port() {
        let at = |text: &str| ListenAddress::Tcp(text.parse().expect(text));
        let all = [at("0.0.0.0:443"), at("[::]:443"), at("0.0.0.0:8443")];
        let shown = named_links(&all, "a.example.org");
        assert_eq!(shown, ["https://a.example.org/", "https://a.example.org:8443/"]);
    }
}
