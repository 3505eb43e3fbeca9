//! Certificates that a fleet orders once (`acme_store`): accounts, certificates and their keys lie in a store, a lock there
//! says who orders, and the answers to challenges are shown by every server. Whoever has lost the lock writes nothing.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use redis::{Cmd, Value};
use sekisho_config::{AcmeCertificate, AcmeIssuer, AcmeStore, Level};
use sekisho_net::tls::acme::{AcmeSlot, Proof, identity, slot, state_file};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::acme::now;
use super::seal::Seal;
use super::state;
use crate::background::Context;
use crate::stores::redis::Store;
use crate::stores::{Health, node_name};

/// A lock is free again after this time, unless the server that has it says that it is still there.
const LOCK: Duration = Duration::from_secs(15);
/// A server that has not asked for so long is not waited for.
const NODE_LEASE: Duration = Duration::from_secs(5);
/// How often the store is asked for what is new.
const EVERY: Duration = Duration::from_secs(1);
/// How long the other servers may take to show the answer to a challenge.
const SHOWN_LIMIT: Duration = Duration::from_secs(10);
/// How often they are asked.
const SHOWN_EVERY: Duration = Duration::from_millis(50);
/// An answer that nobody has taken back is forgotten after this time.
const ANSWER_LIFE: Duration = Duration::from_mins(10);
/// A store that does not answer for so long is away.
const LIMIT: Duration = Duration::from_secs(2);

// All keys have one hash tag: a cluster has them in one place, and a script may use several.
const NODES: &str = "sekisho:{acme}:nodes";
const VERSION: &str = "sekisho:{acme}:version";
const ANSWERS: &str = "sekisho:{acme}:answers";

/// This server is there, and has seen this version. The version now, and the answers to challenges.
const LOOK: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. (now + tonumber(ARGV[3])))
local answers = redis.call('HGETALL', KEYS[3])
local found = {tonumber(redis.call('GET', KEYS[2]) or '0')}
for at = 1, #answers, 2 do
  local ends, answer = answers[at + 1]:match('^(%d+) (.*)$')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[3], answers[at])
  else
    table.insert(found, answers[at])
    table.insert(found, answer)
  end
end
return found";

/// Whether all other servers that are there have seen this version.
const ALL_HAVE_SEEN: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local nodes = redis.call('HGETALL', KEYS[1])
for at = 1, #nodes, 2 do
  local seen, ends = nodes[at + 1]:match('(%d+):(%d+)')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], nodes[at])
  elseif nodes[at] ~= ARGV[1] and tonumber(seen) < tonumber(ARGV[2]) then
    return 0
  end
end
return 1";

/// Shows an answer; the version that has it.
const SHOW: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], (now + tonumber(ARGV[2])) .. ' ' .. ARGV[3])
return redis.call('INCR', KEYS[2])";

const TAKE_BACK: &str = "
redis.call('HDEL', KEYS[1], ARGV[1])
return redis.call('INCR', KEYS[2])";

const EXTEND: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// Only with the lock: what a server has ordered that lost it meanwhile is not written.
const WRITE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('INCR', KEYS[3])
return 1";

/// The first one counts, which comes out.
const KEEP_FIRST: &str = "
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])";

const FORGET: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// The state that all servers share.
pub(super) struct Shared {
    pub(super) configured: AcmeStore,
    store: Mutex<Store>,
    health: BlockingMutex<Health>,
    node: String,
    seal: Option<Seal>,
    wanted: BlockingMutex<Vec<AcmeCertificate>>,
    context: Context,
}

/// Who orders.
pub(super) enum Claim {
    /// This server.
    Ours(Lock),
    /// Another one, or nobody has to: look again.
    NotOurs,
    /// The store is away.
    Away,
}

/// What was found in the store.
enum Adopted {
    Nothing,
    /// What cannot be used, too.
    NotNewer,
    Newer,
}

impl Shared {
    /// An error is that of the file with the key.
    pub(super) fn new(configured: &AcmeStore, context: Context) -> Result<Self, String> {
        let seal = configured.key.as_deref().map(Seal::read).transpose()?;
        let health = Health::new(&configured.url, "certificates".to_owned(), context.clone());
        Ok(Self {
            configured: configured.clone(),
            store: Mutex::new(Store::new(&configured.url)),
            health: BlockingMutex::new(health),
            node: node_name(),
            seal,
            wanted: BlockingMutex::default(),
            context,
        })
    }

