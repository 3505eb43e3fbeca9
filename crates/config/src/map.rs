//! `map` blocks: variables whose value depends on another.

use std::collections::HashMap;
use std::sync::Arc;

use crate::level::{Directive, Fault, Scope};
use crate::model::{Map, MapId, MapValue, Part, Pattern, Template, Variable};
use crate::names::{HostKey, host_key, listed_regex_of};
use crate::parse::{Node, Word};
use crate::report::Report;
use crate::template::{is_name, is_taken};

/// The name of the variable that a `map`, `geo` or `split_clients` makes.
pub(crate) fn map_name(d: &Directive<'_>, is_stream: bool) -> Result<String, Fault> {
    let word = d.args().last().unwrap_or(&d.node.name);
    let name = d.text(word)?.strip_prefix('$').unwrap_or_default().to_ascii_lowercase();
    if !is_name(&name) {
        return Err(Fault::at(word, format!("invalid variable name \"{}\"", word.shown()))
            .help(format!("a {} makes a variable: \"$name\"", d.row.name)));
    }
    if is_taken(&name, is_stream) {
        return Err(Fault::at(word, format!("the duplicate \"{name}\" variable"))
            .note("the server itself gives this variable its value".to_owned()));
    }
    Ok(name)
}

/// Reads a `map` whose name is known. Every entry that is wrong is reported.
pub(crate) fn map(d: &Directive<'_>, s: &mut Scope<'_>, name: String) -> Result<Map, Fault> {
    let mut map = Map { name, source: d.template(d.arg(0), s)?, ..Map::default() };
    let entries = d.node.body.as_deref().unwrap_or_default();
    map.hostnames = entries.iter().any(|entry| is_word(entry, b"hostnames"));
    map.is_volatile = entries.iter().any(|entry| is_word(entry, b"volatile"));
    let mut reader = Reader { map, ..Reader::default() };
    for entry in entries {
        if is_word(entry, b"hostnames") || is_word(entry, b"volatile") {
            continue;
        }
        if let Err(fault) = reader.entry(d, s, entry) {
            let report =
                Report::error(s.files, fault.span.unwrap_or(entry.name.span), fault.message);
            let report = fault.note.into_iter().fold(report, Report::note);
            s.reports.push(report.help(fault.help));
        }
    }
    Ok(reader.finish())
}

fn is_word(entry: &Node, word: &[u8]) -> bool {
    entry.args.is_empty() && entry.body.is_none() && *entry.name.text == *word
}

#[derive(Default)]
struct Reader {
    map: Map,
    patterns: Vec<(Arc<Pattern>, Template)>,
    leading: HashMap<Vec<u8>, Template>,
    trailing: HashMap<Vec<u8>, Template>,
    has_default: bool,
    /// Room for a key in lower case.
    key: Vec<u8>,
}

/// A value as it stands in the file.
type Value<'w> = MapValue<Template, &'w [u8]>;

fn template(value: Value<'_>) -> Template {
    match value {
        MapValue::Literal(text) => Template::literal(text),
        MapValue::Template(template) => template,
    }
}

impl Reader {
    fn entry(&mut self, d: &Directive<'_>, s: &Scope<'_>, entry: &Node) -> Result<(), Fault> {
        let [value] = entry.args.as_slice() else {
            return Err(Fault::at(&entry.name, "invalid number of the map parameters")
                .help("each line is a key, a value and \";\"".to_owned()));
        };
        if entry.body.is_some() {
            return Err(Fault::at(&entry.name, "a map has no blocks within"));
        }
        let value = if memchr::memchr(b'$', &value.text).is_some() {
            MapValue::Template(d.template(value, s)?)
        } else {
            MapValue::Literal(&*value.text)
        };
        let word = &entry.name;
        match &*word.text {
            b"default" if self.has_default => {
                Err(Fault::at(word, "duplicate default map parameter"))
            }
            b"default" => {
                self.has_default = true;
                self.map.default = template(value);
                Ok(())
            }
            [b'~', b'*', source @ ..] => self.pattern(listed_regex_of(word, source, true)?, value),
            [b'~', source @ ..] => self.pattern(listed_regex_of(word, source, false)?, value),
            // A backslash takes its meaning from what follows it.
            [b'\\', key @ ..] => self.exact(word, key, value),
            key if self.map.hostnames => self.host(d, word, key, value),
            key => self.exact(word, key, value),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "one of several arms")]
    fn pattern(&mut self, pattern: Arc<Pattern>, value: Value<'_>) -> Result<(), Fault> {
        self.patterns.push((pattern, template(value)));
        Ok(())
    }

