//! Pages about the server itself.

use super::{Row, SERVER_LOCATION, active};
use crate::model::StatusForm;

pub(super) const ROWS: &[Row] = &[
    active(
        "status",
        SERVER_LOCATION,
        "page|prometheus",
        "",
        "Shows the state of the server (ours): a live page for people, or metrics for Prometheus. Restrict it with `allow` and `deny`",
        |l, d, _| {
            l.settings.status = Some(match &*d.arg(0).text {
                b"page" => StatusForm::Page,
                b"prometheus" => StatusForm::Prometheus,
                _ => return Err(d.invalid(d.arg(0), "must be \"page\" or \"prometheus\"")),
            });
            Ok(())
        },
    ),
    active("stub_status", SERVER_LOCATION, "[word]", "", "Shows nginx's counters", |l, _, _| {
        l.settings.status = Some(StatusForm::Counts);
        Ok(())
    }),
];
