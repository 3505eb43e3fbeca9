//! Orders (RFC 8555): an account with each authority, and for each certificate one order at a time, until it is
//! issued and again before it ends.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, Key, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use sekisho_config::{AcmeCertificate, AcmeChallenge, AcmeIssuer, AcmeKey, ExternalKey, Level};
use sekisho_net::clock::unix_time;
use sekisho_net::tls::acme::{AcmeSlot, Proof, check_issued, slot, state_file};
use sekisho_net::tls::certificate::Certificate;
use tokio::sync::{Mutex, Semaphore};

use super::schedule::{self, Failure};
use super::shared::{Claim, Lock, Shared};
use super::web::Web;
use super::{Context, state};

/// So many orders are made at a time.
const ORDERS_MAX: usize = 4;
/// How long an authority may take to check names, and to issue.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long an order may take, all in all: others wait for its turn.
const ORDER_LIMIT: Duration = Duration::from_mins(10);
/// No reason in the log is longer: an authority may say a lot.
const WHY_CHARS_MAX: usize = 500;
/// How long to wait for another process that orders.
const BUSY_PAUSE: Duration = Duration::from_secs(5);
/// The same for another server.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);
const LOST: &str = "another server has the lock of the store";
const REFUSES: &str = "the authority refuses";
const NOT_ACCEPTED: &str = "the authority has not accepted the order";
/// The account that an authority does not know any more.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Our accounts, by issuer.
#[derive(Default)]
pub(super) struct Accounts {
    known: Mutex<HashMap<String, Account>>,
    turns: Turns,
}

struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(ORDERS_MAX))
    }
}

/// Why there is no certificate.
struct Refusal {
    kind: Failure,
    why: String,
    /// The authority does not know our account any more.
    is_account_lost: bool,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let is_account_lost =
            matches!(&error, Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT));
        let kind = match error {
            // A rejected nonce is no refusal of the order.
            Error::Api(ref problem) if problem.r#type.as_deref() == Some(BAD_NONCE) => {
                Failure::Unreachable
            }
            Error::Api(_) if !is_account_lost => Failure::Refused,
            _ => Failure::Unreachable,
        };
        Self { kind, why: error.to_string(), is_account_lost }
    }
}

impl Refusal {
    /// The store is away, or has something that cannot be used.
    fn of_store(why: &str) -> Self {
        Self {
            kind: Failure::Unreachable,
            why: format!("the store: {why}"),
            is_account_lost: false,
        }
    }

