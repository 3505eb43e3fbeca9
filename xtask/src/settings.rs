//! Settings that are not read: a field of the configuration's model (`crates/config/src/model`) that no
//! shipped code outside `config` looks at is a directive that is accepted and does nothing. Known ones are in
//! a list, each with its reason; an entry of the list that is read by now must be removed.

use std::path::Path;

use crate::Complaints;
use crate::source::{self, Source};

/// Fields that are not read yet, and why.
const UNREAD: &[(&str, &str)] = &[];
/// Crates whose code is not part of the server, and the one that makes the settings.
const OTHERS: [&str; 4] = ["crates/config/", "crates/properties/", "crates/testkit/", "xtask/"];

/// Checks every field of the model.
pub(crate) fn check(root: &Path) -> Complaints {
    check_sources(&source::read_all(root), UNREAD)
}

fn check_sources(sources: &[Source], unread: &[(&str, &str)]) -> Complaints {
    let is_other = |source: &&Source| !OTHERS.iter().any(|other| source.path.starts_with(other));
    let readers: Vec<&Source> = sources.iter().filter(is_other).collect();
    let is_model = |source: &&Source| source.path.starts_with("crates/config/src/model");
    let model: Vec<&Source> = sources.iter().filter(is_model).collect();
    let is_read = |field: &str| {
        let is_read = |(_, line): (usize, &str)| reads(line, field);
        // What the model's own methods read is read by their callers.
        let by_method = |(_, line): (usize, &str)| line.contains("self.") && reads(line, field);
        readers.iter().any(|source| source.shipped_code().any(is_read))
            || model.iter().any(|source| source.shipped_code().any(by_method))
    };
    let mut complaints = Complaints::new();
    let fields: Vec<(&str, usize, &str)> =
        model.iter().flat_map(|source| fields_of(source)).collect();
    for (path, line, field) in &fields {
        let is_listed = unread.iter().any(|(name, _)| name == field);
        match (is_read(field), is_listed) {
            (false, false) => complaints.push(format!(
                "{path}:{line}: no code outside config reads `{field}`: a setting that does nothing"
            )),
            (true, true) => complaints.push(format!(
                "{path}:{line}: `{field}` is read by now: take it from the list in xtask/src/settings.rs"
            )),
            _ => {}
        }
    }
    for (name, _) in unread.iter().filter(|(name, _)| !fields.iter().any(|field| field.2 == *name))
    {
        complaints.push(format!("xtask/src/settings.rs: the model has no field `{name}`"));
    }
    complaints
}

/// The public fields of the structures in a file: path, line and name.
fn fields_of(source: &Source) -> impl Iterator<Item = (&str, usize, &str)> {
    source.shipped_code().filter_map(|(at, line)| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let (name, kind) = rest.split_once(": ")?;
        let is_name = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        (is_name && kind.ends_with(',')).then_some((source.path.as_str(), at + 1, name))
    })
}

/// Whether a line looks at a field: `.field` that is no call, or `field` taken out of a structure by its name.
fn reads(line: &str, field: &str) -> bool {
    let is_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    line.match_indices(field).any(|(at, _)| {
        let before = line[..at].trim_end().as_bytes().last();
        let touches = line.as_bytes()[..at].last().is_some_and(is_name);
        let behind = &line.as_bytes()[at + field.len()..];
        if touches || behind.first().is_some_and(is_name) {
            return false;
        }
        match before {
            Some(b'.') => behind.first() != Some(&b'('),
            // `let Settings { field, .. }`, and a pattern over several lines.
            Some(b'{' | b',') | None => matches!(behind.first(), Some(b',' | b' ' | b':')),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(reader: &str, unread: &[(&str, &str)]) -> Complaints {
        let model = "pub struct Settings {\n    /// One.\n    pub one: bool,\n}\n";
        let sources = [
            Source::new("crates/config/src/model.rs".into(), model.into()),
            Source::new(
                "crates/config/src/level.rs".into(),
                "fn f() { settings.one = true; }".into(),
            ),
            Source::new("crates/net/src/a.rs".into(), reader.into()),
        ];
        check_sources(&sources, unread)
    }

    #[test]
    fn a_field_that_nobody_reads_is_complained_about() {
        assert!(complaints("fn f() { if settings.one {} }", &[]).is_empty());
        assert!(complaints("fn f() { let Settings { one, .. } = settings; }", &[]).is_empty());
        for reader in [
            "",
            "fn f() { settings.one(); settings.one_more; someone.x }",
            "// settings.one",
            "#[cfg(test)]\nmod tests { fn f() { settings.one } }",
        ] {
            let found = complaints(reader, &[]);
            assert!(found.len() == 1 && found[0].contains("model.rs:3: no code"), "{found:?}");
        }
    }

    #[test]
    fn the_list_excuses_what_is_unread_and_nothing_else() {
        assert!(complaints("", &[("one", "later")]).is_empty());
        assert!(complaints("settings.one", &[("one", "later")])[0].contains("is read by now"));
        assert!(complaints("settings.one", &[("two", "later")])[0].contains("no field `two`"));
    }
}
