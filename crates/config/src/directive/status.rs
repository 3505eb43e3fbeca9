//! Pages about the server itself.

use super::{Row, SERVER_LOCATION, active};
use crate::model::StatusForm;

pub(super) const ROWS: &[Row] = &[
    active(
        "status",
        SERVER_LOCATION,
        "page|prometheus|health [ready|live]",
        "",
        "Shows the state of the server (ours): a live page for people, metrics for Prometheus, or the answer to a health probe: 200, or 503 while the server drains (`live` is 200 as long as it answers). Restrict it with `allow` and `deny`",
        |l, d, _| {
            let second = d.args().get(1).map(|word| &*word.text);
            l.settings.status = Some(match (&*d.arg(0).text, second) {
                (b"page", None) => StatusForm::Page,
                (b"prometheus", None) => StatusForm::Prometheus,
                (b"health", None | Some(b"ready")) => StatusForm::Ready,
                (b"health", Some(b"live")) => StatusForm::Live,
                (b"health", Some(_)) => {
                    return Err(d.invalid(d.arg(1), "must be \"ready\" or \"live\""));
                }
                (b"page" | b"prometheus", Some(_)) => {
                    return Err(d.invalid(d.arg(1), "only \"health\" takes a second word"));
                }
                _ => {
                    let expected = "must be \"page\", \"prometheus\" or \"health\"";
                    return Err(d.invalid(d.arg(0), expected));
                }
            });
            Ok(())
        },
    ),
    active("stub_status", SERVER_LOCATION, "[word]", "", "Shows nginx's counters", |l, _, _| {
        l.settings.status = Some(StatusForm::Counts);
        Ok(())
    }),
];
