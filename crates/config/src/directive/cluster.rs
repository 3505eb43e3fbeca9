//! The view of several servers as one: what they are called, and where they meet.

use sekisho_nats::{Address, is_token};

use super::{CLUSTER, Context, MAIN, Row, active, block};
use crate::level::{Directive, Fault};
use crate::model::Cluster;

const TOKEN: &str = "must have 1 to 64 letters, digits, \"-\" or \"_\"";

pub(super) const ROWS: &[Row] = &[
    block(
        "cluster",
        MAIN,
        "",
        Context::Cluster,
        "Shows and controls several servers as one, with `sekisho ctl --cluster` (ours)",
    )
    .once(),
    active(
        "name",
        CLUSTER,
        "name",
        "",
        "The name that the servers have together: letters, digits, `-` and `_` (ours)",
        |_, d, s| {
            let name = token(d)?;
            cluster(&mut s.main.cluster).name = name;
            Ok(())
        },
    ),
    active(
        "node",
        CLUSTER,
        "name",
        "",
        "The name of this server; the machine's name up to its first dot if it is not given (ours)",
        |_, d, s| {
            let name = token(d)?;
            cluster(&mut s.main.cluster).node = Some(name);
            Ok(())
        },
    ),
    active(
        "nats",
        CLUSTER,
        "url ...",
        "",
        "The NATS servers that the nodes meet at: `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://…`; one that does not answer is followed by the next (ours)",
        |_, d, s| {
            for word in d.args() {
                let address = Address::parse(d.text(word)?);
                let address = address.map_err(|error| {
                    // The value may have a password in it.
                    Fault::at(word, format!("invalid address in \"nats\" directive: {error}"))
                })?;
                cluster(&mut s.main.cluster).servers.push(address);
            }
            Ok(())
        },
    )
    .repeated(),
    active(
        "credentials",
        CLUSTER,
        "file",
        "",
        "A credentials file of NATS (token and seed), or a file with the seed of a key, by which this server proves itself (ours)",
        |_, d, s| {
            let path = s.path_beside_main(&d.arg(0).text);
            cluster(&mut s.main.cluster).credentials = Some(path);
            Ok(())
        },
    ),
    active(
        "trusted_certificate",
        CLUSTER,
        "file",
        "",
        "The authorities whose certificates are believed at `tls://` addresses; those of the machine if it is not given (ours)",
        |_, d, s| {
            let path = s.path_beside_main(&d.arg(0).text);
            cluster(&mut s.main.cluster).trusted_certificate = Some(path);
            Ok(())
        },
    ),
];

fn cluster(of: &mut Option<Box<Cluster>>) -> &mut Cluster {
    of.get_or_insert_default()
}

fn token(d: &Directive<'_>) -> Result<String, Fault> {
    let word = d.arg(0);
    if is_token(&word.text) { Ok(word.shown()) } else { Err(d.invalid(word, TOKEN)) }
}
