//! An address as a QR code in the terminal.

use qrcodegen::{QrCode, QrCodeEcc};

use crate::Problem;

/// What scanners need around a code.
const MARGIN: i32 = 2;

/// Two rows of the code are one line of half blocks, dark on light whatever the terminal's colours are.
pub(super) fn code(text: &str) -> Result<String, Problem> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low)
        .map_err(|error| Problem::new(format_args!("--qr: {error}")))?;
    let end = code.size() + MARGIN;
    let mut out = String::new();
    for y in (-MARGIN..end).step_by(2) {
        out.push_str("\x1b[30;47m");
        for x in -MARGIN..end {
            out.push(match (code.get_module(x, y), code.get_module(x, y + 1)) {
                (false, false) => ' ',
                (true, false) => '\u{2580}',
                (false, true) => '\u{2584}',
                (true, true) => '\u{2588}',
            });
        }
        out.push_str("\x1b[0m\n");
    }
    Ok(out)
}
