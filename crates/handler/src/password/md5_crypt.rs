//! The MD5 forms of crypt(3): `$1$` and, with another magic string, Apache's `$apr1$`. Old, and still the
//! default of `htpasswd`.

use md5::{Digest, Md5};

/// The longest salt that counts.
const SALT_MAX: usize = 8;
const ROUNDS: usize = 1000;
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The 22 digits after the salt. `magic` is `$1$` or `$apr1$`.
pub(super) fn md5_crypt(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 22] {
    let salt = &salt[..salt.len().min(SALT_MAX)];
    let between =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for part in password.chunks(between.len()) {
        first.update(&between[..part.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        let byte = if length & 1 == 1 { 0 } else { password[0] };
        first.update([byte]);
        length >>= 1;
    }
    let mut digest = first.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        let is_odd = round & 1 == 1;
        next.update(if is_odd { password } else { &digest[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &digest[..] } else { password });
        digest = next.finalize();
    }
    let order = [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)];
    let mut out = [0; 22];
    for (part, (a, b, c)) in out.chunks_mut(4).zip(order) {
        write(u32::from_be_bytes([0, digest[a], digest[b], digest[c]]), part);
    }
    write(u32::from(digest[11]), &mut out[20..]);
    out
}

fn write(mut bits: u32, out: &mut [u8]) {
    for digit in out {
        *digit = DIGITS[(bits & 63) as usize];
        bits >>= 6;
    }
}
