//! `slice`: whatever a client asks for, the slices that are asked for come to exactly those bytes, each is asked for once, and
//! an answer that is another one is refused. Also the frame of gzip and the cookies of `userid`: the same however cut,
//! read as they are written.
//!
//! The first byte says how long the resource and a slice are; the rest is a `Range`, a `Content-Range`, a gzip header and a
//! cookie.

use sekisho_filter::gzip::Header;
use sekisho_filter::slice::{ContentRange, Slices, aligned, first_start};
use sekisho_filter::uid::Uid;
use sekisho_http::range::{self, Ranges};

use crate::cuts;

/// Holds all of them to it.
pub fn check(data: &[u8]) {
    let (data, seed) = cuts::split_seed(data);
    let Some((bits, text)) = data.split_first() else { return };
    let complete = u64::from(bits & 31) + 1;
    let size = u64::from(bits >> 5) + 1;
    put_together(text, complete, size);
    if let Some(range) = ContentRange::parse(text) {
        assert!(range.start < range.end && range.complete.is_none_or(|all| range.end <= all));
    }
    let mut seen = None;
    for way in cuts::ways(text, seed) {
        let mut header = Header::default();
        let (mut taken, mut is_over, mut is_wrong) = (0, false, false);
        for piece in way {
            match header.take(piece) {
                Ok((count, over)) => {
                    taken += count;
                    is_over |= over;
                }
                Err(_) => is_wrong = true,
            }
            if is_over || is_wrong {
                break;
            }
        }
        let found = (is_wrong, is_over, if is_over { taken } else { 0 });
        assert_eq!(*seen.get_or_insert(found), found);
    }
    if let Some((uid, _)) = Uid::from_cookie(text, None) {
        let written = uid.cookie(None);
        assert_eq!(Uid::from_cookie(&written, None), Some((uid, true)));
        assert_eq!(written[..21], text[..21], "the last digit has bits that say nothing");
    }
}

fn put_together(asked: &[u8], complete: u64, size: u64) {
    let start = first_start(Some(asked), false, size);
    assert_eq!(start, aligned(start, size));
    if start >= complete {
        // The other server has no such range, and says so.
        return;
    }
    let mut slices = Slices::new(start, size);
    let answer =
        |start: u64| format!("bytes {start}-{}/{complete}", (start + size).min(complete) - 1);
    let other = answer(start).replace("bytes ", "bytes 1");
    assert!(slices.clone().check(Some(other.as_bytes()), None).is_err());
    let (first, all) = slices.check(Some(answer(start).as_bytes()), None).expect("it is right");
    assert_eq!(all, complete);
    let wanted = match range::parse(asked, complete, 1) {
        Ranges::One(range) => range,
        Ranges::Whole | Ranges::Many(_) => 0..complete,
        Ranges::Unsatisfiable => 0..0,
    };
    let mut got = Vec::new();
    let mut take = |slices: &Slices, range: &ContentRange| {
        let count = (range.end - range.start) as usize;
        let part = slices.wanted_of(range.start, count);
        got.extend((range.start + part.start as u64)..(range.start + part.end as u64));
    };
    if slices.want(wanted.clone(), &first) {
        take(&slices, &first);
    }
    let mut asked_for = 0;
    while let Some(next) = slices.next_start() {
        let (range, _) = slices.check(Some(answer(next).as_bytes()), None).expect("it is right");
        take(&slices, &range);
        asked_for += 1;
        assert!(asked_for <= complete, "there is an end");
    }
    assert_eq!(got, wanted.collect::<Vec<_>>(), "{} of {complete} by {size}", asked.escape_ascii());
}
