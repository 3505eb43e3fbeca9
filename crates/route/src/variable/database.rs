//! Variables of `geoip2`.

use sekisho_config::DatabaseField;

use super::{Scope, push_number};

impl Scope<'_> {
    /// What a database says, or the value for where it says nothing.
    pub(super) fn push_from_database(&self, at: u32, out: &mut Vec<u8>) {
        let entry = self.table.config().http.database_entries.get(at as usize);
        let Some(entry) = entry else { return };
        let Some(database) = self.table.databases().get(entry.database) else {
            return out.extend_from_slice(&entry.default);
        };
        let path = match &entry.field {
            DatabaseField::Path(path) => path,
            DatabaseField::BuildEpoch => return push_number(database.build_epoch(), out),
        };
        let address = match &entry.source {
            None => self.route_state.client(self.request.connection).map(|client| client.ip()),
            Some(template) => {
                let mut text = Vec::new();
                self.nested(template, &mut text);
                std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok())
            }
        };
        let is_there = address.is_some_and(|address| database.push(address, path, out));
        if !is_there {
            out.extend_from_slice(&entry.default);
        }
    }
}
