//! `ctl call`: any service, with a body from a file or from standard input; what comes through the channel,
//! and then the result, goes to standard output.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use prost::Message;
use sekisho_endpoint::http::{Done, Field, Head, Request};
use sekisho_endpoint::{Echo, NewRequest, control, http};

use super::Failure;
use super::session::{Server, failed, read};

/// The longest body that is read: more fits no frame.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// How long a service may be silent, if the server allows for that much.
const PATIENCE: Duration = Duration::from_hours(1);

/// What `ctl call` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The service, by name or number: `echo`, `http`, `control`, one of the program's own
    service: String,
    /// http: the target, such as /index.html
    target: Option<String>,
    /// The body: a file, or `-` for standard input (the default for services other than `http` if it is not a terminal)
    #[arg(long, short = 'd', value_name = "FILE|-")]
    body: Option<PathBuf>,
    /// http: the method; GET if not given
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,
    /// http: a field, such as 'Accept: text/html'; may be given several times
    #[arg(long, short = 'H', value_name = "FIELD")]
    header: Vec<String>,
    /// http: the address of the server, as in its `listen` directive
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// http: also print the head of the answer
    #[arg(long, short = 'i')]
    include: bool,
}

impl Options {
    /// Whether it is called by operators.
    pub(super) fn is_operator(&self) -> bool {
        self.number() == Some(control::NUMBER)
    }

    fn number(&self) -> Option<u32> {
        Some(match self.service.as_str() {
            "echo" => Echo::NUMBER,
            "http" => http::NUMBER,
            "control" => control::NUMBER,
            other => return other.parse().ok(),
        })
    }
}

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let number = options.number();
    let is_http = number == Some(http::NUMBER);
    let has_more = options.target.is_some()
        || options.method.is_some()
        || !options.header.is_empty()
        || options.address.is_some()
        || options.include;
    if has_more && !is_http {
        let text = "a target, -X, -H, -i and --address are for the service \"http\" only";
        return Err(Failure::Failed(text.to_owned()));
    }
    let body = body(options, is_http)?;
    let body = if is_http { request(options, body)?.encode_to_vec() } else { body };
    let client = server.client();
    // A service that is silent for longer than a session lives would lose its client.
    client.extend(PATIENCE)?;
    // The names of a program's own services are known to the server alone.
    let request = number.map_or_else(|| NewRequest::to_name(&options.service), NewRequest::to);
    let ticket = client.start(&request.body(&body))?;
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
        // A GET has no body unless one is given.
        None if is_http || io::stdin().is_terminal() => {}
        _ => _ = io::stdin().lock().take(BODY_BYTES_MAX).read_to_end(&mut body)?,
    }
    Ok(body)
}

fn request(options: &Options, body: Vec<u8>) -> Result<Request, Failure> {
    let field = |line: &String| {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::Failed(format!("\"{line}\" is not a field: NAME: VALUE")))?;
        Ok(Field { name: name.trim().to_owned(), value: value.trim().into() })
    };
    Ok(Request {
        method: options.method.clone().unwrap_or_default(),
        target: options.target.clone().unwrap_or_default(),
        fields: options.header.iter().map(field).collect::<Result<_, Failure>>()?,
        body: body.into(),
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