    fn exact(&mut self, word: &Word, key: &[u8], value: Value<'_>) -> Result<(), Fault> {
        self.key.clear();
        self.key.extend(key.iter().map(u8::to_ascii_lowercase));
        once(word, !self.map.exact.add(&self.key, value))
    }

    fn host(
        &mut self,
        d: &Directive<'_>,
        word: &Word,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<(), Fault> {
        let Ok(text) = std::str::from_utf8(key) else { return self.exact(word, key, value) };
        let is_double = match host_key(text) {
            Some(HostKey::Exact(name)) => !self.map.exact.add(name.as_bytes(), value),
            Some(HostKey::Leading(name)) => {
                self.leading.insert(name.into_bytes(), template(value)).is_some()
            }
            Some(HostKey::Trailing(name)) => {
                self.trailing.insert(name.into_bytes(), template(value)).is_some()
            }
            Some(HostKey::Both(name)) => {
                let is_double = !self.map.exact.add(name.as_bytes(), value.clone());
                let leading = format!(".{name}").into_bytes();
                self.leading.insert(leading, template(value)).is_some() || is_double
            }
            None => return Err(d.invalid(word, "is not a host name or wildcard")),
        };
        once(word, is_double)
    }

    fn finish(mut self) -> Map {
        let longest_first = |keys: HashMap<Vec<u8>, Template>| {
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
            keys
        };
        self.map.exact.seal();
        self.map.patterns = self.patterns.into();
        self.map.leading = longest_first(self.leading);
        self.map.trailing = longest_first(self.trailing);
        self.map
    }
}

fn once(word: &Word, is_double: bool) -> Result<(), Fault> {
    if is_double {
        Err(Fault::at(word, format!("conflicting parameter \"{}\"", word.shown())))
    } else {
        Ok(())
    }
}

/// A map whose value needs itself, if there is one.
pub(crate) fn cycle(maps: &[Map]) -> Option<MapId> {
    let needs: Vec<Vec<usize>> = maps.iter().map(needed_maps).collect();
    // Maps that need nothing (any more) are taken away until none is left, or only a cycle.
    let mut open: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); maps.len()];
    for (user, needed) in needs.iter().enumerate() {
        for map in needed {
            users[*map].push(user);
        }
    }
    let mut free: Vec<usize> = (0..maps.len()).filter(|map| open[*map] == 0).collect();
    while let Some(map) = free.pop() {
        for &user in &users[map] {
            open[user] -= 1;
            if open[user] == 0 {
                free.push(user);
            }
        }
    }
    open.iter().position(|count| *count > 0).map(|map| MapId(map as u32))
}

impl Map {
    /// What is looked up in it, and its values.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let listed = self.leading.iter().chain(&self.trailing).map(|(_, value)| value);
        let by_pattern = self.patterns.as_slice().iter().map(|(_, value)| value);
        listed.chain(self.exact.templates()).chain(by_pattern).chain([&self.source, &self.default])
    }
}

fn needed_maps(map: &Map) -> Vec<usize> {
    let mut needed: Vec<usize> = map
        .templates()
        .flat_map(|template| &template.parts)
        .filter_map(|part| match part {
            Part::Variable(Variable::Map(id)) => Some(id.0 as usize),
            _ => None,
        })
        .collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}
