//! Certificates, a request and responses as OpenSSL makes them, in November 2026.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// An authority.
const ISSUER: &str = "MIIBeTCCAR+gAwIBAgIUWrLOVbYL0qC2cJWPYfzO/aQ+2FkwCgYIKoZIzj0EAwIwEjEQMA4GA1UEAwwHY2EudGVzdDAeFw0yNjExMTYx\
    MTM4MThaFw0zNjExMTMxMTM4MThaMBIxEDAOBgNVBAMMB2NhLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJ05T8AMbICCgw\
    MnYDwReE4YHSYltswZjLYEjhpxr6A/SWoFVwHOKl/U68qmG864mugDDAsFJQExrDhhZ+GPggo1MwUTAdBgNVHQ4EFgQUSaq6DZoeK1yf\
    u2jsBi/tv2psD2gwHwYDVR0jBBgwFoAUSaq6DZoeK1yfu2jsBi/tv2psD2gwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF\
    AiEApxcSqROXirCvNubefII2rsWWza7bC/Xtm/cOIBouSi0CICdXQYc9TonlWczm2bhTAEYooEszrce0SFlOaiKjCG00";
/// What it has issued, with the number 0x1001.
const CERTIFICATE: &str = "MIIBnzCCAUWgAwIBAgICEAEwCgYIKoZIzj0EAwIwEjEQMA4GA1UEAwwHY2EudGVzdDAeFw0yNjExMTYxMTM4MThaFw0zNjExMTMxMTM4\
    MThaMBExDzANBgNVBAMMBmEudGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBauu7Hmro+XbCrlh6+9ShFJJkPFH9Tgk7S3vmlY\
    Nz92c8V/8c97w07obhatMsoXZ9dzqk9aLMR8T/qCP53/Pf+jgYswgYgwMwYIKwYBBQUHAQEEJzAlMCMGCCsGAQUFBzABhhdodHRwOi8v\
    MTI3LjAuMC4xOjkvb2NzcDARBgNVHREECjAIggZhLnRlc3QwHQYDVR0OBBYEFBBKUTnRh/ddWQxwxoTSpsMPDf8mMB8GA1UdIwQYMBaA\
    FEmqug2aHitcn7to7AYv7b9qbA9oMAoGCCqGSM49BAMCA0gAMEUCID6kYHDU8YRDg8BSzYAAJAMbQSBPmUkHqYDjgPou9hyhAiEAznIW\
    v0nF0tI7JIrIG+VlWPqxtyj2AT8UTdmZJJ8hKco=";
/// What `openssl ocsp -no_nonce` asks about it.
const REQUEST: &str =
    "MEMwQTA/MD0wOzAJBgUrDgMCGgUABBR2QTFKNdrp31p69PuRvf8uvULt8QQUSaq6DZoeK1yfu2jsBi/tv2psD2gCAhAB";
/// Good for seven days, signed by the authority.
const GOOD_RESPONSE: &str = "MIICigoBAKCCAoMwggJ/BgkrBgEFBQcwAQEEggJwMIICbDCBjqEUMBIxEDAOBgNVBAMMB2NhLnRlc3QYDzIwMjYxMTE2MTEzODE4WjBl\
    MGMwOzAJBgUrDgMCGgUABBR2QTFKNdrp31p69PuRvf8uvULt8QQUSaq6DZoeK1yfu2jsBi/tv2psD2gCAhABgAAYDzIwMjYxMTE2MTEz\
    ODE4WqARGA8yMDI2MTEyMzExMzgxOFowCgYIKoZIzj0EAwIDSAAwRQIga7Pf2lus+EKvlpKCiemr2z+cezvSDIvV/thlLNreT/sCIQDf\
    Zw9doVk4KiS7y05kqtTTXENDvB86TNSKK8O8w8Z/q6CCAYEwggF9MIIBeTCCAR+gAwIBAgIUWrLOVbYL0qC2cJWPYfzO/aQ+2FkwCgYI\
    KoZIzj0EAwIwEjEQMA4GA1UEAwwHY2EudGVzdDAeFw0yNjExMTYxMTM4MThaFw0zNjExMTMxMTM4MThaMBIxEDAOBgNVBAMMB2NhLnRl\
    c3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJ05T8AMbICCgwMnYDwReE4YHSYltswZjLYEjhpxr6A/SWoFVwHOKl/U68qmG864mu\
    gDDAsFJQExrDhhZ+GPggo1MwUTAdBgNVHQ4EFgQUSaq6DZoeK1yfu2jsBi/tv2psD2gwHwYDVR0jBBgwFoAUSaq6DZoeK1yfu2jsBi/t\
    v2psD2gwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEApxcSqROXirCvNubefII2rsWWza7bC/Xtm/cOIBouSi0CICdX\
    QYc9TonlWczm2bhTAEYooEszrce0SFlOaiKjCG00";
