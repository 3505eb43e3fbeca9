//! Variables whose names are not known before: those that a page asks for (`ssi`).

use std::cell::Cell;

use sekisho_config::Variable;
use sekisho_config::template::variable;

use super::{NESTED_MAX, Scope, Sent, argument};
use crate::route_state::{Request, RouteState};
use crate::table::Table;

/// The value of the variable of this name; `None` where it has none.
pub fn named_variable(
    name: &[u8],
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
    sent: Option<&Sent<'_>>,
) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let variable = variable(name, &table.config().http.names).ok()?;
    let nested = Cell::new(NESTED_MAX);
    let captures = &route_state.captures;
    let scope = Scope { table, request, route_state, sent, captures, nested: &nested };
    let mut value = Vec::new();
    scope.variable(&variable, &mut value);
    (!value.is_empty() || scope.is_empty_value(&variable)).then_some(value)
}

impl Scope<'_> {
    /// Whether a variable that comes to nothing is there, and empty.
    fn is_empty_value(&self, variable: &Variable) -> bool {
        match variable {
            Variable::Arg(name) => argument(&self.route_state.query, name.as_bytes()).is_some(),
            Variable::Assigned(id) => self.route_state.assigned.value(id.0).is_some(),
            Variable::Cookie(name) => self.cookie(name.as_bytes()).is_some(),
            Variable::Http(name) => self.request.head.named(name.as_bytes()).is_some(),
            Variable::Map(_) | Variable::Geo(_) | Variable::Split(_) => true,
            _ => false,
        }
    }
}
