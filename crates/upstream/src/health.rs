//! Active checks of servers: when the next one is due, and what a row of results means. `health_check` with
//! `interval`, `jitter`, `passes`, `fails`, `mandatory`, and what a `match` block says about an answer.

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http::upstream::ResponseHead;
use sekisho_lifecycle::Moment;

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `interval`
    pub interval: Duration,
    /// `jitter`: up to so much is added to each interval.
    pub jitter: Duration,
    /// `passes`: so many in a row make a server healthy.
    pub passes: u32,
    /// `fails`: so many in a row make it unhealthy.
    pub fails: u32,
    /// `mandatory`: a server that was never checked is not asked.
    pub is_mandatory: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            jitter: Duration::ZERO,
            passes: 1,
            fails: 1,
            is_mandatory: false,
        }
    }
}

/// What is thought of a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It may be asked.
    Healthy,
    /// It may not.
    Unhealthy,
}

/// The checks of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    settings: Settings,
    verdict: Verdict,
    /// Results in a row that contradict the verdict.
    against: u32,
    /// When the next check begins; `None` while one runs.
    next: Option<Moment>,
}

impl Health {
    /// Checks that begin now.
    pub const fn new(settings: Settings, now: Moment) -> Self {
        let verdict = if settings.is_mandatory { Verdict::Unhealthy } else { Verdict::Healthy };
        Self { settings, verdict, against: 0, next: Some(now) }
    }

    /// The same for a server of which this is thought already.
    pub const fn with_verdict(settings: Settings, verdict: Verdict, now: Moment) -> Self {
        Self { settings, verdict, against: 0, next: Some(now) }
    }

    /// A check did not come to its end, by no fault of the server: it is made again.
    pub const fn abandoned(&mut self, now: Moment) {
        self.next = Some(now);
    }

    /// What is thought of the server.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// When the next check is due; `None` while one runs.
    pub const fn next_deadline(&self) -> Option<Moment> {
        self.next
    }

    /// Whether a check is to begin now; it runs from then on.
    pub fn begin(&mut self, now: Moment) -> bool {
        self.next.take_if(|next| next.is_due(now)).is_some()
    }

    /// A check has ended. `random` spreads the next ones within `jitter`. A new verdict is returned once.
    pub fn ended(&mut self, is_passed: bool, random: u32, now: Moment) -> Option<Verdict> {
        let jitter = self.settings.jitter.as_nanos() * u128::from(random) / u128::from(u32::MAX);
        let jitter = Duration::from_nanos(u64::try_from(jitter).unwrap_or(u64::MAX));
        self.next = Some(now + self.settings.interval + jitter);
        let (is_against, needed, other) = match self.verdict {
            Verdict::Healthy => (!is_passed, self.settings.fails, Verdict::Unhealthy),
            Verdict::Unhealthy => (is_passed, self.settings.passes, Verdict::Healthy),
        };
        if !is_against {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < needed {
            return None;
        }
        self.against = 0;
        self.verdict = other;
        Some(other)
    }
}

/// What an answer to a check must be: a `match` block without its regular expressions, which the caller
/// tries itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// `status`: ranges of codes.
    pub statuses: Vec<(u16, u16)>,
    /// `status !`: none of them.
    pub is_status_negated: bool,
    /// `header`
    pub headers: Vec<HeaderRule>,
}

/// One `header` line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeaderRule {
    /// `header NAME`
    Present(Box<str>),
    /// `header ! NAME`
    Absent(Box<str>),
    /// `header NAME = VALUE`
    Is(Box<str>, Box<str>),
    /// `header NAME != VALUE`
    IsNot(Box<str>, Box<str>),
}

impl Match {
    /// Whether an answer passes. Without any rule it must be 2xx or 3xx.
    pub fn passes(&self, head: &ResponseHead) -> bool {
        self.passes_status(head.status) && self.headers.iter().all(|rule| rule.passes(head))
    }

    fn passes_status(&self, status: Status) -> bool {
        let code = status.code();
        if self.statuses.is_empty() {
            return !self.headers.is_empty() || (200..400).contains(&code);
        }
        let is_named = self.statuses.iter().any(|(from, to)| (*from..=*to).contains(&code));
        is_named != self.is_status_negated
    }
}

impl HeaderRule {
    fn passes(&self, head: &ResponseHead) -> bool {
        let is = |name: &str, value: &str| {
            head.fields.all(name.as_bytes()).any(|found| found == value.as_bytes())
        };
        match self {
            Self::Present(name) => head.fields.get(name).is_some(),
            Self::Absent(name) => head.fields.get(name).is_none(),
            Self::Is(name, value) => is(name, value),
            Self::IsNot(name, value) => !is(name, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn a_verdict_needs_results_in_a_row() {
        let settings = Settings { passes: 2, fails: 3, ..Settings::default() };
        let mut health = Health::new(settings, seconds(0));
        let rows = [
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(Verdict::Unhealthy)),
            (false, None),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(Verdict::Healthy)),
            (true, None),
        ];
        for (at, (is_passed, change)) in rows.into_iter().enumerate() {
            let now = seconds(5 * at as u64);
            assert_eq!(health.next_deadline(), Some(now));
            assert!(health.begin(now) && !health.begin(now), "one at a time");
            assert_eq!(health.next_deadline(), None);
            assert_eq!(health.ended(is_passed, 0, now), change, "{at}");
        }
    }

    #[test]
    fn a_mandatory_check_comes_before_the_first_request() {
        let settings = Settings { is_mandatory: true, ..Settings::default() };
        let mut health = Health::new(settings, seconds(0));
        assert_eq!(health.verdict(), Verdict::Unhealthy);
        health.begin(seconds(0));
        assert_eq!(health.ended(true, 0, seconds(1)), Some(Verdict::Healthy));
    }

    #[test]
    fn intervals_are_spread() {
        let settings = Settings { jitter: Duration::from_secs(2), ..Settings::default() };
        let mut health = Health::new(settings, seconds(0));
        assert!(!health.begin(Moment::ZERO) || health.ended(true, u32::MAX, seconds(0)).is_none());
        assert_eq!(health.next_deadline(), Some(seconds(7)));
    }

    #[test]
    fn an_answer_passes_by_status_and_fields() {
        let head = |code: u16, fields: &[(&str, &str)]| ResponseHead {
            status: Status::new(code).expect("a status"),
            fields: fields.iter().copied().collect(),
            ..ResponseHead::default()
        };
        let default = Match::default();
        assert!(default.passes(&head(200, &[])) && default.passes(&head(399, &[])));
        assert!(!default.passes(&head(404, &[])) && !default.passes(&head(500, &[])));
        let only = Match { statuses: vec![(200, 200), (300, 302)], ..Match::default() };
        assert!(only.passes(&head(301, &[])) && !only.passes(&head(201, &[])));
        let not = Match { is_status_negated: true, ..only };
        assert!(!not.passes(&head(301, &[])) && not.passes(&head(500, &[])));
        let fields = Match {
            headers: vec![
                HeaderRule::Present("A".into()),
                HeaderRule::Absent("B".into()),
                HeaderRule::Is("C".into(), "x".into()),
                HeaderRule::IsNot("D".into(), "y".into()),
            ],
            ..Match::default()
        };
        assert!(fields.passes(&head(500, &[("a", ""), ("C", "x")])));
        assert!(!fields.passes(&head(200, &[("a", ""), ("C", "x"), ("b", "")])));
        assert!(!fields.passes(&head(200, &[("a", ""), ("C", "x"), ("D", "y")])));
        assert!(!fields.passes(&head(200, &[("C", "x")])));
    }
}
