//! The reference of all directives, written from the table.

use std::fmt::Write as _;

use crate::directive::{Body, GROUPS, Row, Status};
use crate::template::known_names;

/// The text of `docs/directives.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "<!-- Written from the table in crates/config/src/directive.rs: change it there. -->\n\n\
         # Directives\n\n\
         The language is nginx's, and so are the meanings unless a line says otherwise. Directives marked *ours* \
         are not in nginx. Times take `ms`, `s`, `m`, `h`, `d`, `w`, `M`, `y` and combinations (`1h30m`); for a \
         deadline `0` and `off` mean none. Sizes take `k`, `m`, `g`.\n\n\
         A directive applies to its block and to all blocks in it (`http`, `server`, `location`), unless they set it again. \
         Directives that may be repeated replace all inherited ones as soon as a block has one of them.\n",
    );
    for (title, rows) in GROUPS {
        _ = write!(out, "\n## {title}\n\n");
        if rows.iter().any(|row| row.status == Status::Active) {
            rows.iter().for_each(|row| full(row, &mut out));
        } else {
            short(rows, &mut out);
        }
    }
    out.push_str("\n## Variables\n\n");
    let names: Vec<_> = known_names(false).map(|name| format!("`${name}`")).collect();
    _ = writeln!(
        out,
        "{}; `$arg_NAME`, `$cookie_NAME`, `$http_NAME`, `$sent_http_NAME`; `$1` to `$9` and named groups of regular \
         expressions; what `set`, `map`, `geo` and `split_clients` define.",
        names.join(", ")
    );
    let names: Vec<_> = known_names(true).map(|name| format!("`${name}`")).collect();
    _ = writeln!(out, "\nIn `stream`: {}.", names.join(", "));
    out
}

/// The text of `sekisho.conf(5)`.
pub fn man() -> String {
    let mut out = String::from(
        ".TH SEKISHO.CONF 5 \"\" \"Sekisho\" \"File formats\"\n\
         .SH NAME\nsekisho.conf \\- configuration of the Sekisho web server\n\
         .SH SYNOPSIS\n/etc/sekisho/sekisho.conf\n\
         .SH DESCRIPTION\n\
         The language is that of nginx: directives that end with a semicolon, and blocks in braces. Test a file with\n\
         .BR \"sekisho \\-t \\-c \" FILE .\n\
         .PP\n\
         Times take ms, s, m, h, d, w, M, y and combinations (1h30m); for a deadline 0 and off mean none. Sizes take k, m, g.\n",
    );
    for (title, rows) in
        GROUPS.iter().filter(|(_, rows)| rows.iter().any(|row| row.status == Status::Active))
    {
        _ = writeln!(out, ".SH \"{}\"", roff(&title.to_uppercase()));
        for row in rows.iter().filter(|row| row.status == Status::Active) {
            let end = if row.body == Body::None { ";" } else { " { ... }" };
            let form = if row.form.is_empty() { String::new() } else { format!(" {}", row.form) };
            _ = write!(
                out,
                ".TP\n\\fB{}\\fR\\fI{}\\fR{}\n{}.\n",
                roff(row.name),
                roff(&form),
                roff(end),
                roff(row.doc)
            );
            if !row.default.is_empty() && row.body != Body::Entries {
                _ = writeln!(out, ".br\nDefault: {}", roff(row.default));
            }
            _ = writeln!(out, ".br\nContext: {}", roff(&row.contexts.names().replace('`', "")));
        }
    }
    out.push_str(".SH SEE ALSO\n.BR sekisho (1)\n");
    out
}

/// Text that means nothing to roff.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn full(row: &Row, out: &mut String) {
    let form = if row.form.is_empty() { String::new() } else { format!(" {}", row.form) };
    let end = if row.body == Body::None { ";" } else { " { … }" };
    _ = write!(out, "### {}\n\n{}.\n\n- Syntax: `{}{form}{end}`\n", row.name, row.doc, row.name);
    match (row.default, row.body) {
        ("", _) => {}
        (_, Body::Entries) => out.push_str("- Default: a built-in table of common types\n"),
        (default, _) => _ = writeln!(out, "- Default: `{} {default};`", row.name),
    }
    _ = write!(out, "- Context: {}\n\n", row.contexts.names());
}

fn short(rows: &[Row], out: &mut String) {
    let is_error = rows.iter().all(|row| row.status == Status::NotBuilt);
    out.push_str(if is_error {
        "Each of these is an error: to ignore it would change what the configuration means. With `off` it is accepted.\n\n"
    } else {
        "nginx has these, and ignoring them is harmless. Those marked *warns* are named in a warning.\n\n"
    });
    out.push_str("| Directive | Description |\n|---|---|\n");
    for row in rows {
        let mark = if row.status == Status::Warned { " *(warns)*" } else { "" };
        _ = writeln!(out, "| `{}` | {}{mark} |", row.name, row.doc);
    }
}
