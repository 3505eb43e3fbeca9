//! OpenSSL's words for cipher suites and groups, mapped to those that exist here: AEAD suites with an ephemeral
//! key exchange, and elliptic curves (with ML-KEM beside one). Numbers are IANA's.

/// The result of a list of names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chosen {
    /// IANA numbers, the preferred ones first.
    pub(crate) suites: Vec<u16>,
    /// Names that are unknown here.
    pub(crate) unknown: Vec<String>,
}

/// A suite of TLS 1.2: its number, its name, and the words of OpenSSL that include it.
const TLS12: [(u16, &str, &[&str]); 6] = [
    (
        0xc02c,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        &["ECDSA", "aECDSA", "AESGCM", "AES", "AES256", "SHA384"],
    ),
    (
        0xc02b,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        &["ECDSA", "aECDSA", "AESGCM", "AES", "AES128", "SHA256"],
    ),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305", &["ECDSA", "aECDSA", "CHACHA20"]),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384", &["aRSA", "AESGCM", "AES", "AES256", "SHA384"]),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", &["aRSA", "AESGCM", "AES", "AES128", "SHA256"]),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305", &["aRSA", "CHACHA20"]),
];
/// Words that include all of them.
const ALL: [&str; 14] = [
    "ALL",
    "DEFAULT",
    "HIGH",
    "ECDHE",
    "EECDH",
    "kEECDH",
    "kECDHE",
    "ECDH",
    "TLSv1.2",
    "FIPS",
    "SUITEB128",
    "COMPLEMENTOFDEFAULT",
    "COMPLEMENTOFALL",
    "AEAD",
];
/// Names of OpenSSL for what does not exist here: ignored without a warning.
const NONE: [&str; 42] = [
    "aNULL", "eNULL", "NULL", "MD5", "RC4", "DES", "3DES", "EXP", "EXPORT", "LOW", "MEDIUM", "PSK",
    "kPSK", "SRP", "DSS", "aDSS", "ADH", "AECDH", "CAMELLIA", "SEED", "IDEA", "ARIA", "SHA",
    "SHA1", "RSA", "kRSA", "DH", "kDH", "kDHr", "kDHd", "kEDH", "EDH", "DHE", "kDHE", "CBC",
    "SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "kECDH", "AESCCM", "AESCCM8",
];

/// The suites of TLS 1.2 that a list of OpenSSL's means.
pub(crate) fn tls12(list: &str) -> Chosen {
    let mut chosen = Chosen::default();
    let mut killed = Vec::new();
    for token in list.split([':', ',', ' ', ';']).filter(|token| !token.is_empty()) {
        let (sign, words) = match token.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &token[1..]),
            // `@STRENGTH` and `@SECLEVEL`: they are all strong.
            b'@' => continue,
            _ => (b' ', token),
        };
        let words: Vec<&str> = words.split('+').collect();
        let meant = |(_, name, kinds): &(u16, &str, &[&str])| {
            words.iter().all(|word| name == word || ALL.contains(word) || kinds.contains(word))
        };
        let found: Vec<u16> = TLS12.iter().filter(|it| meant(it)).map(|it| it.0).collect();
        let is_known = |word: &&str| {
            ALL.contains(word)
                || NONE.contains(word)
                || TLS12.iter().any(|(_, name, kinds)| name == word || kinds.contains(word))
                || tls13_number(word).is_some()
        };
        if found.is_empty() && sign == b' ' && !words.iter().all(is_known) {
            chosen.unknown.push(token.to_owned());
        }
        match sign {
            b'!' | b'-' => {
                chosen.suites.retain(|suite| !found.contains(suite));
                if sign == b'!' {
                    killed.extend(found);
                }
            }
            // Moves them to the end.
            b'+' => {
                let (moved, kept): (Vec<u16>, Vec<u16>) =
                    chosen.suites.iter().partition(|suite| found.contains(suite));
                chosen.suites = kept;
                chosen.suites.extend(moved);
            }
            _ => {
                for suite in found {
                    if !chosen.suites.contains(&suite) && !killed.contains(&suite) {
                        chosen.suites.push(suite);
                    }
                }
            }
        }
    }
    chosen
}

