//! Variables that are looked up: by address (`geo`), by a hash (`split_clients`), in databases of addresses (`geoip2`).

use super::Walk;
use crate::level::{Directive, Fault, Scope};
use crate::map::map_name;
use crate::model::{DatabaseEntry, DatabaseField, Variable};
use crate::parse::Node;
use crate::template::{self, is_name, is_taken};

/// A line of a `geoip2`, its directive, and which database it is about.
type Line<'n> = (Directive<'n>, &'n Node, usize);

impl Walk<'_> {
    /// Gives each `geo` or `split_clients` its place. One that has none is reported and has no place.
    pub(super) fn name_lookups<'n>(
        &mut self,
        directives: Vec<Directive<'n>>,
        variable: fn(u32) -> Variable,
    ) -> Vec<(Directive<'n>, String)> {
        let mut named: Vec<(Directive<'n>, String)> = Vec::new();
        for directive in directives {
            match map_name(&directive, self.scope.names.is_stream) {
                Ok(name) if template::defined(&name, &self.scope.names).is_some() => {
                    let span = directive.args().last().map_or(directive.node.name.span, |w| w.span);
                    self.error(span, format!("the duplicate \"{name}\" variable"));
                }
                Ok(name) => {
                    let variable = variable(named.len() as u32);
                    self.scope.names.lookups.insert(name.clone(), variable);
                    named.push((directive, name));
                }
                Err(fault) => self.fault(directive.node, fault),
            }
        }
        named
    }

    pub(super) fn read_lookups<T>(
        &mut self,
        named: Vec<(Directive<'_>, String)>,
        read: fn(&Directive<'_>, &mut Scope<'_>, String) -> Result<T, Fault>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (directive, name) in named {
            match read(&directive, &mut self.scope, name) {
                Ok(one) => all.push(one),
                Err(fault) => self.fault(directive.node, fault),
            }
        }
        all
    }

    /// Gives the variables of all databases their places.
    pub(super) fn name_databases<'n>(&mut self, directives: Vec<Directive<'n>>) -> Vec<Line<'n>> {
        let mut lines: Vec<Line<'n>> = Vec::new();
        for directive in directives {
            let database = self.http.databases.len();
            let path = self.scope.path_beside_main(&directive.arg(0).text);
            self.http.databases.push(path);
            for line in directive.node.body.as_deref().unwrap_or_default() {
                let word = &line.name;
                let name = word.shown();
                if name == "auto_reload" && line.args.len() == 1 {
                    let message = "\"auto_reload\" is ignored: databases are read at a reload";
                    self.scope.warn(word.span, message);
                    continue;
                }
                let name = name.strip_prefix('$').unwrap_or_default().to_ascii_lowercase();
                if !is_name(&name) {
                    let message = format!("invalid variable name \"{}\"", word.shown());
                    self.error(word.span, message);
                } else if is_taken(&name, self.scope.names.is_stream)
                    || template::defined(&name, &self.scope.names).is_some()
                {
                    self.error(word.span, format!("the duplicate \"{name}\" variable"));
                } else {
                    let variable = Variable::Database(lines.len() as u32);
                    self.scope.names.lookups.insert(name, variable);
                    lines.push((directive, line, database));
                }
            }
        }
        lines
    }

    /// Reads what they are, when all names are known.
    pub(super) fn read_databases(&mut self, lines: Vec<Line<'_>>) {
        for (directive, line, database) in lines {
            match entry(&directive, &self.scope, line, database) {
                Ok(entry) => self.http.database_entries.push(entry),
                Err(fault) => self.fault(line, fault),
            }
        }
    }
}

fn entry(
    d: &Directive<'_>,
    s: &Scope<'_>,
    line: &Node,
    database: usize,
) -> Result<DatabaseEntry, Fault> {
    let (mut default, mut source, mut path) = (Box::default(), None, Vec::new());
    for word in &line.args {
        if let Some(value) = word.text.strip_prefix(b"default=") {
            default = value.into();
        } else if let Some(value) = word.text.strip_prefix(b"source=") {
            source = Some(d.template_of(word, value, s)?);
        } else {
            path.push(d.text(word)?.to_owned());
        }
    }
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let field = match words.as_slice() {
        [] => return Err(Fault::at(&line.name, "no path to a value in the database")),
        ["metadata", "build_epoch"] => DatabaseField::BuildEpoch,
        ["metadata", ..] => {
            let message = "the only \"metadata\" that is supported is \"build_epoch\"";
            return Err(Fault::at(&line.name, message));
        }
        _ => DatabaseField::Path(path),
    };
    Ok(DatabaseEntry { database, default, source, field })
}