    /// What is to be taken from the store when it is there.
    pub(super) fn want(&self, wanted: &[AcmeCertificate]) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted.to_vec();
    }

    /// Takes up what other servers have ordered, and shows what they have authorities look for.
    pub(super) async fn follow(self: Arc<Self>) {
        let (mut seen, mut known) = (0, Vec::new());
        let mut shown: HashMap<String, (Vec<u8>, Proof)> = HashMap::new();
        loop {
            let Ok((version, answers)) = self.look(seen).await else {
                sleep(EVERY).await;
                continue;
            };
            shown.retain(|field, (answer, _)| answers.get(field) == Some(answer));
            for (field, answer) in answers {
                if !shown.contains_key(&field)
                    && let Some(proof) = self.foreign_proof(&field, &answer)
                {
                    shown.insert(field, (answer, proof));
                }
            }
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if version != seen || wanted != known {
                for one in &wanted {
                    if matches!(self.adopt(one).await, Ok(Adopted::Nothing)) {
                        self.offer(one).await;
                    }
                }
                known = wanted;
            }
            if version == seen {
                sleep(EVERY).await;
            }
            seen = version;
        }
    }

    /// An answer of another server, shown here.
    fn foreign_proof(&self, field: &str, answer: &[u8]) -> Option<Proof> {
        let answer = self.open(field, answer)?;
        let end = answer.iter().position(|byte| *byte == b' ')?;
        let (node, answer) = (&answer[..end], &answer[end + 1..]);
        if node == self.node.as_bytes() {
            return None;
        }
        match field.split_once(' ')? {
            ("http", token) => Some(Proof::token(token, std::str::from_utf8(answer).ok()?)),
            ("tls", name) => Proof::handshake(name, answer).ok(),
            _ => None,
        }
    }

    /// A store that has lost its content gets back what there is.
    async fn offer(&self, wanted: &AcmeCertificate) {
        let name = key("certificate", &identity(wanted));
        let slot = slot(wanted);
        let is_valid = slot.certificate().is_some_and(|certificate| now() < certificate.to);
        if let Some(pem) = slot.pem().filter(|_| is_valid)
            && let Ok(sealed) = self.close(&name, &pem)
        {
            let _ = self.ask(&script(KEEP_FIRST, &[&name], &[&sealed])).await;
        }
    }

    /// Takes a certificate from the store that ends later than the one at hand.
    async fn adopt(&self, wanted: &AcmeCertificate) -> Result<Adopted, String> {
        let name = key("certificate", &identity(wanted));
        let Some(sealed) = self.get(&name).await? else { return Ok(Adopted::Nothing) };
        let Some(pem) = self.open(&name, &sealed) else {
            let message = format!("the certificate in the store cannot be read: {name}");
            self.context.log(Level::Error, &message);
            return Ok(Adopted::NotNewer);
        };
        let (slot, offered) = (slot(wanted), AcmeSlot::default());
        if offered.put(&pem).is_err() {
            return Ok(Adopted::NotNewer);
        }
        let ends = |slot: &AcmeSlot| slot.certificate().map(|certificate| certificate.to);
        if ends(&offered) <= ends(&slot) {
            return Ok(Adopted::NotNewer);
        }
        slot.put(&pem)?;
        if let Some(path) = state_file(wanted) {
            let _ = state::write(&path, &pem);
        }
        let names = wanted.names.join(", ");
        self.context.log(Level::Notice, &format!("certificate for {names} taken from the store"));
        Ok(Adopted::Newer)
    }

    /// Who orders this certificate now.
    pub(super) async fn claim(self: &Arc<Self>, wanted: &AcmeCertificate) -> Claim {
        let lock = Lock {
            shared: Arc::clone(self),
            name: key("lock", &identity(wanted)),
            certificate: key("certificate", &identity(wanted)),
            token: node_name(),
        };
        let mut command = redis::cmd("SET");
        command.arg(&lock.name).arg(&lock.token).arg("NX").arg("PX").arg(LOCK.as_millis() as u64);
        match self.ask(&command).await {
            Ok(Value::Okay) => {}
            Ok(_) => return Claim::NotOurs,
            Err(_) => return Claim::Away,
        }
        match self.adopt(wanted).await {
            Ok(Adopted::Nothing | Adopted::NotNewer) => Claim::Ours(lock),
            Ok(Adopted::Newer) => {
                lock.release().await;
                Claim::NotOurs
            }
            Err(_) => Claim::Away,
        }
    }

    /// The account that all servers have with an authority.
    pub(super) async fn account(&self, issuer: &AcmeIssuer) -> Result<Option<Vec<u8>>, String> {
        let name = account_key(issuer);
        let Some(sealed) = self.get(&name).await? else { return Ok(None) };
        let unreadable = || format!("the account in the store cannot be read: {name}");
        self.open(&name, &sealed).map(Some).ok_or_else(unreadable)
    }

    /// Keeps a new account, unless another server was first; the one that counts.
    pub(super) async fn keep_account(
        &self,
        issuer: &AcmeIssuer,
        account: &[u8],
    ) -> Result<Vec<u8>, String> {
        let name = account_key(issuer);
        let sealed = self.close(&name, account)?;
        match self.ask(&script(KEEP_FIRST, &[&name], &[&sealed])).await? {
            Value::BulkString(first) if first == sealed => Ok(account.to_vec()),
            Value::BulkString(first) => {
                self.open(&name, &first).ok_or_else(|| format!("{name} cannot be read"))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The authority does not know the account any more.
    pub(super) async fn forget_account(&self, issuer: &AcmeIssuer) {
        let name = account_key(issuer);
        if let Ok(Some(sealed)) = self.get(&name).await {
            let _ = self.ask(&script(FORGET, &[&name], &[&sealed])).await;
        }
    }

    /// Shows the answer to a challenge at every server; comes back when all that are there have it.
    pub(super) async fn show(&self, field: &str, answer: &[u8]) -> Result<(), String> {
        let sealed = self.close(field, &[self.node.as_bytes(), b" ", answer].concat())?;
        let life = ANSWER_LIFE.as_millis().to_string();
        let show = script(SHOW, &[ANSWERS, VERSION], &[field.as_bytes(), life.as_bytes(), &sealed]);
        let version = number(&self.ask(&show).await?)?.to_string();
        let arguments = [self.node.as_bytes(), version.as_bytes()];
        let have_seen = script(ALL_HAVE_SEEN, &[NODES], &arguments);
        let wait = async {
            while number(&self.ask(&have_seen).await?)? == 0 {
                sleep(SHOWN_EVERY).await;
            }
            Ok(())
        };
        let waited = timeout(SHOWN_LIMIT, wait).await;
        waited.unwrap_or_else(|_| Err("another server does not show the answer".to_owned()))
    }

    /// The authority has looked.
    pub(super) async fn take_back(&self, field: &str) {
        let _ = self.ask(&script(TAKE_BACK, &[ANSWERS, VERSION], &[field.as_bytes()])).await;
    }

    async fn look(&self, seen: i64) -> Result<(i64, HashMap<String, Vec<u8>>), String> {
        let (seen, lease) = (seen.to_string(), NODE_LEASE.as_millis().to_string());
        let arguments = [self.node.as_bytes(), seen.as_bytes(), lease.as_bytes()];
        let answer = self.ask(&script(LOOK, &[NODES, VERSION, ANSWERS], &arguments)).await?;
        let Value::Array(all) = answer else { return Err(unexpected(&answer)) };
        let mut all = all.into_iter();
        let version = number(&all.next().unwrap_or(Value::Nil))?;
        let mut answers = HashMap::new();
        while let (Some(Value::BulkString(field)), Some(Value::BulkString(answer))) =
            (all.next(), all.next())
        {
            answers.insert(String::from_utf8_lossy(&field).into_owned(), answer);
        }
        Ok((version, answers))
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let mut command = redis::cmd("GET");
        command.arg(name);
        match self.ask(&command).await? {
            Value::Nil => Ok(None),
            Value::BulkString(value) => Ok(Some(value)),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks the store, within a bound. Whether it answers is logged when that changes.
    async fn ask(&self, command: &Cmd) -> Result<Value, String> {
        let mut store = self.store.lock().await;
        let answer = timeout(LIMIT, store.ask(command)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")));
        if answer.is_err() {
            store.hang_up();
        }
        self.health.lock().unwrap_or_else(PoisonError::into_inner).note(&answer);
        answer
    }

    fn close(&self, name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
        self.seal.as_ref().map_or_else(|| Ok(text.to_vec()), |seal| seal.close(name, text))
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.seal.as_ref().map_or_else(|| Some(sealed.to_vec()), |seal| seal.open(name, sealed))
    }
}

/// The right to order one certificate, until another server has it.
pub(super) struct Lock {
    shared: Arc<Shared>,
    name: String,
    certificate: String,
    token: String,
}

impl Lock {
    /// Keeps the lock; comes back when another server may have it.
    pub(super) async fn lost(&self) {
        let life = LOCK.as_millis().to_string();
        let extend = script(EXTEND, &[&self.name], &[self.token.as_bytes(), life.as_bytes()]);
        // While the store is away it is still ours, for as long as it was given.
        let extended = async || loop {
            sleep(LOCK / 3).await;
            if let Ok(answer) = self.shared.ask(&extend).await {
                return number(&answer) == Ok(1);
            }
        };
        while let Ok(true) = timeout(LOCK, extended()).await {}
    }

    /// Writes what was issued; whether the lock was still ours.
    pub(super) async fn write(&self, pem: &[u8]) -> Result<bool, String> {
        let sealed = self.shared.close(&self.certificate, pem)?;
        let keys = [self.name.as_str(), &self.certificate, VERSION];
        let write = script(WRITE, &keys, &[self.token.as_bytes(), &sealed]);
        Ok(number(&self.shared.ask(&write).await?)? == 1)
    }

    /// Others may order.
    pub(super) async fn release(self) {
        let release = script(RELEASE, &[&self.name], &[self.token.as_bytes()]);
        let _ = self.shared.ask(&release).await;
    }
}

fn script(text: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command
}

/// The name of something in the store.
fn key(kind: &str, identity: &str) -> String {
    let hash = digest(&SHA256, identity.as_bytes());
    let mut name = format!("sekisho:{{acme}}:{kind}:");
    for byte in hash.as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn account_key(issuer: &AcmeIssuer) -> String {
    key("account", &issuer.uri)
}

fn number(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

fn unexpected(value: &Value) -> String {
    // A value may be a secret.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    format!("an unexpected answer: {kind}")
}