/// The same with the responder named by its key.
const BY_KEY: &str = "MIICjQoBAKCCAoYwggKCBgkrBgEFBQcwAQEEggJzMIICbzCBkKIWBBRJqroNmh4rXJ+7aOwGL+2/amwPaBgPMjAyNjExMTYxMTM4NTNa\
    MGUwYzA7MAkGBSsOAwIaBQAEFHZBMUo12unfWnr0+5G9/y69Qu3xBBRJqroNmh4rXJ+7aOwGL+2/amwPaAICEAGAABgPMjAyNjExMTYx\
    MTM4NTNaoBEYDzIwMjYxMTIzMTEzODUzWjAKBggqhkjOPQQDAgNJADBGAiEAuMar+w8ppFOx9H1sIyx9KE/IpwHlmmfOJOrPcqkgiK8C\
    IQCiy9/Sr5bDV5/WqTDznU5oLsxv4nmwKwTvpSwwXFVzCKCCAYEwggF9MIIBeTCCAR+gAwIBAgIUWrLOVbYL0qC2cJWPYfzO/aQ+2Fkw\
    CgYIKoZIzj0EAwIwEjEQMA4GA1UEAwwHY2EudGVzdDAeFw0yNjExMTYxMTM4MThaFw0zNjExMTMxMTM4MThaMBIxEDAOBgNVBAMMB2Nh\
    LnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJ05T8AMbICCgwMnYDwReE4YHSYltswZjLYEjhpxr6A/SWoFVwHOKl/U68qmG8\
    64mugDDAsFJQExrDhhZ+GPggo1MwUTAdBgNVHQ4EFgQUSaq6DZoeK1yfu2jsBi/tv2psD2gwHwYDVR0jBBgwFoAUSaq6DZoeK1yfu2js\
    Bi/tv2psD2gwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEApxcSqROXirCvNubefII2rsWWza7bC/Xtm/cOIBouSi0C\
    ICdXQYc9TonlWczm2bhTAEYooEszrce0SFlOaiKjCG00";
/// Signed by one whom the authority has authorized.
const DELEGATED: &str = "MIICdgoBAKCCAm8wggJrBgkrBgEFBQcwAQEEggJcMIICWDCBiqEQMA4xDDAKBgNVBAMMA2RlbBgPMjAyNjExMTYxMTM4NTNaMGUwYzA7\
    MAkGBSsOAwIaBQAEFHZBMUo12unfWnr0+5G9/y69Qu3xBBRJqroNmh4rXJ+7aOwGL+2/amwPaAICEAGAABgPMjAyNjExMTYxMTM4NTNa\
    oBEYDzIwMjYxMTIzMTEzODUzWjAKBggqhkjOPQQDAgNJADBGAiEAi4TczVkmTB4sZusZkNnadI/Pek1IXPmBRZ6Eq+6n9O0CIQCZ2DUL\
    Cu0w7volHBkMkt2F+7ttVQ9iCJHWKiYSbIWeVKCCAXAwggFsMIIBaDCCAQ2gAwIBAgICIAIwCgYIKoZIzj0EAwIwEjEQMA4GA1UEAwwH\
    Y2EudGVzdDAeFw0yNjExMTYxMTM4NTNaFw0zNjExMTMxMTM4NTNaMA4xDDAKBgNVBAMMA2RlbDBZMBMGByqGSM49AgEGCCqGSM49AwEH\
    A0IABDLwgOIC3L1+OYcKWCV0Rew8h1nE4vu4N2+U1DudyGBKxgsPBJJNeRZcmJ+oPU2I9pfzhG+2AGa0+CYBA/u90lCjVzBVMBMGA1Ud\
    JQQMMAoGCCsGAQUFBwMJMB0GA1UdDgQWBBRmGQYomlL/sMoO54490wUqjW9S1DAfBgNVHSMEGDAWgBRJqroNmh4rXJ+7aOwGL+2/amwP\
    aDAKBggqhkjOPQQDAgNJADBGAiEAvv35GtOTI0r2u141T9Z7r8QUULubpxi88xEI8RM55LICIQCBpHcilTk6vumeVJOkLtbKmKuk1ri7\
    5n+GBWtY6KgI7g==";
