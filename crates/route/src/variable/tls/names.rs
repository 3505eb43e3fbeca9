//! OpenSSL's names for what clients offer, by IANA's numbers: what `openssl ciphers -V` prints, without those for shared
//! keys (PSK, SRP). A number that is not here is shown as nginx shows it, in hexadecimal digits.

/// Cipher suites, in the order of their numbers.
const CIPHERS: &[(u16, &str)] = &[
    (0x0001, "NULL-MD5"),
    (0x0002, "NULL-SHA"),
    (0x002f, "AES128-SHA"),
    (0x0032, "DHE-DSS-AES128-SHA"),
    (0x0033, "DHE-RSA-AES128-SHA"),
    (0x0034, "ADH-AES128-SHA"),
    (0x0035, "AES256-SHA"),
    (0x0038, "DHE-DSS-AES256-SHA"),
    (0x0039, "DHE-RSA-AES256-SHA"),
    (0x003a, "ADH-AES256-SHA"),
    (0x003b, "NULL-SHA256"),
    (0x003c, "AES128-SHA256"),
    (0x003d, "AES256-SHA256"),
    (0x0040, "DHE-DSS-AES128-SHA256"),
    (0x0041, "CAMELLIA128-SHA"),
    (0x0044, "DHE-DSS-CAMELLIA128-SHA"),
    (0x0045, "DHE-RSA-CAMELLIA128-SHA"),
    (0x0046, "ADH-CAMELLIA128-SHA"),
    (0x0067, "DHE-RSA-AES128-SHA256"),
    (0x006a, "DHE-DSS-AES256-SHA256"),
    (0x006b, "DHE-RSA-AES256-SHA256"),
    (0x006c, "ADH-AES128-SHA256"),
    (0x006d, "ADH-AES256-SHA256"),
    (0x0084, "CAMELLIA256-SHA"),
    (0x0087, "DHE-DSS-CAMELLIA256-SHA"),
    (0x0088, "DHE-RSA-CAMELLIA256-SHA"),
    (0x0089, "ADH-CAMELLIA256-SHA"),
    (0x009c, "AES128-GCM-SHA256"),
    (0x009d, "AES256-GCM-SHA384"),
    (0x009e, "DHE-RSA-AES128-GCM-SHA256"),
    (0x009f, "DHE-RSA-AES256-GCM-SHA384"),
    (0x00a2, "DHE-DSS-AES128-GCM-SHA256"),
    (0x00a3, "DHE-DSS-AES256-GCM-SHA384"),
    (0x00a6, "ADH-AES128-GCM-SHA256"),
    (0x00a7, "ADH-AES256-GCM-SHA384"),
    (0x00ba, "CAMELLIA128-SHA256"),
    (0x00bd, "DHE-DSS-CAMELLIA128-SHA256"),
    (0x00be, "DHE-RSA-CAMELLIA128-SHA256"),
    (0x00bf, "ADH-CAMELLIA128-SHA256"),
    (0x00c0, "CAMELLIA256-SHA256"),
    (0x00c3, "DHE-DSS-CAMELLIA256-SHA256"),
    (0x00c4, "DHE-RSA-CAMELLIA256-SHA256"),
    (0x00c5, "ADH-CAMELLIA256-SHA256"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0xc006, "ECDHE-ECDSA-NULL-SHA"),
    (0xc009, "ECDHE-ECDSA-AES128-SHA"),
    (0xc00a, "ECDHE-ECDSA-AES256-SHA"),
    (0xc010, "ECDHE-RSA-NULL-SHA"),
    (0xc013, "ECDHE-RSA-AES128-SHA"),
    (0xc014, "ECDHE-RSA-AES256-SHA"),
    (0xc015, "AECDH-NULL-SHA"),
    (0xc018, "AECDH-AES128-SHA"),
    (0xc019, "AECDH-AES256-SHA"),
    (0xc023, "ECDHE-ECDSA-AES128-SHA256"),
    (0xc024, "ECDHE-ECDSA-AES256-SHA384"),
    (0xc027, "ECDHE-RSA-AES128-SHA256"),
    (0xc028, "ECDHE-RSA-AES256-SHA384"),
    (0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xc050, "ARIA128-GCM-SHA256"),
    (0xc051, "ARIA256-GCM-SHA384"),
    (0xc052, "DHE-RSA-ARIA128-GCM-SHA256"),
    (0xc053, "DHE-RSA-ARIA256-GCM-SHA384"),
    (0xc056, "DHE-DSS-ARIA128-GCM-SHA256"),
    (0xc057, "DHE-DSS-ARIA256-GCM-SHA384"),
    (0xc05c, "ECDHE-ECDSA-ARIA128-GCM-SHA256"),
    (0xc05d, "ECDHE-ECDSA-ARIA256-GCM-SHA384"),
    (0xc060, "ECDHE-ARIA128-GCM-SHA256"),
    (0xc061, "ECDHE-ARIA256-GCM-SHA384"),
    (0xc072, "ECDHE-ECDSA-CAMELLIA128-SHA256"),
    (0xc073, "ECDHE-ECDSA-CAMELLIA256-SHA384"),
    (0xc076, "ECDHE-RSA-CAMELLIA128-SHA256"),
    (0xc077, "ECDHE-RSA-CAMELLIA256-SHA384"),
    (0xc09c, "AES128-CCM"),
    (0xc09d, "AES256-CCM"),
    (0xc09e, "DHE-RSA-AES128-CCM"),
    (0xc09f, "DHE-RSA-AES256-CCM"),
    (0xc0a0, "AES128-CCM8"),
    (0xc0a1, "AES256-CCM8"),
    (0xc0a2, "DHE-RSA-AES128-CCM8"),
    (0xc0a3, "DHE-RSA-AES256-CCM8"),
    (0xc0ac, "ECDHE-ECDSA-AES128-CCM"),
    (0xc0ad, "ECDHE-ECDSA-AES256-CCM"),
    (0xc0ae, "ECDHE-ECDSA-AES128-CCM8"),
    (0xc0af, "ECDHE-ECDSA-AES256-CCM8"),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xccaa, "DHE-RSA-CHACHA20-POLY1305"),
];

