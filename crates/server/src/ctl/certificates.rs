//! `ctl certificates`: which certificates are shown to clients, their issuers, and how long they last.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use sekisho_endpoint::control::{Certificate, CertificateList, ListCertificates, What};
use serde_json::{Value, json};

use super::session::{Scope, Server};
use super::{Failure, show};

/// What `ctl certificates` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let list: CertificateList = server.ask(What::ListCertificates(ListCertificates {}))?;
    let mut out = Vec::new();
    if options.json {
        let all: Vec<Value> = list.certificates.iter().map(as_json).collect();
        let all = server.signed(json!({ "certificates": all }));
        show::json_line(&all, &mut out, server.scope != Scope::Server)?;
    } else {
        write(&list, &mut out)?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write(list: &CertificateList, out: &mut dyn Write) -> io::Result<()> {
    let names = |of: &Certificate| of.names.join(",");
    let width = |text: fn(&Certificate) -> usize, least| {
        list.certificates.iter().map(text).chain([least]).max().unwrap_or(least)
    };
    let (first, second) = (width(|of| of.names.join(",").len(), 5), width(|of| of.issuer.len(), 6));
    writeln!(out, "{:<first$}  {:<second$}  {:>9}  FROM", "NAMES", "ISSUER", "DAYS LEFT")?;
    for of in &list.certificates {
        let left = days_left(of);
        writeln!(out, "{:<first$}  {:<second$}  {left:>9}  {}", names(of), of.issuer, of.source)?;
    }
    Ok(())
}

/// How long a certificate is valid.
pub(super) fn days_left(of: &Certificate) -> String {
    if of.is_missing {
        "not yet".to_owned()
    } else if of.seconds_left < 0 {
        "expired".to_owned()
    } else {
        (of.seconds_left / 86_400).to_string()
    }
}

pub(super) fn as_json(of: &Certificate) -> Value {
    json!({
        "names": of.names,
        "issuer": of.issuer,
        "serial": of.serial,
        "from": of.valid_from,
        "to": of.valid_to,
        "seconds_left": of.seconds_left,
        "is_missing": of.is_missing,
        "source": of.source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_there_what_has_ended_and_what_is_not_there_yet() {
        let certificate = |name: &str, seconds_left, is_missing| Certificate {
            names: vec![name.to_owned()],
            issuer: "CN=x".to_owned(),
            source: "a.pem".to_owned(),
            seconds_left,
            is_missing,
            ..Certificate::default()
        };
        let list = CertificateList {
            certificates: vec![
                certificate("a.test", 3 * 86_400 + 5, false),
                certificate("b.test", -1, false),
                certificate("c.test", 0, true),
            ],
        };
        let mut out = Vec::new();
        write(&list, &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "NAMES   ISSUER  DAYS LEFT  FROM\n\
             a.test  CN=x            3  a.pem\n\
             b.test  CN=x      expired  a.pem\n\
             c.test  CN=x      not yet  a.pem\n"
        );
    }
}