/// Signed by one whom it has not: a certificate of a server.
const UNAUTHORIZED: &str = "MIICdAoBAKCCAm0wggJpBgkrBgEFBQcwAQEEggJaMIICVjCBiqEQMA4xDDAKBgNVBAMMA25vdBgPMjAyNjExMTYxMTM4NTNaMGUwYzA7\
    MAkGBSsOAwIaBQAEFHZBMUo12unfWnr0+5G9/y69Qu3xBBRJqroNmh4rXJ+7aOwGL+2/amwPaAICEAGAABgPMjAyNjExMTYxMTM4NTNa\
    oBEYDzIwMjYxMTIzMTEzODUzWjAKBggqhkjOPQQDAgNHADBEAiBW24WFOUGZ7DdGqumTUR4052QEwXBds6ZZMBwZcKRdngIgcQE3cmtw\
    62u2MYR0xHDRPIAbVPnC2lpo+RjDWaBG1ymgggFwMIIBbDCCAWgwggENoAMCAQICAiADMAoGCCqGSM49BAMCMBIxEDAOBgNVBAMMB2Nh\
    LnRlc3QwHhcNMjYxMTE2MTEzODUzWhcNMzYxMTEzMTEzODUzWjAOMQwwCgYDVQQDDANub3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\
    AATR374X5eBZA3Nt/UjZSF/dXHPzW0p5Mwzja48T+Tgkr+7OeElNgMJElhVGOjqVWh6W01QSJ/+L4pkFuMQl9N42o1cwVTATBgNVHSUE\
    DDAKBggrBgEFBQcDATAdBgNVHQ4EFgQUryIvTHp8LVKaBsNYxJobvBME88cwHwYDVR0jBBgwFoAUSaq6DZoeK1yfu2jsBi/tv2psD2gw\
    CgYIKoZIzj0EAwIDSQAwRgIhAO/Zi5bJXvenoiAvEpQelWd/jWCeobiWowgjR2t+glVUAiEA+AS5xOA9fohryy1hwGSlaPre4Rg3ggUY\
    x/edSMWG/p8=";
/// The certificate has been revoked.
const REVOKED_RESPONSE: &str = "MIICmwoBAKCCApQwggKQBgkrBgEFBQcwAQEEggKBMIICfTCBn6EUMBIxEDAOBgNVBAMMB2NhLnRlc3QYDzIwMjYxMTE2MTEzODUzWjB2\
    MHQwOzAJBgUrDgMCGgUABBR2QTFKNdrp31p69PuRvf8uvULt8QQUSaq6DZoeK1yfu2jsBi/tv2psD2gCAhABoREYDzIwMjYxMTAxMDAw\
    MDAwWhgPMjAyNjExMTYxMTM4NTNaoBEYDzIwMjYxMTIzMTEzODUzWjAKBggqhkjOPQQDAgNIADBFAiEA+dOc1tY4fHDZINW8U8eDroe6\
    hc5hotZKNZO+AhoPnhMCIHWZxFM7KYam6o44QVL7i3oZO03D12qJ555977zo0kaRoIIBgTCCAX0wggF5MIIBH6ADAgECAhRass5VtgvS\
    oLZwlY9h/M79pD7YWTAKBggqhkjOPQQDAjASMRAwDgYDVQQDDAdjYS50ZXN0MB4XDTI2MTExNjExMzgxOFoXDTM2MTExMzExMzgxOFow\
    EjEQMA4GA1UEAwwHY2EudGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEnTlPwAxsgIKDAydgPBF4ThgdJiW2zBmMtgSOGnGvoD\
    9JagVXAc4qX9TryqYbzria6AMMCwUlATGsOGFn4Y+CCjUzBRMB0GA1UdDgQWBBRJqroNmh4rXJ+7aOwGL+2/amwPaDAfBgNVHSMEGDAW\
    gBRJqroNmh4rXJ+7aOwGL+2/amwPaDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCnFxKpE5eKsK825t58gjauxZbN\
    rtsL9e2b9w4gGi5KLQIgJ1dBhz1OieVZzObZuFMARiigSzOtx7RIWU5qIqMIbTQ=";
