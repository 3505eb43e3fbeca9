//! The nodes that were heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use sekisho_lifecycle::Moment;

use super::message::Announcement;

/// How often a node says that it is there.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// A node that was not heard of for so long is forgotten: an operator has looked by then.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// More names than this are no cluster of ours.
pub(super) const PEERS_MAX: usize = 10_000;

/// Who was heard of, and when.
#[derive(Debug, Default)]
pub(super) struct Peers {
    heard: BTreeMap<String, Moment>,
}

impl Peers {
    /// Takes note of an announcement.
    pub(super) fn hear(&mut self, of: &Announcement, now: Moment) {
        self.heard.retain(|_, at| now.since(*at) < FORGET_AFTER);
        if of.is_leaving {
            self.heard.remove(&of.node);
        } else if self.heard.len() < PEERS_MAX || self.heard.contains_key(&of.node) {
            self.heard.insert(of.node.clone(), now);
        }
    }

    /// All of them, with how long ago they were heard of.
    pub(super) fn all(&self, now: Moment) -> impl Iterator<Item = (&str, Duration)> {
        let heard = self.heard.iter().map(move |(node, at)| (node.as_str(), now.since(*at)));
        heard.filter(|(_, ago)| *ago < FORGET_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_until_they_leave_or_are_silent_for_long() {
        let mut peers = Peers::default();
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        let say = |node: &str, is_leaving| Announcement {
            node: node.to_owned(),
            instance: "1".to_owned(),
            is_leaving,
        };
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
