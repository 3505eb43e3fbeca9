//! `ctl memory`: what the server holds, by kind, and how much of it is unexplained.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use sekisho_endpoint::control::{MeasureMemory, Memory, MemoryEntry, MemoryShare, What};
use serde_json::{Value, json};

use super::session::{Scope, Server};
use super::{Failure, show};
use crate::terminal::complain;

/// What `ctl memory` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(options: &Options, server: &mut Server) -> Result<ExitCode, Failure> {
    let memory: Memory = server.ask(What::MeasureMemory(MeasureMemory {}))?;
    if memory.silent_workers > 0 {
        complain(format_args!(
            "sekisho: {} workers did not answer in time\n",
            memory.silent_workers
        ));
    }
    let mut out = Vec::new();
    if options.json {
        show::json_line(&server.signed(as_json(&memory)), &mut out, server.scope != Scope::Server)?;
    } else {
        write(&memory, &mut out)?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The explained and the unexplained bytes: the latter are records of the runtime, wakers, paths and the
/// like.
fn explained(memory: &Memory) -> (u64, u64) {
    let sum: u64 = memory.held.iter().map(|of| of.bytes).sum();
    (sum, memory.heap_bytes.saturating_sub(sum))
}

fn write(memory: &Memory, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:<24} {:>8} {:>12}", "KIND", "COUNT", "BYTES")?;
    let mut row = |kind: &str, count: Option<u64>, bytes: u64| {
        let count = count.map_or_else(String::new, |count| count.to_string());
        writeln!(out, "{kind:<24} {count:>8} {bytes:>12}")
    };
    for of in &memory.held {
        row(&of.kind, Some(of.count), of.bytes)?;
    }
    let (sum, rest) = explained(memory);
    row("sum", None, sum)?;
    if memory.heap_bytes > 0 {
        row("rest", None, rest)?;
        row("heap in use", None, memory.heap_bytes)?;
        row("heap free", None, memory.heap_free_bytes)?;
    }
    if let Some(MemoryEntry { kind, count, bytes }) = &memory.shared {
        row(kind, Some(*count), *bytes)?;
    }
    row("resident", None, memory.resident_bytes)?;
    row("  anonymous", None, memory.resident_anonymous_bytes)?;
    row("  files", None, memory.resident_file_bytes)?;
    row("  shared", None, memory.resident_shared_bytes)?;
    writeln!(out, "\n{:<24} {:>12} {:>12}", "BUDGET", "TAKEN", "LIMIT")?;
    for MemoryShare { class, taken_bytes, limit_bytes } in &memory.budget {
        writeln!(out, "{class:<24} {taken_bytes:>12} {limit_bytes:>12}")?;
    }
    Ok(())
}

/// `{"held": [{"kind", "count", "bytes"}], "sum_bytes", "rest_bytes", …}`
fn as_json(memory: &Memory) -> Value {
    let held = |of: &MemoryEntry| json!({ "kind": of.kind, "count": of.count, "bytes": of.bytes });
    let (sum, rest) = explained(memory);
    let is_told = memory.heap_bytes > 0;
    json!({
        "held": memory.held.iter().map(held).collect::<Vec<_>>(),
        "sum_bytes": sum,
        "rest_bytes": is_told.then_some(rest),
        "heap_bytes": is_told.then_some(memory.heap_bytes),
        "heap_free_bytes": is_told.then_some(memory.heap_free_bytes),
        "shared": memory.shared.as_ref().map(held),
        "resident_bytes": memory.resident_bytes,
        "resident_anonymous_bytes": memory.resident_anonymous_bytes,
        "resident_file_bytes": memory.resident_file_bytes,
        "resident_shared_bytes": memory.resident_shared_bytes,
        "budget": budget_as_json(&memory.budget),
    })
}

/// `[{"class", "taken_bytes", "limit_bytes"}]`
pub(super) fn budget_as_json(budget: &[MemoryShare]) -> Vec<Value> {
    let share = |of: &MemoryShare| json!({ "class": of.class, "taken_bytes": of.taken_bytes, "limit_bytes": of.limit_bytes });
    budget.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_rest_are_what_the_heap_has() {
        // O7
        let held = |kind: &str, bytes| MemoryEntry { kind: kind.to_owned(), count: 2, bytes };
        let held = vec![held("a", 30), held("b", 12)];
        let memory = Memory { held, heap_bytes: 100, ..Memory::default() };
        let value = as_json(&memory);
        assert_eq!((&value["sum_bytes"], &value["rest_bytes"]), (&json!(42), &json!(58)));
        let mut out = Vec::new();
        write(&memory, &mut out).expect("a vector takes all");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("a                               2           30\n"), "{text}");
        let untold = as_json(&Memory { heap_bytes: 0, ..memory });
        assert_eq!(untold["rest_bytes"], Value::Null);
    }
}