    /// The check of a name was asked for, and failed; a fast authority says so in its first answer.
    fn of_check(name: &str, error: Error) -> Self {
        let reason = match &error {
            Error::Api(problem) => Some(format!("{REFUSES} {name}: {problem}")),
            _ => None,
        };
        let refusal = Self::from(error);
        match (reason, refusal.kind) {
            (Some(why), Failure::Refused) => Self { why, ..refusal },
            _ => refusal,
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { kind: Failure::Refused, why, is_account_lost: false }
    }
}

/// How an order failed, where that counts: a server that lost the lock was not refused, and writes nothing.
fn refusal_of(issued: &Result<(), Refusal>) -> Option<Failure> {
    issued.as_ref().err().filter(|refusal| refusal.why != LOST).map(|refusal| refusal.kind)
}

/// Sees to it that there is always a certificate.
pub(super) async fn keep(
    wanted: AcmeCertificate,
    accounts: Arc<Accounts>,
    shared: Option<Arc<Shared>>,
    mut context: Context,
) {
    let names = wanted.names.join(", ");
    let slot = slot(&wanted);
    let (mut failures, mut renewed) = (0, None);
    loop {
        let due = renewal(&wanted, &slot, &accounts, renewed).await;
        let wait = schedule::wait(now(), due);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
            continue;
        }
        let turn = accounts.turns.0.acquire().await;
        let folder = wanted.issuer.state_path.as_deref();
        let lock = match folder.map(state::lock).transpose() {
            Ok(Some(None)) => {
                // Another process orders; it may be for this name.
                drop(turn);
                tokio::time::sleep(BUSY_PAUSE).await;
                reread(&wanted, &slot);
                continue;
            }
            Ok(lock) => lock,
            Err(error) => {
                context.log(Level::Error, &format!("the state of ACME cannot be kept: {error}"));
                None
            }
        };
        let claim = match &shared {
            Some(shared) => Some(shared.claim(&wanted).await),
            None => None,
        };
        let claimed = match claim {
            None => None,
            Some(Claim::Ours(claimed)) => Some(claimed),
            Some(Claim::NotOurs | Claim::Away) => {
                // Another server orders, or has ordered; or nobody may, until the store is back.
                drop((lock, turn));
                tokio::time::sleep(CLAIM_PAUSE).await;
                continue;
            }
        };
        // What another server has ordered may have been taken up since this one looked.
        let is_due = || async {
            let due = renewal(&wanted, &slot, &accounts, renewed).await;
            schedule::wait(now(), due).is_zero()
        };
        let claimed = match claimed {
            Some(claimed) if !is_due().await => {
                claimed.release().await;
                continue;
            }
            claimed => claimed,
        };
        let is_renewal = slot.certificate().is_some();
        if !is_renewal {
            let issuer = &wanted.issuer.name;
            let message = format!("ordering a certificate for {names} from \"{issuer}\"");
            context.log(Level::Notice, &message);
        }
        let shared = shared.as_deref();
        let obtained = obtain(&wanted, &slot, &accounts, (shared, claimed.as_ref()), &context);
        let issued = match &claimed {
            None => obtained.await,
            Some(claimed) => tokio::select! {
                issued = obtained => issued,
                () = claimed.lost() => Err(LOST.to_owned().into()),
            },
        };
        let chance = chance();
        let mut pause = None;
        if let Some(claimed) = claimed {
            if let Some(kind) = refusal_of(&issued) {
                pause = claimed.fail(|count| schedule::retry_after(count, kind, chance)).await;
            }
            claimed.release().await;
        }
        drop((lock, turn));
        match issued {
            Ok(()) => {
                failures = 0;
                renewed = is_renewal.then(now);
                let until = slot.certificate().map_or(0, |it| (it.to - now()) / 86_400);
                let message = format!("certificate for {names} issued: valid for {until} days");
                context.log(Level::Notice, &message);
            }
            Err(Refusal { kind, why, .. }) => {
                let alone = || schedule::retry_after(failures, kind, chance);
                let pause = pause.unwrap_or_else(alone);
                failures = failures.saturating_add(1);
                let advice = advice(&wanted, kind);
                let secs = pause.as_secs();
                let message =
                    format!("no certificate for {names}: {why}; {advice}; next try in {secs} s");
                context.log(Level::Error, &message);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    // The configuration has changed: the cause of the failure may be fixed.
                    changed = context.sites.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

/// What an operator can do.
fn advice(wanted: &AcmeCertificate, kind: Failure) -> &'static str {
    match (kind, wanted.issuer.challenge) {
        (Failure::Unreachable, _) => "see that \"uri\" can be reached from here",
        (Failure::Refused, AcmeChallenge::Http01) => {
            "see that the name points here and that port 80 is served"
        }
        (Failure::Refused, AcmeChallenge::TlsAlpn01) => {
            "see that the name points here and that port 443 is served with TLS"
        }
    }
}

/// When the certificate is to be renewed; now where there is none.
async fn renewal(
    wanted: &AcmeCertificate,
    slot: &AcmeSlot,
    accounts: &Accounts,
    renewed: Option<i64>,
) -> i64 {
    let Some(certificate) = slot.certificate() else { return i64::MIN };
    let by_dates = schedule::renew_at(certificate.from, certificate.to);
    let Some(id) = identifier(&certificate) else { return by_dates };
    // Only where the account is open already: a start does not wait for an authority.
    let account = accounts.known.lock().await.get(&wanted.issuer.name).cloned();
    let Some(account) = account else { return by_dates };
    match account.renewal_info(&id).await {
        Ok((info, _)) => {
            let window = &info.suggested_window;
            let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
            // The same moment each time that it is asked for the same certificate.
            let fixed = certificate
                .serial_bytes
                .iter()
                .fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let moment = schedule::within(start, end, fixed);
            schedule::suggested(moment, by_dates, renewed)
                .min(schedule::latest(certificate.from, certificate.to))
        }
        Err(_) => by_dates,
    }
}

/// How an authority knows one of its certificates (RFC 9773 §4.1).
fn identifier(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let key = URL_SAFE_NO_PAD.encode(certificate.authority_key.as_ref()?);
    let serial = URL_SAFE_NO_PAD.encode(&certificate.serial_bytes);
    Some(CertificateIdentifier { authority_key_identifier: key.into(), serial: serial.into() })
}

/// Another process may have written it.
fn reread(wanted: &AcmeCertificate, slot: &AcmeSlot) {
    if let Some(pem) = state_file(wanted).and_then(|path| std::fs::read(path).ok()) {
        // One that cannot be used is ordered anew.
        let _ = slot.put(&pem);
    }
}

/// Orders a certificate, keeps it and puts it to use, within the time of an order.
async fn obtain(
    wanted: &AcmeCertificate,
    slot: &AcmeSlot,
    accounts: &Accounts,
    store: (Option<&Shared>, Option<&Lock>),
    context: &Context,
) -> Result<(), Refusal> {
    let late = |_| Err(format!("the order took more than {ORDER_LIMIT:?}").into());
    let obtained = try_obtain(wanted, slot, accounts, store, context);
    let issued = tokio::time::timeout(ORDER_LIMIT, obtained).await.unwrap_or_else(late);
    issued.map_err(|refusal| Refusal {
        why: refusal.why.chars().take(WHY_CHARS_MAX).collect(),
        ..refusal
    })
}

async fn try_obtain(
    wanted: &AcmeCertificate,
    slot: &AcmeSlot,
    accounts: &Accounts,
    (shared, claimed): (Option<&Shared>, Option<&Lock>),
    context: &Context,
) -> Result<(), Refusal> {
    let account = account(&wanted.issuer, accounts, shared).await?;
    let mut shown = Vec::new();
    let ordered = order(wanted, slot, &account, shared, &mut shown).await;
    if let Some(shared) = shared {
        for field in shown {
            shared.take_back(&field).await;
        }
    }
    let pem = match ordered {
        Ok(pem) => pem,
        Err(refusal) => {
            if refusal.is_account_lost {
                // The authority has lost it: the next attempt opens another.
                accounts.known.lock().await.remove(&wanted.issuer.name);
                if let Some(folder) = &wanted.issuer.state_path {
                    let _ = std::fs::remove_file(folder.join(ACCOUNT_FILE));
                }
                if let Some(shared) = shared {
                    shared.forget_account(&wanted.issuer).await;
                }
            }
            return Err(refusal);
        }
    };
    let new = check_issued(&pem, &wanted.names, now());
    let new = new.map_err(|why| format!("what was issued {why}"))?;
    if schedule::renew_at(new.from, new.to) <= now() {
        // It would be ordered again and again.
        return Err("what was issued is to be renewed already".to_owned().into());
    }
    match claimed {
        None => {}
        Some(claimed) => match claimed.write(&pem).await {
            Ok(true) => {}
            Ok(false) => return Err(LOST.to_owned().into()),
            // It is used here, and another server may order its own.
            Err(why) => {
                let message = format!("the certificate cannot be kept in the store: {why}");
                context.log(Level::Error, &message);
            }
        },
    }
    slot.put(&pem).map_err(|why| format!("what was issued {why}"))?;
    if let Some(path) = state_file(wanted)
        && let Err(error) = state::write(&path, &pem)
    {
        let path = path.display();
        let message = format!("the certificate cannot be kept in \"{path}\": {error}");
        context.log(Level::Error, &message);
    }
    Ok(())
}

const ACCOUNT_FILE: &str = "account.json";

/// Our account with an authority: known, kept on disk, or a new one.
async fn account(
    issuer: &AcmeIssuer,
    accounts: &Accounts,
    shared: Option<&Shared>,
) -> Result<Account, Refusal> {
    let mut known = accounts.known.lock().await;
    if let Some(account) = known.get(&issuer.name) {
        return Ok(account.clone());
    }
    let web = Web::new(issuer)?;
    let builder = || Account::builder_with_http(Box::new(web.clone()));
    let file = issuer.state_path.as_ref().map(|folder| folder.join(ACCOUNT_FILE));
    let in_store = match shared {
        Some(shared) => shared.account(issuer).await.map_err(|why| Refusal::of_store(&why))?,
        None => None,
    };
    let on_disk = || file.as_ref().and_then(|file| std::fs::read(file).ok());
    let kept = in_store.clone().or_else(on_disk).and_then(|text| {
        let shown: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let is_of_issuer = shown.get("directory").and_then(|it| it.as_str()) == Some(&issuer.uri);
        is_of_issuer.then(|| serde_json::from_slice::<AccountCredentials>(&text).ok())?
    });
    let (account, new) = if let Some(credentials) = kept {
        let text = serde_json::to_vec(&credentials).ok().filter(|_| in_store.is_none());
        (builder().from_credentials(credentials).await?, text)
    } else {
        let (account, credentials) = open_account(issuer, builder()).await?;
        let text = serde_json::to_vec(&credentials).ok();
        if let Some(file) = &file
            && let Some(text) = &text
        {
            state::write(file, text)
                .map_err(|error| format!("\"{}\" cannot be written: {error}", file.display()))?;
        }
        (account, text)
    };
    let account = match (shared, new) {
        (Some(shared), Some(text)) => {
            let first =
                shared.keep_account(issuer, &text).await.map_err(|why| Refusal::of_store(&why))?;
            match serde_json::from_slice::<AccountCredentials>(&first) {
                // Another server has opened one at the same time.
                Ok(credentials) if first != text => builder().from_credentials(credentials).await?,
                _ => account,
            }
        }
        _ => account,
    };
    known.insert(issuer.name.clone(), account.clone());
    Ok(account)
}

async fn open_account(
    issuer: &AcmeIssuer,
    builder: instant_acme::AccountBuilder,
) -> Result<(Account, AccountCredentials), Refusal> {
    let contacts: Vec<&str> = issuer.contacts.iter().map(String::as_str).collect();
    let uri = issuer.uri.clone();
    if let Some(path) = &issuer.account_key {
        let shown = path.display();
        let wrong =
            |error: &dyn std::fmt::Display| format!("\"{shown}\" is no account key: {error}");
        let der = sekisho_openings::read(path).map_err(|error| wrong(&error))?;
        let der = PrivateKeyDer::from_pem_slice(&der).map_err(|error| wrong(&error))?;
        let PrivateKeyDer::Pkcs8(pkcs8) = &der else {
            return Err(wrong(&"it must be PKCS #8").into());
        };
        let key = Key::from_pkcs8_der(pkcs8.clone_key()).map_err(|error| wrong(&error))?;
        let opened = builder.create_from_key((key, der), uri).await?;
        if !contacts.is_empty() {
            opened.0.update_contacts(&contacts).await?;
        }
        return Ok(opened);
    }
    let external = match &issuer.external_account {
        None => None,
        Some(account) => {
            let text = match &account.key {
                ExternalKey::Data(data) => data.clone(),
                ExternalKey::File(path) => sekisho_openings::read_text(path)
                    .map_err(|error| format!("\"{}\" cannot be read: {error}", path.display()))?,
            };
            let key = URL_SAFE_NO_PAD
                .decode(text.trim().trim_end_matches('='))
                .map_err(|error| format!("\"external_account_key\" is no base64url: {error}"))?;
            Some(ExternalAccountKey::new(account.id.clone(), &key))
        }
    };
    let new = NewAccount {
        contact: &contacts,
        terms_of_service_agreed: issuer.accepts_terms,
        only_return_existing: false,
    };
    Ok(builder.create(&new, uri, external.as_ref()).await?)
}

/// One order, from beginning to end: key and certificates in PEM.
async fn order(
    wanted: &AcmeCertificate,
    slot: &AcmeSlot,
    account: &Account,
    shared: Option<&Shared>,
    shown: &mut Vec<String>,
) -> Result<Vec<u8>, Refusal> {
    let identifiers: Vec<Identifier> = wanted
        .names
        .iter()
        .map(|name| match name.parse::<IpAddr>() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(name.clone()),
        })
        .collect();
    let new = || {
        let new = NewOrder::new(&identifiers);
        match &wanted.issuer.profile {
            Some(profile)
                if profile.is_required || account.profiles().any(|it| it.name == profile.name) =>
            {
                new.profile(&profile.name)
            }
            _ => new,
        }
    };
    let replaced = slot.certificate().and_then(|certificate| identifier(&certificate));
    let mut order = match replaced {
        // An authority without ARI, or that does not know what is replaced, is asked without.
        Some(id) => match account.new_order(&new().replaces(id)).await {
            Ok(order) => order,
            Err(_) => account.new_order(&new()).await?,
        },
        None => account.new_order(&new()).await?,
    };
    let proofs = prove(&mut order, wanted.issuer.challenge, shared, shown).await?;
    let patience = RetryPolicy::new().timeout(PATIENCE).backoff(1.5);
    match order.poll_ready(&patience).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(refused_names(&mut order).await.unwrap_or(NOT_ACCEPTED.into()).into()),
        Err(error) => {
            let refusal = Refusal::from(error);
            return Err(match refusal.kind {
                Failure::Unreachable => refusal,
                Failure::Refused => match refused_names(&mut order).await {
                    Some(why) => Refusal { why, ..refusal },
                    None => Refusal { why: format!("{NOT_ACCEPTED}: {}", refusal.why), ..refusal },
                },
            });
        }
    }
    drop(proofs);
    let key = new_key(wanted.key).map_err(|error| format!("no key could be generated: {error}"))?;
    let csr = request(wanted, &key).map_err(|error| format!("no request to sign: {error}"))?;
    order.finalize_csr(&csr).await?;
    let chain = order.poll_certificate(&patience).await?;
    Ok(format!("{}{chain}", key.serialize_pem()).into_bytes())
}

/// Shows that each name is ours, and has the authority look.
///
/// What the other servers show as well is noted in `shown`.
async fn prove(
    order: &mut Order,
    challenge: AcmeChallenge,
    shared: Option<&Shared>,
    shown: &mut Vec<String>,
) -> Result<Vec<Proof>, Refusal> {
    let kind = match challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    };
    let mut proofs = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            return Err(format!("the authority checks {name} by other challenges only").into());
        };
        let answer = challenge.key_authorization();
        let (proof, field, answer) = if kind == ChallengeType::TlsAlpn01 {
            let pem = check_certificate(&name, answer.digest().as_ref())
                .map_err(|error| format!("no certificate to be checked by: {error}"))?;
            (Proof::handshake(&name, pem.as_bytes())?, format!("tls {name}"), pem)
        } else {
            let (token, answer) = (&challenge.token, answer.as_str());
            (Proof::token(token, answer), format!("http {token}"), answer.to_owned())
        };
        proofs.push(proof);
        if let Some(shared) = shared {
            shown.push(field.clone());
            shared.show(&field, answer.as_bytes()).await.map_err(|why| Refusal::of_store(&why))?;
        }
        challenge.set_ready().await.map_err(|error| Refusal::of_check(&name, error))?;
    }
    Ok(proofs)
}