fn tls13_number(name: &str) -> Option<u16> {
    match name {
        "TLS_AES_128_GCM_SHA256" => Some(0x1301),
        "TLS_AES_256_GCM_SHA384" => Some(0x1302),
        "TLS_CHACHA20_POLY1305_SHA256" => Some(0x1303),
        _ => None,
    }
}

/// The suites of TLS 1.3 in a list.
pub(crate) fn tls13(list: &str) -> Chosen {
    named(list, tls13_number)
}

/// The groups in a list.
pub(crate) fn groups(list: &str) -> Chosen {
    named(list, |name| match name {
        "X25519" | "x25519" => Some(0x001d),
        "prime256v1" | "P-256" | "secp256r1" => Some(0x0017),
        "secp384r1" | "P-384" => Some(0x0018),
        "X25519MLKEM768" => Some(0x11ec),
        "SecP256r1MLKEM768" => Some(0x11eb),
        "MLKEM768" => Some(0x0201),
        _ => None,
    })
}

fn named(list: &str, number: fn(&str) -> Option<u16>) -> Chosen {
    let mut chosen = Chosen::default();
    for name in list.split([':', ',', ' ', '/']).filter(|name| !name.is_empty()) {
        // OpenSSL 3.5: `?` for what may be missing, `*` for a key share.
        match number(name.trim_start_matches(['?', '*', '-'])) {
            Some(number) if !chosen.suites.contains(&number) => chosen.suites.push(number),
            Some(_) => {}
            None => chosen.unknown.push(name.to_owned()),
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_lists_are_mapped_to_what_there_is() {
        let all = [0xc02c, 0xc02b, 0xcca9, 0xc030, 0xc02f, 0xcca8];
        let mozilla = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
                       ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
                       DHE-RSA-AES128-GCM-SHA256";
        let cases: [(&str, &[u16], &[&str]); 8] = [
            ("HIGH:!aNULL:!MD5", &all, &[]),
            ("ALL:!ADH:!EXPORT56:RC4+RSA:+HIGH:+MEDIUM:+LOW", &all, &[]),
            (
                mozilla,
                &[0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8],
                &["DHE-RSA-AES128-GCM-SHA256"],
            ),
            ("EECDH+AESGCM:EDH+AESGCM:AES256+EECDH", &[0xc02c, 0xc02b, 0xc030, 0xc02f], &[]),
            ("EECDH+CHACHA20:EECDH+aRSA+AES128", &[0xcca9, 0xcca8, 0xc02f], &[]),
            ("HIGH:!ECDSA:-AES128:@STRENGTH", &[0xc030, 0xcca8], &[]),
            ("AES128-SHA:NOSUCH", &[], &["AES128-SHA", "NOSUCH"]),
            ("TLS_AES_128_GCM_SHA256:ECDHE+CHACHA20", &[0xcca9, 0xcca8], &[]),
        ];
        for (list, suites, unknown) in cases {
            let chosen = tls12(list);
            assert_eq!(chosen.suites, suites, "{list}");
            assert_eq!(chosen.unknown, unknown, "{list}");
        }
    }

    #[test]
    fn suites_of_tls_1_3_and_groups_are_named_one_by_one() {
        let chosen = tls13("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256");
        assert_eq!(chosen.suites, [0x1303]);
        assert_eq!(chosen.unknown, ["TLS_AES_128_CCM_SHA256"]);
        let chosen = groups("X25519:prime256v1:secp384r1:secp521r1");
        assert_eq!(chosen.suites, [0x1d, 0x17, 0x18]);
        assert_eq!(chosen.unknown, ["secp521r1"]);
    }
}
