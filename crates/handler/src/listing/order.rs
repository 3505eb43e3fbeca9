//! The order of a listing: folders first, then by name, size or time. Names are compared as
//! people count: `file2` comes before `file10`.

use std::cmp::Ordering;

use super::entry::Entry;

/// What a listing is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// As people count.
    Name,
    /// By the bytes of the name: nginx's order.
    Bytes,
    Size,
    Time,
}

/// The order of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SortOrder {
    pub(super) by: By,
    pub(super) is_descending: bool,
}

impl SortOrder {
    /// What the query of an address asks for (`sort=name|size|time`, `order=asc|desc`); `otherwise` where
    /// it does not say.
    pub(super) fn asked_for(query: &[u8], otherwise: By) -> Self {
        let by = match argument(query, b"sort") {
            Some(b"name") => By::Name,
            Some(b"size") => By::Size,
            Some(b"time") => By::Time,
            _ => otherwise,
        };
        Self { by, is_descending: argument(query, b"order") == Some(b"desc") }
    }

    /// Whether sizes and times must be known before anything is in order.
    pub(super) fn needs_facts(self) -> bool {
        matches!(self.by, By::Size | By::Time)
    }

    /// Which of two entries comes first.
    pub(super) fn compare(self, a: (&Entry, &[u8]), b: (&Entry, &[u8])) -> Ordering {
        let folders_first = b.0.is_folder.cmp(&a.0.is_folder);
        folders_first.then_with(|| {
            let order = match self.by {
                By::Bytes => a.1.cmp(b.1),
                By::Name => natural(a.1, b.1),
                By::Size => a.0.facts.size.cmp(&b.0.facts.size),
                By::Time => a.0.facts.modified.cmp(&b.0.facts.modified),
            };
            let order = if self.is_descending { order.reverse() } else { order };
            order.then_with(|| natural(a.1, b.1))
        })
    }
}

/// The raw value of an argument of a query.
pub(super) fn argument<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    arguments(query, name).next()
}

/// The values of all arguments of this name.
pub(super) fn arguments<'q>(query: &'q [u8], name: &[u8]) -> impl Iterator<Item = &'q [u8]> {
    let pairs = query.split(|byte| *byte == b'&');
    pairs.filter_map(move |pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

/// A value as a form means it: `+` is a space, `%41` a byte. What is no such escape stands for itself.
pub(super) fn decoded(value: &[u8]) -> Vec<u8> {
    let digit = |at: usize| char::from(*value.get(at)?).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(value.len());
    let mut at = 0;
    while at < value.len() {
        match (value[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Compares names as people count: runs of digits by their value, letters without regard to their case;
/// what is equal then, by its bytes. A total order: each name is a sequence of tokens, a number standing
/// where its digits stand.
pub(super) fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    loop {
        let (Some(&one), Some(&other)) = (rest_a.first(), rest_b.first()) else {
            return rest_a.len().cmp(&rest_b.len()).then_with(|| a.cmp(b));
        };
        let order = if one.is_ascii_digit() && other.is_ascii_digit() {
            let (number, after) = split_number(rest_a);
            let (other_number, other_after) = split_number(rest_b);
            (rest_a, rest_b) = (after, other_after);
            number.len().cmp(&other_number.len()).then_with(|| number.cmp(other_number))
        } else {
            (rest_a, rest_b) = (&rest_a[1..], &rest_b[1..]);
            place_of(one).cmp(&place_of(other))
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn place_of(byte: u8) -> u8 {
    if byte.is_ascii_digit() { b'0' } else { byte.to_ascii_lowercase() }
}

/// The digits at the front without leading zeros, and what follows.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F4: names stand as people count.
    #[test]
    fn names_are_in_natural_order() {
        let sorted = [
            " x",
            "-",
            "0",
            "1",
            "1a",
            "01b",
            "2",
            "10",
            "a",
            "B",
            "b1",
            "file",
            "file1",
            "file02",
            "file2",
            "file2.txt",
            "file10",
            "file10a2",
            "file10a10",
            "x-1",
            "x1",
            "xa",
            "z",
            "é",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                let found = natural(a.as_bytes(), b.as_bytes());
                assert_eq!(found, at.cmp(&other), "{a:?} against {b:?}");
            }
        }
    }

    /// A sort panics on an order that contradicts itself: every three names of a small alphabet agree.
    #[test]
    fn the_natural_order_is_total() {
        let alphabet = [b'0', b'1', b'a', b'A', b'-'];
        let mut names = vec![Vec::new()];
        for length in 1..4_u32 {
            for number in 0..alphabet.len().pow(length) {
                let digit = |place: u32| number / alphabet.len().pow(place) % alphabet.len();
                names.push((0..length).map(|place| alphabet[digit(place)]).collect());
            }
        }
        names.sort_by(|a, b| natural(a, b));
        for (at, a) in names.iter().enumerate() {
            for (other, b) in names.iter().enumerate() {
                assert_eq!(natural(a, b), at.cmp(&other), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn values_of_a_query_are_decoded() {
        for (value, expected) in
            [("a+b%20c", "a b c"), ("%C3%bc", "ü"), ("%4", "%4"), ("%zz%", "%zz%"), ("", "")]
        {
            assert_eq!(decoded(value.as_bytes()), expected.as_bytes(), "{value}");
        }
        let names: Vec<_> = arguments(b"name=a&x=1&name=b&names=c", b"name").collect();
        assert_eq!(names, [b"a", b"b"]);
    }

    #[test]
    fn the_query_says_the_order() {
        let asked = |query: &[u8]| SortOrder::asked_for(query, By::Bytes);
        let order = |by, is_descending| SortOrder { by, is_descending };
        assert_eq!(asked(b""), order(By::Bytes, false));
        assert_eq!(asked(b"sort=size"), order(By::Size, false));
        assert_eq!(asked(b"x=1&sort=time&order=desc"), order(By::Time, true));
        assert_eq!(asked(b"sort=nothing&order=DESC"), order(By::Bytes, false));
        assert_eq!(asked(b"xsort=size&sort"), order(By::Bytes, false));
    }
}
