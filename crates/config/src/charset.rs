//! `charset_map`, and which one a level needs.

use std::sync::Arc;

use crate::level::{Directive, Fault, Level};
use crate::model::{Charsets, Recode};

/// Reads a `charset_map from to { … }`, which is one for both directions.
pub(crate) fn charset_map(d: &Directive<'_>, charsets: &mut Charsets) -> Result<(), Fault> {
    let (from, to) = (d.text(d.arg(0))?.to_owned(), d.text(d.arg(1))?.to_owned());
    let is_utf8 = |name: &str| name.eq_ignore_ascii_case("utf-8");
    if from.eq_ignore_ascii_case(&to) {
        return Err(Fault::new(format!("\"charset_map\" between the same charsets \"{from}\"")));
    }
    if is_utf8(&from) {
        return Err(d
            .not_built(d.arg(0))
            .note("texts are recoded to utf-8 and between charsets of one byte".to_owned()));
    }
    let bytes_max = if is_utf8(&to) { 4 } else { 1 };
    let mut recode = Recode::new();
    for line in d.node.body.as_deref().unwrap_or_default() {
        let [value] = line.args.as_slice() else {
            return Err(Fault::at(&line.name, "invalid parameters number"));
        };
        let byte = hex(&line.name.text).filter(|bytes| bytes.len() == 1);
        let becomes = hex(&value.text).filter(|bytes| (1..=bytes_max).contains(&bytes.len()));
        match (byte, becomes) {
            (Some(byte), Some(becomes)) => recode.set(byte[0], &becomes),
            (None, _) => {
                return Err(Fault::at(
                    &line.name,
                    format!("invalid value \"{}\"", line.name.shown()),
                ));
            }
            (_, None) => {
                return Err(Fault::at(value, format!("invalid value \"{}\"", value.shown())));
            }
        }
    }
    let reversed = if is_utf8(&to) { recode.reversed_from_utf8() } else { recode.reversed() };
    charsets.map(&from, &to, recode);
    charsets.map(&to, &from, reversed);
    Ok(())
}

/// Hexadecimal digits as bytes.
fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
    let padded = if text.len() % 2 == 1 { format!("0{text}") } else { text.to_owned() };
    let pair = |at: usize| u8::from_str_radix(padded.get(at..at + 2)?, 16).ok();
    (0..padded.len()).step_by(2).map(pair).collect()
}

/// What turns the texts of a level from its `source_charset` into its `charset`: `None` if they are the same,
/// or one is not set. The error is that there is no map between them.
pub(crate) fn recode_of(
    level: &Level,
    charsets: &Charsets,
) -> Result<Option<Arc<Recode>>, (String, String)> {
    let (Some(to), Some(from)) = (&level.settings.charset, &level.settings.source_charset) else {
        return Ok(None);
    };
    if to.eq_ignore_ascii_case(from) {
        return Ok(None);
    }
    if let Some(recode) = charsets.between(from.as_bytes(), to.as_bytes()) {
        return Ok(Some(Arc::clone(recode)));
    }
    Err((from.to_string(), to.to_string()))
}
