//! What a text must have for an expression to match it: one of a few byte strings, read from the syntax tree. They are
//! compared without regard to the case of ASCII letters, so that case classes such as `[Pp]` count as letters.

use regex_syntax::hir::{Class, Hir, HirKind};

/// A shorter string is in too many texts.
pub(crate) const BYTES_MIN: usize = 3;
/// An expression with more alternatives needs nothing that is worth a search.
const ALTERNATIVES_MAX: usize = 64;

/// Strings in lower case. Each text that matches has one of them.
pub(crate) type Needed = Box<[Box<[u8]>]>;

/// What the expression needs; `None` where that is nothing, or too little to tell texts apart.
pub(crate) fn needed(hir: &Hir) -> Option<Needed> {
    let found = any_of(hir).filter(|found| shortest(found) >= BYTES_MIN)?;
    Some(found.into_iter().map(Vec::into_boxed_slice).collect())
}

fn shortest(texts: &[Vec<u8>]) -> usize {
    texts.iter().map(Vec::len).min().unwrap_or(0)
}

fn any_of(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    if let Some(text) = exact(hir) {
        return Some(vec![text]);
    }
    match hir.kind() {
        HirKind::Capture(capture) => any_of(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => any_of(&repetition.sub),
        HirKind::Concat(parts) => {
            let mut candidates = Vec::new();
            let mut run = Vec::new();
            for part in parts {
                if let Some(text) = exact(part) {
                    run.extend(text);
                } else {
                    candidates.push(vec![std::mem::take(&mut run)]);
                    candidates.extend(any_of(part));
                }
            }
            candidates.push(vec![run]);
            // Of equally long ones, the last: paths and names of hosts differ at their ends.
            candidates.into_iter().max_by_key(|texts| shortest(texts))
        }
        HirKind::Alternation(parts) => {
            let texts: Option<Vec<_>> = parts.iter().map(any_of).collect();
            texts.map(|texts| texts.concat()).filter(|texts| texts.len() <= ALTERNATIVES_MAX)
        }
        _ => None,
    }
}

/// The one string that the expression matches, but for its case.
fn exact(hir: &Hir) -> Option<Vec<u8>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(literal.0.to_ascii_lowercase()),
        HirKind::Capture(capture) => exact(&capture.sub),
        HirKind::Class(Class::Bytes(class)) => match class.ranges() {
            [upper, lower]
                if upper.start() == upper.end()
                    && lower.start() == lower.end()
                    && upper.start().is_ascii_uppercase()
                    && upper.start().to_ascii_lowercase() == lower.start() =>
            {
                Some(vec![lower.start()])
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use regex_syntax::ParserBuilder;

    use super::*;

    #[test]
    fn alternatives_runs_and_case_classes_are_read() {
        let rows: [(&str, Option<&[&str]>); 12] = [
            (r"^/r17/(\d+)$", Some(&["/r17/"])),
            (r"\.(gif|jpe?g|PNG)$", Some(&["gif", "jp", "png"])),
            (r"\.(gif|jpeg|PNG)$", Some(&["gif", "jpeg", "png"])),
            (r"^(?<sub>.+)\.site9\.test$", Some(&[".site9.test"])),
            (r"(?i)\.Php$", Some(&[".php"])),
            (r"a(b)c(d+)e", Some(&["abc"])),
            (r"^/[ab]+$", None),
            (r"(abc|)", None),
            (r"(abc)?d", None),
            (r"(abc)*", None),
            ("ab", None),
            (".*", None),
        ];
        for (source, expected) in rows {
            let hir = ParserBuilder::new().unicode(false).utf8(false).build().parse(source);
            let found = needed(&hir.expect(source));
            let expected = expected.filter(|texts| texts.iter().all(|text| text.len() >= 3));
            let expected: Option<Needed> =
                expected.map(|texts| texts.iter().map(|text| text.as_bytes().into()).collect());
            assert_eq!(found, expected, "{source}");
        }
    }
}
