//! The secrets of TLS tickets that several servers share (`ssl_session_ticket_store`): a session is resumed with any of
//! them. The store decides when there is a new one.

use std::time::Duration;

use sekisho_net::tls::{new_ticket_secret, share_ticket_secrets};
use tokio::time::sleep;

use super::redis::Store;
use super::{Health, within};

/// How often the store is asked.
const EVERY: Duration = Duration::from_secs(5);

pub(super) async fn run(url: String, mut health: Health) {
    let mut store = Store::new(&url);
    loop {
        if let Some(candidate) = new_ticket_secret() {
            let result = within(store.ticket_secrets(&candidate)).await;
            match &result {
                Ok(text) => share_ticket_secrets(text),
                Err(_) => store.hang_up(),
            }
            health.note(&result);
        }
        sleep(EVERY).await;
    }
}
