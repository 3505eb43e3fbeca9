//! What is logged about a start: user, addresses, workers and sandbox.

use sekisho_config::{Level, ListenAddress};
use sekisho_net::Sockets;
use sekisho_net::listen::Shown;
use sekisho_net::site::PRODUCT;

use crate::run::Server;

/// So many addresses are logged, to bound the line.
const ADDRESSES_MAX: usize = 16;

impl Server {
    /// What could not be opened or used as it was meant.
    pub(crate) fn tell_opened(
        &self,
        complaints: &[String],
        notes: &[(Level, String)],
        control_socket_error: Option<&str>,
    ) {
        for complaint in complaints {
            self.log(Level::Warn, &format!("not used: {complaint}"));
        }
        for (level, note) in notes {
            self.log(*level, note);
        }
        if let Some(error) = control_socket_error {
            self.log(Level::Warn, error);
        }
        // Written before anyone is served: these lines are about the end of another process.
        self.logs.flush();
    }

    /// One line when everything is ready.
    pub(crate) fn tell_start(&self) {
        let addresses = shown(&self.sockets.addresses());
        let endpoint = match self.endpoint_sockets.addresses().as_slice() {
            [] => String::new(),
            some => format!(", endpoint on {}", shown(some)),
        };
        let who = self.workers.shared().user.get().map_or_else(
            || format!("uid {}", rustix::process::geteuid().as_raw()),
            |name| format!("user \"{name}\""),
        );
        let workers = match self.workers.count() {
            1 => "1 worker".to_owned(),
            count => format!("{count} workers"),
        };
        let sandbox = self.domain.as_ref().map_or("no sandbox".to_owned(), |domain| {
            format!("sandbox of {} places", domain.place_count())
        });
        let text =
            format!("{PRODUCT} serves on {addresses}{endpoint} as {who}: {workers}, {sandbox}");
        self.log(Level::Notice, &text);
    }
}

impl Server {
    /// Files of Unix sockets that were to go and could not be removed.
    pub(crate) fn tell_files_left(&self, sockets: &Sockets, next: &Sockets) {
        if self.is_replaced {
            return;
        }
        for path in sockets.files_left(next) {
            let (path, who) = (path.display(), self.who());
            let text = format!(
                "unix:{path} cannot be removed{who}: it stays, and a start by root replaces it"
            );
            self.log(Level::Warn, &text);
        }
    }
}

fn shown(addresses: &[ListenAddress]) -> String {
    if addresses.is_empty() {
        return "no address".to_owned();
    }
    let told = addresses.iter().take(ADDRESSES_MAX).map(|address| Shown(address).to_string());
    let told = told.collect::<Vec<_>>().join(", ");
    match addresses.len().saturating_sub(ADDRESSES_MAX) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_some_addresses_and_counts_the_rest() {
        let tcp = |port: u16| ListenAddress::Tcp(([127, 0, 0, 1], port).into());
        let unix = ListenAddress::Unix("/run/x".into());
        assert_eq!(shown(&[]), "no address");
        assert_eq!(shown(&[tcp(80), unix]), "127.0.0.1:80, unix:/run/x");
        let many: Vec<_> = (1..=20).map(tcp).collect();
        assert!(shown(&many).ends_with(":16 and 4 more"), "{}", shown(&many));
    }
}
