//! `ctl services`: which services there are, by number and name; the schema of one.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use sekisho_endpoint::control::{ListServices, ServiceInfo, ServiceList, What};
use serde_json::{Value, json};

use super::session::Server;
use super::{Failure, show};

/// What `ctl services` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print the schema of this service
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON, with the schemas
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let mut list: ServiceList = server.ask(What::ListServices(ListServices {}))?;
    list.services.retain(|service| options.name.as_ref().is_none_or(|name| *name == service.name));
    if let Some(name) = &options.name
        && list.services.is_empty()
    {
        let text = format!("no service is called \"{name}\"; `ctl services` lists them");
        return Err(Failure::Failed(text));
    }
    let mut out = Vec::new();
    if options.json {
        let all: Vec<Value> = list.services.iter().map(as_json).collect();
        show::json_line(&server.signed(json!({ "services": all })), &mut out, false)?;
    } else if options.name.is_some() {
        list.services.iter().try_for_each(|service| write!(out, "{}", service.schema))?;
    } else {
        write(&list, &mut out)?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    Ok(if list.services.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(list: &ServiceList, out: &mut dyn Write) -> io::Result<()> {
    let width = list.services.iter().map(|service| service.name.len()).chain([4]).max();
    let width = width.unwrap_or(4);
    writeln!(out, "{:>6}  {:<width$}  {:<6}  SCHEMA", "NUMBER", "NAME", "BODY")?;
    for ServiceInfo { number, name, takes_stream, schema } in &list.services {
        let body = if *takes_stream { "stream" } else { "whole" };
        let schema = if schema.is_empty() { "no" } else { "yes" };
        writeln!(out, "{number:>6}  {name:<width$}  {body:<6}  {schema}")?;
    }
    Ok(())
}

fn as_json(service: &ServiceInfo) -> Value {
    json!({
        "number": service.number,
        "name": service.name,
        "takes_stream": service.takes_stream,
        "schema": service.schema,
    })
}
