//! The shape of the shell: protocols and transports are named where they are put together, and nowhere else, so
//! that a new one touches one file (ADR 0052).

use std::path::Path;

use crate::Complaints;
use crate::source::{self, Source, is_name_byte};

/// Crates that know no protocol.
const PROTOCOL_FREE: [&str; 3] =
    ["crates/handler/src/", "crates/route/src/", "crates/gateway/src/"];
/// The engines of protocols.
const ENGINES: [&str; 4] = ["sekisho_http1", "sekisho_http2", "sekisho_http3", "sekisho_native"];
/// The one file of `net` that names them.
const PROTOCOL: &str = "crates/net/src/protocol";
/// Where engines of the client's side are made.
const CLIENT: &str = "crates/handler/src/upstream/engine.rs";
/// Concrete transports, where they are made, and where connections are accepted.
const TRANSPORTS: [&str; 1] = ["Socket"];
const TRANSPORT: [&str; 4] = [
    "crates/net/src/transport",
    "crates/net/src/listen.rs",
    "crates/net/src/connection.rs",
    "crates/net/src/query.rs",
];

/// Checks it.
pub(crate) fn check(root: &Path) -> Complaints {
    source::read_all(root).iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Complaints {
    let mut complaints = Complaints::new();
    let path = source.path.as_str();
    let is_free = PROTOCOL_FREE.iter().any(|folder| path.starts_with(folder));
    let is_net = path.starts_with("crates/net/src/");
    for (number, line) in source.shipped_code() {
        let number = number + 1;
        let engine = ENGINES.iter().find(|engine| has_word(line, engine));
        if let Some(engine) =
            engine.filter(|_| path != CLIENT && (is_free || is_net && !path.starts_with(PROTOCOL)))
        {
            complaints.push(format!("{path}:{number}: {engine} is named outside {PROTOCOL}.rs"));
        }
        let transport = TRANSPORTS.iter().find(|name| {
            line.contains(&format!("transport::{name}")) || has_word(line, &format!("{name}::new"))
        });
        if let Some(name) = transport
            && is_net
            && !TRANSPORT.iter().any(|place| path.starts_with(place))
        {
            complaints.push(format!("{path}:{number}: the transport {name} is named here"));
        }
    }
    complaints
}

fn has_word(line: &str, word: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(|byte| !is_name_byte(*byte));
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        is_edge(before) && is_edge(bytes.get(at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_named_in_one_file() {
        let complaints = |path: &str, code: &str| {
            check_source(&Source::new(path.to_owned(), code.to_owned())).len()
        };
        let code = "use sekisho_http1::Http1;\n";
        assert_eq!(complaints("crates/net/src/protocol.rs", code), 0);
        assert_eq!(complaints("crates/net/src/drive.rs", code), 1);
        assert_eq!(complaints("crates/handler/src/cgi.rs", code), 1);
        assert_eq!(complaints("crates/simulation/src/http.rs", code), 0);
        let code = "let x = Socket::new(fd, true);\n";
        assert_eq!(complaints("crates/net/src/drive.rs", code), 1);
        assert_eq!(complaints("crates/net/src/listen.rs", code), 0);
    }
}
