//! Writes the `.proto` files of the native protocol from the messages in the source, and checks that they are current.
//! The source is the one place where a field is described.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Complaints;

/// Each file: its name, its package, what it is, and where its messages stand.
const FILES: [(&str, &str, &str, &[&str]); 3] = [
    (
        "native.proto",
        "sekisho.native",
        "The control messages of the native protocol. The frames that carry them are in docs/protocol.md.",
        &["crates/native/src/message.rs"],
    ),
    (
        "control.proto",
        "sekisho.control",
        "The service `control` (number 1): a request is a ControlRequest.",
        &[
            "crates/endpoint/src/control.rs",
            "crates/endpoint/src/control/nodes.rs",
            "crates/endpoint/src/control/overview.rs",
        ],
    ),
    (
        "http.proto",
        "sekisho.http",
        "The service `http` (number 2): a request to the server's own HTTP handlers.",
        &["crates/endpoint/src/http.rs"],
    ),
];

const FOLDER: &str = "crates/endpoint/proto";

/// Writes them.
pub(crate) fn write(root: &Path) -> Complaints {
    let mut complaints = Complaints::new();
    for file in FILES {
        let path = root.join(FOLDER).join(file.0);
        if let Err(error) = text(root, file).and_then(|text| Ok(fs::write(&path, text)?)) {
            complaints.push(format!("{}: {error}", path.display()));
        }
    }
    complaints
}

/// Whether they are what would be written.
pub(crate) fn check(root: &Path) -> Complaints {
    let mut complaints = Complaints::new();
    for file in FILES {
        let path = root.join(FOLDER).join(file.0);
        match (text(root, file), fs::read_to_string(&path)) {
            (Ok(wanted), Ok(there)) if wanted == there => {}
            (Err(error), _) => complaints.push(format!("{}: {error}", file.0)),
            _ => complaints.push(format!("{FOLDER}/{}: run `cargo xtask proto`", file.0)),
        }
    }
    complaints
}

type Failure = Box<dyn std::error::Error>;

fn text(
    root: &Path,
    (_, package, what, sources): (&str, &str, &str, &[&str]),
) -> Result<String, Failure> {
    let mut out = format!(
        "// {what}\n// Written by `cargo xtask proto` from the source.\nsyntax = \"proto3\";\n\npackage {package};\n"
    );
    let mut source = String::new();
    for path in sources {
        source += &fs::read_to_string(root.join(path))?;
    }
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let is_message = line.starts_with("pub struct ") && derives(&lines[..at], "Message");
        let is_enumeration = line.starts_with("pub enum ") && derives(&lines[..at], "Enumeration");
        if !is_message && !is_enumeration {
            continue;
        }
        let name = line.split_whitespace().nth(2).unwrap_or_default().trim_end_matches('{');
        out.push('\n');
        comment(&lines[..at], "", &mut out);
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        let body: Vec<&str> =
            if line.ends_with("{}") { Vec::new() } else { body.copied().collect() };
        if is_message {
            writeln!(out, "message {name} {{")?;
            fields(&body, &lines, &mut out)?;
        } else {
            writeln!(out, "enum {name} {{")?;
            constants(name, &body, &mut out)?;
        }
        out.push_str("}\n");
    }
    Ok(out)
}

/// Whether the item that follows these lines derives it.
fn derives(before: &[&str], what: &str) -> bool {
    let attributes = before.iter().rev().take_while(|line| line.starts_with("#["));
    attributes.clone().any(|line| line.starts_with("#[derive") && line.contains(what))
}

/// The documentation that stands before these attributes, as a comment.
fn comment(before: &[&str], indent: &str, out: &mut String) {
    let is_attribute = |line: &&&str| line.starts_with("#[");
    let skipped = before.iter().rev().take_while(is_attribute).count();
    let before = &before[..before.len() - skipped];
    let first = before.iter().rposition(|line| !line.starts_with("///")).map_or(0, |at| at + 1);
    for line in &before[first..] {
        let text = line.trim_start_matches("///").replace(['[', ']'], "");
        // Writing to a string does not fail.
        let _ = writeln!(out, "{indent}//{text}");
    }
}

fn fields(body: &[&str], all: &[&str], out: &mut String) -> Result<(), Failure> {
    for (at, line) in body.iter().enumerate() {
        let Some(attribute) =
            line.strip_prefix("#[prost(").and_then(|rest| rest.strip_suffix(")]"))
        else {
            continue;
        };
        let field = body.get(at + 1).and_then(|line| line.strip_prefix("pub ")).unwrap_or_default();
        let (name, kind) = field.split_once(": ").ok_or("a field without a type")?;
        if let Some(rest) = attribute.strip_prefix("oneof = \"") {
            let of = rest.split('"').next().unwrap_or_default();
            comment(&body[..at], "  ", out);
            writeln!(out, "  oneof {name} {{")?;
            choices(of, all, out)?;
            out.push_str("  }\n");
            continue;
        }
        comment(&body[..at], "  ", out);
        let kind = kind.trim_end_matches(',');
        let inner = kind.rsplit('<').next().unwrap_or(kind).trim_end_matches('>');
        let inner = inner.rsplit("::").next().unwrap_or(inner);
        let scalar = attribute.split([',', ' ']).next().unwrap_or_default();
        let wire = match scalar {
            "message" => inner.to_owned(),
            "enumeration" => attribute.split('"').nth(1).unwrap_or_default().to_owned(),
            scalar => scalar.to_owned(),
        };
        let repeated = if attribute.contains("repeated") { "repeated " } else { "" };
        writeln!(
            out,
            "  {repeated}{wire} {} = {};",
            name.trim_start_matches("r#"),
            tag(attribute)?
        )?;
    }
    Ok(())
}

fn choices(of: &str, all: &[&str], out: &mut String) -> Result<(), Failure> {
    let opening = format!("pub enum {of} {{");
    let start = all.iter().position(|line| **line == *opening).ok_or("a choice that is nowhere")?;
    let body: Vec<&str> =
        all[start + 1..].iter().take_while(|line| **line != "}").copied().collect();
    for (at, line) in body.iter().enumerate() {
        if !line.starts_with("#[prost(") {
            continue;
        }
        let variant = body.get(at + 1).copied().unwrap_or_default();
        let (name, kind) = variant.split_once('(').ok_or("a choice without a type")?;
        comment(&body[..at], "    ", out);
        writeln!(out, "    {} {} = {};", kind.trim_end_matches("),"), snake(name), tag(line)?)?;
    }
    Ok(())
}

fn constants(of: &str, body: &[&str], out: &mut String) -> Result<(), Failure> {
    for (at, line) in body.iter().enumerate() {
        if let Some((name, number)) = line.split_once(" = ") {
            comment(&body[..at], "  ", out);
            let name = format!("{}_{}", snake(of), snake(name)).to_uppercase();
            writeln!(out, "  {name} = {};", number.trim_end_matches(','))?;
        }
    }
    Ok(())
}

fn tag(attribute: &str) -> Result<u32, Failure> {
    let rest = attribute.split("tag = \"").nth(1).ok_or("a field without a number")?;
    Ok(rest.split('"').next().unwrap_or_default().parse()?)
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_files_are_what_the_source_says() {
        // E3
        let root = crate::workspace_root();
        assert_eq!(super::check(&root), crate::Complaints::new());
    }
}
