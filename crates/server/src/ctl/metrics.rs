//! `ctl metrics`: as a table, as JSON, or as Prometheus reads it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use sekisho_endpoint::control::{Family, Label, Measure, Metrics, Sample, What};
use serde_json::{Value, json};

use super::session::{Scope, Server, read};
use super::{Failure, WATCH_EVERY, cluster, connect, show};

/// What `ctl metrics` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Prometheus's text format
    #[arg(long)]
    prometheus: bool,
    /// Repeat every second
    #[arg(long)]
    watch: bool,
}

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    if server.scope == Scope::All {
        loop {
            write(options, &cluster::all_metrics(server)?)?;
            if !options.watch {
                return Ok(server.completeness());
            }
            connect::pause(WATCH_EVERY);
        }
    }
    if !options.watch {
        let metrics: Metrics = server.ask(What::Measure(Measure { every_millis: 0 }))?;
        write(options, &metrics)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ticket = server.request(What::Measure(Measure { every_millis: 1000 }))?;
    while let Some(record) = server.client().next_record(&ticket)? {
        write(options, &read(&record)?)?;
    }
    server.client().answer(ticket)?;
    Ok(ExitCode::SUCCESS)
}

fn write(options: &Options, metrics: &Metrics) -> Result<(), Failure> {
    let text = if options.prometheus {
        prometheus(metrics)
    } else if options.json {
        let mut line = Vec::new();
        show::json_line(&as_json(metrics), &mut line, options.watch)?;
        String::from_utf8_lossy(&line).into_owned()
    } else {
        plain(metrics)
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Adds the metrics of a node, each sample with the node as a label.
pub(super) fn merge(all: &mut Metrics, of: Metrics, node: &str) {
    for mut family in of.families {
        for sample in &mut family.samples {
            let label = Label { name: "node".to_owned(), value: node.to_owned() };
            sample.labels.insert(0, label);
        }
        match all.families.iter_mut().find(|known| known.name == family.name) {
            Some(known) => known.samples.append(&mut family.samples),
            None => all.families.push(family),
        }
    }
}

/// Prometheus's text format.
pub(crate) fn prometheus(metrics: &Metrics) -> String {
    let mut out = String::new();
    for family in &metrics.families {
        let Family { name, help, kind, samples } = family;
        _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            _ = writeln!(out, "{name}{}{} {}", sample.suffix, labels(sample), sample.value);
        }
    }
    out
}

/// One line for each number that is not zero.
fn plain(metrics: &Metrics) -> String {
    let mut out = String::new();
    for family in &metrics.families {
        let shown = |sample: &&Sample| sample.value != 0.0 && sample.suffix != "_bucket";
        for sample in family.samples.iter().filter(shown) {
            let name = family.name.trim_start_matches("sekisho_");
            let name = format!("{name}{}{}", sample.suffix, labels(sample));
            _ = writeln!(out, "{name:<60} {}", sample.value);
        }
    }
    out
}

fn labels(sample: &Sample) -> String {
    if sample.labels.is_empty() {
        return String::new();
    }
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all =
        sample.labels.iter().map(|label| format!("{}=\"{}\"", label.name, quoted(&label.value)));
    format!("{{{}}}", all.collect::<Vec<_>>().join(","))
}

/// `{"metrics": [{"name", "help", "type", "samples": [{"name", "labels", "value"}]}]}`
fn as_json(metrics: &Metrics) -> Value {
    let families = metrics.families.iter().map(|family| {
        let samples = family.samples.iter().map(|sample| {
            let labels = sample.labels.iter();
            let labels = labels.map(|label| (label.name.clone(), label.value.as_str().into()));
            json!({
                "name": format!("{}{}", family.name, sample.suffix),
                "labels": Value::Object(labels.collect()),
                "value": sample.value,
            })
        });
        json!({
            "name": family.name,
            "help": family.help,
            "type": family.kind,
            "samples": samples.collect::<Vec<_>>(),
        })
    });
    json!({ "metrics": families.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_endpoint::control::Label;

    #[test]
    fn numbers_are_written_as_prometheus_reads_them() {
        // O7
        let label = Label { name: "kind".to_owned(), value: "a\"b\\c\nd".to_owned() };
        let sample = Sample { suffix: "_bucket".to_owned(), labels: vec![label], value: 3.0 };
        let family = Family {
            name: "x".to_owned(),
            help: "What it is".to_owned(),
            kind: "histogram".to_owned(),
            samples: vec![
                sample,
                Sample { suffix: "_sum".to_owned(), value: 0.5, ..Sample::default() },
            ],
        };
        let expected = "# HELP x What it is\n# TYPE x histogram\n\
            x_bucket{kind=\"a\\\"b\\\\c\\nd\"} 3\nx_sum 0.5\n";
        assert_eq!(prometheus(&Metrics { families: vec![family] }), expected);
    }
}
