//! Pages about the server itself, and services.

use super::{LOCATION, Row, SERVER_LOCATION, active};
use crate::model::StatusForm;
use crate::report::did_you_mean;

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
    active(
        "service",
        LOCATION,
        "name",
        "",
        "A service of this program answers (ours), over HTTP and gRPC as over native sessions. The server itself has `echo`; a program that embeds it has its own",
        |l, d, s| {
            let name = d.text(d.arg(0))?;
            if !s.options.services.iter().any(|known| known == name) {
                let fault = d.invalid(d.arg(0), "is not a service of this program");
                let known = s.options.services.iter().map(String::as_str);
                return Err(fault.help(did_you_mean(name, known)));
            }
            super::forward::only_one(l)?;
            l.settings.service = Some(name.into());
            Ok(())
        },
    ),
    active("stub_status", SERVER_LOCATION, "[word]", "", "Shows nginx's counters", |l, _, _| {
        l.settings.status = Some(StatusForm::Counts);
        Ok(())
    }),
    active("empty_gif", LOCATION, "", "", "Answers with a transparent pixel", |l, _, _| {
        l.settings.status = Some(StatusForm::Pixel);
        Ok(())
    }),
];