/// The authority's own description of the failure, where it gives one.
async fn refused_names(order: &mut Order) -> Option<String> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(found) = authorization.refresh().await else { continue };
        let name = found.identifier().to_string();
        let problems = found.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{name}: {problem}")));
    }
    (!reasons.is_empty()).then(|| format!("{REFUSES} {}", reasons.join("; ")))
}

/// The certificate that shows the answer to a challenge (RFC 8737 §3), with its key.
fn check_certificate(name: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    Ok(format!("{}{}", key.serialize_pem(), params.self_signed(&key)?.pem()))
}

fn new_key(kind: AcmeKey) -> Result<KeyPair, rcgen::Error> {
    let rsa = |size| KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size);
    match kind {
        AcmeKey::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        AcmeKey::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        AcmeKey::Rsa2048 => rsa(RsaKeySize::_2048),
        AcmeKey::Rsa3072 => rsa(RsaKeySize::_3072),
        AcmeKey::Rsa4096 => rsa(RsaKeySize::_4096),
    }
}

/// What the authority is to sign.
fn request(wanted: &AcmeCertificate, key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(wanted.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

pub(super) fn now() -> i64 {
    unix_time().as_secs() as i64
}

pub(super) fn chance() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use instant_acme::Problem;

    use super::*;

    fn problem(kind: &str) -> Error {
        let text = format!(r#"{{"type": "{kind}", "detail": "connection refused"}}"#);
        Error::Api(serde_json::from_str::<Problem>(&text).expect("a problem"))
    }

    /// How an authority tells that a check failed depends on its pace; the log does not.
    #[test]
    fn a_check_that_fails_at_once_is_a_refusal_that_names_the_name() {
        let kind = "urn:ietf:params:acme:error:connection";
        let refusal = Refusal::of_check("a.example.org", problem(kind));
        assert_eq!(refusal.kind, Failure::Refused);
        let start = "the authority refuses a.example.org: API error: connection refused";
        assert!(refusal.why.starts_with(start), "{}", refusal.why);
        // These say nothing about the name.
        for kind in [BAD_NONCE, NO_ACCOUNT] {
            let refusal = Refusal::of_check("a.example.org", problem(kind));
            assert_eq!(refusal.kind, Failure::Unreachable, "{kind}");
            assert!(!refusal.why.contains("a.example.org"), "{}", refusal.why);
            assert_eq!(refusal.is_account_lost, kind == NO_ACCOUNT);
        }
    }
}
