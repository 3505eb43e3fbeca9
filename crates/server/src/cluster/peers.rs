//! The nodes that were heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use sekisho_lifecycle::Moment;

use super::message::Announcement;

/// How often a node says that it is there.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// A node that was heard of within this time is waited for: it announced itself twice since.
pub(super) const EXPECT_WITHIN: Duration = Duration::from_secs(12);
/// A node that was not heard of for so long is forgotten: an operator has looked by then.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// More names than this are no cluster of ours.
pub(super) const PEERS_MAX: usize = 10_000;

/// More processes of one name than this are not told apart.
const PROCESSES_MAX: usize = 8;

/// Who was heard of, and when.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The processes of a node: one, but for a moment, or where two servers have one name.
    heard: BTreeMap<String, BTreeMap<String, Moment>>,
}

impl Peers {
    /// Takes note of an announcement; whether the process was not known before.
    pub(super) fn hear(&mut self, of: &Announcement, now: Moment) -> bool {
        self.heard.retain(|_, all| {
            all.retain(|_, at| now.since(*at) < FORGET_AFTER);
            !all.is_empty()
        });
        if of.is_leaving {
            self.leave(of, now);
            return false;
        }
        if self.heard.len() >= PEERS_MAX && !self.heard.contains_key(&of.node) {
            return false;
        }
        let processes = self.heard.entry(of.node.clone()).or_default();
        if processes.len() >= PROCESSES_MAX && !processes.contains_key(&of.instance) {
            let oldest = processes.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.map(|(instance, _)| instance.clone());
            oldest.and_then(|instance| processes.remove(&instance));
        }
        processes.insert(of.instance.clone(), now).is_none()
    }

    /// A process leaves. Another one of this name that was heard of just now does not leave with it; one that was
    /// not is of the past.
    fn leave(&mut self, of: &Announcement, now: Moment) {
        let Some(processes) = self.heard.get_mut(&of.node) else { return };
        processes.remove(&of.instance);
        processes.retain(|_, at| now.since(*at) < EXPECT_WITHIN);
        if processes.is_empty() {
            self.heard.remove(&of.node);
        }
    }

    /// All of them, with how long ago they were heard of.
    pub(super) fn all(&self, now: Moment) -> impl Iterator<Item = (&str, Duration)> {
        let heard = self.heard.iter().filter_map(move |(node, processes)| {
            let latest = processes.values().max()?;
            Some((node.as_str(), now.since(*latest)))
        });
        heard.filter(|(_, ago)| *ago < FORGET_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(node: &str, instance: &str, is_leaving: bool) -> Announcement {
        Announcement { node: node.to_owned(), instance: instance.to_owned(), is_leaving }
    }

    #[test]
    fn a_process_that_leaves_takes_no_other_of_its_name_with_it() {
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        let known = |peers: &Peers, now| peers.all(now).count();
        let mut peers = Peers::default();
        assert!(peers.hear(&by("b", "real", false), at(0)));
        assert!(peers.hear(&by("b", "copy", false), at(3)), "it is another process");
        assert!(!peers.hear(&by("b", "real", false), at(5)));
        peers.hear(&by("b", "copy", true), at(6));
        assert_eq!(known(&peers, at(60)), 1, "killed now, it is silent");
        // What was killed and started again leaves with its last process.
        peers.hear(&by("b", "next", false), at(20));
        peers.hear(&by("b", "next", true), at(30));
        assert_eq!(known(&peers, at(31)), 0);
        for number in 0..100 {
            peers.hear(&by("b", &number.to_string(), false), at(40));
        }
        assert_eq!(peers.heard["b"].len(), PROCESSES_MAX);
    }

    #[test]
    fn nodes_are_known_until_they_leave_or_are_silent_for_long() {
        let mut peers = Peers::default();
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        let say = |node: &str, is_leaving| by(node, "1", is_leaving);
        peers.hear(&say("a", false), at(0));
        peers.hear(&say("b", false), at(1));
        peers.hear(&say("c", false), at(2));
        peers.hear(&say("b", true), at(3));
        let known = |peers: &Peers, now| {
            let all = peers.all(now).map(|(node, ago)| format!("{node} {}", ago.as_secs()));
            all.collect::<Vec<_>>()
        };
        assert_eq!(known(&peers, at(10)), ["a 10", "c 8"]);
        assert_eq!(known(&peers, at(601)), ["c 599"]);
        peers.hear(&say("d", false), at(700));
        assert_eq!(known(&peers, at(700)), ["d 0"]);
    }
}
