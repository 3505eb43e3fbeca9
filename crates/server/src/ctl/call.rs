//! `ctl call`: any service, with a body from a file or from standard input; what comes through the channel,
//! and then the result, goes to standard output.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prost::Message;
use sekisho_endpoint::http::{Done, Field, Head, Request};
use sekisho_endpoint::{Echo, control, http};

use super::Failure;
use super::ask::{Server, failed, read};

/// The longest body that is read: more fits no frame.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// What `ctl call` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The service: `echo`, `http`, `control`, or a number
    service: String,
    /// http: what to ask for, such as /index.html
    target: Option<String>,
    /// The body: a file, or `-` for standard input (which it is when it is not a terminal)
    #[arg(long, short = 'd', value_name = "FILE|-")]
    body: Option<PathBuf>,
    /// http: the method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// http: a field, such as 'Accept: text/html'; may be given several times
    #[arg(long, short = 'H', value_name = "FIELD")]
    header: Vec<String>,
    /// http: the address that it comes to, as a `listen` of the configuration has it
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// http: show the head of the answer, too
    #[arg(long, short = 'i')]
    include: bool,
}

pub(super) fn run(options: &Options, mut server: Server) -> Result<ExitCode, Failure> {
    let number = match options.service.as_str() {
        "echo" => Echo::NUMBER,
        "http" => http::NUMBER,
        "control" => control::NUMBER,
        other => other
            .parse()
            .map_err(|_| Failure::Failed(format!("no service is called \"{other}\"")))?,
    };
    let is_http = number == http::NUMBER;
    let body = body(options, is_http)?;
    let body = if is_http { request(options, body)?.encode_to_vec() } else { body };
    let client = server.client();
    let ticket = client.request(number, &body)?;
    let mut out = io::stdout().lock();
    let mut is_first = true;
    while let Some(record) = client.next_record(&ticket)? {
        if is_http && std::mem::take(&mut is_first) {
            if options.include {
                write_head(&read(&record)?, &mut out)?;
            }
            continue;
        }
        out.write_all(&record)?;
        out.flush()?;
    }
    let result = client.answer(ticket).map_err(failed)?;
    if is_http {
        read::<Done>(&result)?;
    } else {
        out.write_all(&result)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn body(options: &Options, is_http: bool) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    match &options.body {
        Some(path) if path.as_os_str() != "-" => {
            let file = File::open(path)
                .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
            file.take(BODY_BYTES_MAX).read_to_end(&mut body)?;
        }
        // A GET has no body unless somebody says so.
        None if is_http || io::stdin().is_terminal() => {}
        _ => _ = io::stdin().lock().take(BODY_BYTES_MAX).read_to_end(&mut body)?,
    }
    Ok(body)
}

fn request(options: &Options, body: Vec<u8>) -> Result<Request, Failure> {
    let field = |line: &String| {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::Failed(format!("\"{line}\" is no field: NAME: VALUE")))?;
        Ok(Field { name: name.trim().to_owned(), value: value.trim().into() })
    };
    Ok(Request {
        method: options.method.clone(),
        target: options.target.clone().unwrap_or_default(),
        fields: options.header.iter().map(field).collect::<Result<_, Failure>>()?,
        body,
        address: options.address.clone().unwrap_or_default(),
    })
}

fn write_head(head: &Head, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "HTTP {}", head.status)?;
    for Field { name, value } in &head.fields {
        write!(out, "{name}: ")?;
        out.write_all(value)?;
        writeln!(out)?;
    }
    writeln!(out)
}