/// The responder does not know it.
const UNKNOWN: &str = "MIICigoBAKCCAoMwggJ/BgkrBgEFBQcwAQEEggJwMIICbDCBjqEUMBIxEDAOBgNVBAMMB2NhLnRlc3QYDzIwMjYxMTE2MTEzODUzWjBl\
    MGMwOzAJBgUrDgMCGgUABBR2QTFKNdrp31p69PuRvf8uvULt8QQUSaq6DZoeK1yfu2jsBi/tv2psD2gCAhABggAYDzIwMjYxMTE2MTEz\
    ODUzWqARGA8yMDI2MTEyMzExMzg1M1owCgYIKoZIzj0EAwIDSAAwRQIhAKirWEaK4lG0f6opxVs77sOT0pxAXZ59MyhzcuBUj580AiAL\
    fIIdf9HK6DMQbAS1J8wPdRMcxdtA4H/GkxNl/lcegaCCAYEwggF9MIIBeTCCAR+gAwIBAgIUWrLOVbYL0qC2cJWPYfzO/aQ+2FkwCgYI\
    KoZIzj0EAwIwEjEQMA4GA1UEAwwHY2EudGVzdDAeFw0yNjExMTYxMTM4MThaFw0zNjExMTMxMTM4MThaMBIxEDAOBgNVBAMMB2NhLnRl\
    c3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJ05T8AMbICCgwMnYDwReE4YHSYltswZjLYEjhpxr6A/SWoFVwHOKl/U68qmG864mu\
    gDDAsFJQExrDhhZ+GPggo1MwUTAdBgNVHQ4EFgQUSaq6DZoeK1yfu2jsBi/tv2psD2gwHwYDVR0jBBgwFoAUSaq6DZoeK1yfu2jsBi/t\
    v2psD2gwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEApxcSqROXirCvNubefII2rsWWza7bC/Xtm/cOIBouSi0CICdX\
    QYc9TonlWczm2bhTAEYooEszrce0SFlOaiKjCG00";

/// A day after they were made.
const NOW: i64 = 1_794_829_098 + 86_400;
const DAY: i64 = 86_400;

fn bytes(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}

fn question() -> Question {
    Question::new(&bytes(CERTIFICATE), &bytes(ISSUER)).expect("the issuer")
}

#[test]
fn what_is_asked_is_what_openssl_asks() {
    assert_eq!(question().encode(), bytes(REQUEST));
    assert_eq!(Question::new(&bytes(CERTIFICATE), &bytes(CERTIFICATE)), None, "not its issuer");
    let path = question().path("/ocsp/");
    let text = REQUEST.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    assert_eq!(path, format!("/ocsp/{text}"));
    assert!(question().path("/").starts_with("/ME"), "{}", question().path("/"));
}

#[test]
fn a_response_counts_if_it_is_good_timely_and_signed() {
    let until = NOW + 6 * DAY;
    let table = [
        (GOOD_RESPONSE, true, NOW, Ok(until)),
        (GOOD_RESPONSE, true, until + SKEW_SECS, Ok(until)),
        (GOOD_RESPONSE, true, until + SKEW_SECS + 1, Err("is out of date")),
        (GOOD_RESPONSE, true, NOW - DAY - SKEW_SECS, Ok(until)),
        (GOOD_RESPONSE, true, NOW - 2 * DAY, Err("is from the future")),
        (BY_KEY, true, NOW, Ok(until)),
        (DELEGATED, true, NOW, Ok(until)),
        (DELEGATED, false, NOW, Ok(until)),
        (UNAUTHORIZED, false, NOW, Ok(until)),
        (UNAUTHORIZED, true, NOW, Err("has a signer that the issuer has not authorized")),
        (REVOKED_RESPONSE, false, NOW, Err("says that the certificate has been revoked")),
        (UNKNOWN, false, NOW, Err("says that the certificate is not known")),
    ];
    for (at, (response, verifies, now, expected)) in table.into_iter().enumerate() {
        let judged = question().judge(&bytes(response), verifies, now);
        let judged = judged.map(|answer| answer.until.expect("an end") / 60);
        assert_eq!(judged, expected.map(|until| until / 60).map_err(str::to_owned), "row {at}");
    }
}

#[test]
fn a_response_about_another_certificate_does_not_count() {
    let mut other = question();
    *other.id.last_mut().expect("a number") ^= 1;
    let judged = other.judge(&bytes(GOOD_RESPONSE), false, NOW);
    assert_eq!(judged, Err("is about another certificate".to_owned()));
}

#[test]
fn a_response_that_was_changed_or_cut_does_not_count() {
    for response in [GOOD_RESPONSE, DELEGATED] {
        let whole = bytes(response);
        for end in 0..whole.len() {
            assert!(question().judge(&whole[..end], true, NOW).is_err(), "{end}");
        }
        let good = question().judge(&whole, true, NOW);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            // The certificates that come along may be of no use to anybody.
            let judged = question().judge(&changed, true, NOW);
            assert!(judged.is_err() || judged == good, "{at}");
        }
    }
    for refusal in [&b"\x30\x03\x0a\x01\x03"[..], b"", b"<html>", b"\x30\x80"] {
        assert!(question().judge(refusal, false, NOW).is_err(), "{refusal:?}");
    }
}