/// Groups, in the order of their numbers.
const GROUPS: &[(u16, &str)] = &[
    (0x0017, "prime256v1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001d, "X25519"),
    (0x001e, "X448"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11eb, "SecP256r1MLKEM768"),
    (0x11ec, "X25519MLKEM768"),
    (0x11ed, "SecP384r1MLKEM1024"),
];

/// `$ssl_ciphers`
pub(super) fn put_ciphers(numbers: &[u16], out: &mut Vec<u8>) {
    put(CIPHERS, numbers, out);
}

/// `$ssl_curves`
pub(super) fn put_groups(numbers: &[u16], out: &mut Vec<u8>) {
    put(GROUPS, numbers, out);
}

fn put(names: &[(u16, &str)], numbers: &[u16], out: &mut Vec<u8>) {
    for (at, number) in numbers.iter().enumerate() {
        if at > 0 {
            out.push(b':');
        }
        match names.binary_search_by_key(number, |row| row.0) {
            Ok(found) => out.extend_from_slice(names[found].1.as_bytes()),
            Err(_) => out.extend_from_slice(format!("0x{number:04x}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_has_its_name_and_what_is_not_its_number() {
        let shown = |put: fn(&[u16], &mut Vec<u8>), numbers: &[u16]| {
            let mut out = Vec::new();
            put(numbers, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            shown(put_ciphers, &[0x1301, 0xc02f, 0x002f, 0x00ff, 0x7a7a]),
            "TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA:0x00ff:0x7a7a"
        );
        assert_eq!(shown(put_groups, &[0x001d, 0x0017, 0x0a0a]), "X25519:prime256v1:0x0a0a");
        assert_eq!(shown(put_groups, &[]), "");
        for names in [CIPHERS, GROUPS] {
            assert!(names.is_sorted_by_key(|row| row.0));
        }
    }
}
