//! Many random worlds.

use proptest::prelude::*;

use crate::world;

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// L5, L9, L28, L31, L32, E3, E4: however the network cuts and delays, each request gets one answer, each
    /// record comes once and in order, no window is exceeded, and everything is released at the end.
    #[test]
    fn whatever_the_network_does_nothing_is_lost_doubled_or_kept(
        script in proptest::collection::vec(any::<u8>(), 0..1200)
    ) {
        // A greeting first in most worlds, so that something happens.
        let mut whole = vec![0, 255, 3, 255];
        if script.first().is_some_and(|first| first.is_multiple_of(8)) {
            whole.clear();
        }
        whole.extend(script);
        world::check(&whole);
    }
}
