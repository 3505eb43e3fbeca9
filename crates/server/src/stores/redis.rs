//! A Redis or Valkey server, a cluster of them, or the primary that their sentinels name. Whatever is decided there is one
//! script, by the store's clock.

use std::path::Path;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError,
    Value,
};
use rustls::pki_types::ServerName;
use sekisho_config::Rate;
use sekisho_handler::limits::Counted;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::client_tls::client_tls;

/// The places of a server that is gone are free after this time.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// One secret of TLS tickets is used for so long, and read for so long after that (RFC 8446 §4.6.1).
const SECRET_USE: Duration = Duration::from_hours(6);
const SECRET_READ: Duration = Duration::from_hours(7 * 24);

/// A leaky bucket in thousandths of a request, as a zone counts: excess and the moment of it. The first request is free.
const RATE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'excess', 'last')
local excess = tonumber(ARGV[1]) * 1000
if known[1] then
  local passed = math.max(now - tonumber(known[2]), 0)
  excess = excess + tonumber(known[1]) - math.floor(passed * tonumber(ARGV[2]) / tonumber(ARGV[3]))
else
  excess = excess - 1000
end
excess = math.max(excess, 0)
redis.call('HSET', KEYS[1], 'excess', excess, 'last', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(excess * tonumber(ARGV[3]) / tonumber(ARGV[2])) + 60000)
return excess";

/// The places of each server, with the end of its lease. Those of others come out.
const PLACES: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(ARGV[2]) > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. (now + tonumber(ARGV[3])))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
local all = redis.call('HGETALL', KEYS[1])
local others = 0
for at = 1, #all, 2 do
  local taken, ends = all[at + 1]:match('(%d+):(%d+)')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] ~= ARGV[1] then
    others = others + tonumber(taken)
  end
end
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[3]))
return others";

/// The secrets of TLS tickets, the newest one first. When that one was used long enough, the offered one is next.
const SECRETS: &str = "
local now = tonumber(redis.call('TIME')[1])
local newest = redis.call('LINDEX', KEYS[1], 0)
if not newest or now >= tonumber(newest:match('^%d+')) + tonumber(ARGV[2]) then
  redis.call('LPUSH', KEYS[1], now .. ' ' .. ARGV[1])
end
local oldest = redis.call('LINDEX', KEYS[1], -1)
while tonumber(oldest:match('^%d+')) + tonumber(ARGV[3]) < now do
  redis.call('RPOP', KEYS[1])
  oldest = redis.call('LINDEX', KEYS[1], -1)
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return table.concat(redis.call('LRANGE', KEYS[1], 0, -1), '\\n')";

/// How a store says that it does not know a script.
const NO_SCRIPT: &str = "NOSCRIPT";

/// What a store is told.
pub(super) struct Told<'a> {
    pub(super) zone: &'a str,
    /// Which server.
    pub(super) node: &'a str,
    /// `None` counts places.
    pub(super) rate: Option<Rate>,
    pub(super) counted: &'a [Counted],
}

/// A store, connected to when it is needed.
pub(crate) struct Store {
    url: String,
    connection: Option<Connection>,
}

enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Store {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), connection: None }
    }

    /// The next message is sent over a new connection.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// The secrets of TLS tickets that all servers share. This one is used next, when there must be a next one.
    pub(super) async fn ticket_secrets(&mut self, candidate: &str) -> Result<String, String> {
        let mut command = redis::cmd("EVAL");
        command.arg(SECRETS).arg(1).arg("sekisho:tickets").arg(candidate);
        let read = SECRET_USE + SECRET_READ;
        command.arg(SECRET_USE.as_secs()).arg(read.as_secs());
        let answer = self.connection().await?.run_one(&command).await;
        match answer.map_err(|error| error.to_string())? {
            Value::BulkString(text) => {
                String::from_utf8(text).map_err(|_| "secrets that are no text".to_owned())
            }
            other => Err(format!("an unexpected answer: {other:?}")),
        }
    }

    /// Sends any other command.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Value, String> {
        self.connection().await?.run_one(command).await.map_err(|error| error.to_string())
    }

    async fn connection(&mut self) -> Result<&mut Connection, String> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                let new = connect(&self.url).await.map_err(|error| error.to_string())?;
                Ok(none.insert(new))
            }
        }
    }

    /// Tells what was counted; for each key, what all have counted.
    pub(super) async fn tell(&mut self, told: &Told<'_>) -> Result<Vec<u64>, String> {
        let shown = |error: RedisError| error.to_string();
        let connection = self.connection().await?;
        if told.counted.is_empty() {
            let pong = connection.run_one(&redis::cmd("PING")).await;
            return pong.map(|_| Vec::new()).map_err(shown);
        }
        let commands = commands(told);
        let mut answers = connection.run(&commands).await.map_err(shown)?;
        let lacks_script = |value: &Value| match value {
            Value::ServerError(error) => error.code() == NO_SCRIPT,
            Value::Nil => true,
            _ => false,
        };
        let lacking: Vec<usize> =
            (0..answers.len()).filter(|at| lacks_script(&answers[*at])).collect();
        if !lacking.is_empty() {
            // These have counted nothing.
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script(told.rate));
            connection.run_one(&load).await.map_err(shown)?;
            let again: Vec<Cmd> = lacking.iter().map(|at| commands[*at].clone()).collect();
            let again = connection.run(&again).await.map_err(shown)?;
            for (at, answer) in lacking.into_iter().zip(again) {
                answers[at] = answer;
            }
        }
        let counts = answers.into_iter().map(|value| match value {
            Value::Int(count) => Ok(u64::try_from(count).unwrap_or(0)),
            other => Err(format!("an unexpected answer: {other:?}")),
        });
        counts.collect()
    }
}

fn script(rate: Option<Rate>) -> &'static str {
    if rate.is_some() { RATE } else { PLACES }
}

fn commands(told: &Told<'_>) -> Vec<Cmd> {
    let sha = redis::Script::new(script(told.rate)).get_hash().to_owned();
    let kind = if told.rate.is_some() { "req" } else { "conn" };
    let of = |Counted { key, count }: &Counted| {
        let mut name = format!("sekisho:{kind}:{}:", told.zone).into_bytes();
        name.extend_from_slice(key);
        let mut command = redis::cmd("EVALSHA");
        command.arg(&sha).arg(1).arg(name);
        match told.rate {
            Some(rate) => command.arg(*count).arg(rate.requests).arg(rate.secs),
            None => command.arg(told.node).arg(*count).arg(LEASE.as_millis() as u64),
        };
        command
    };
    told.counted.iter().map(of).collect()
}

impl Connection {
    /// Runs all of them at once; their answers in the same order.
    async fn run(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::One(connection) => {
                let mut pipeline = redis::pipe();
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                connection.req_packed_commands(&pipeline, 0, commands.len()).await
            }
            // Each key has a server of its own.
            Self::Cluster(connection) => {
                let mut running = JoinSet::new();
                for (at, command) in commands.iter().cloned().enumerate() {
                    let mut connection = connection.clone();
                    running
                        .spawn(async move { (at, connection.req_packed_command(&command).await) });
                }
                let mut answers = vec![Value::Nil; commands.len()];
                while let Some(Ok((at, answer))) = running.join_next().await {
                    answers[at] = match answer {
                        Err(error) if error.code() == Some(NO_SCRIPT) => Value::Nil,
                        answer => answer?,
                    };
                }
                Ok(answers)
            }
        }
    }

    async fn run_one(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::One(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }
    }
}

async fn connect(url: &str) -> Result<Connection, RedisError> {
    let nodes = |list: &str| -> Vec<String> {
        list.split(',').map(|host| format!("redis://{host}")).collect()
    };
    if let Some(list) = url.strip_prefix("redis-cluster://") {
        let client = ClusterClientBuilder::new(nodes(list)).build()?;
        return Ok(Connection::Cluster(client.get_async_connection().await?));
    }
    if let Some(rest) = url.strip_prefix("redis-sentinel://") {
        let (list, name) = rest.split_once('/').unwrap_or((rest, ""));
        let kind = SentinelServerType::Master;
        let mut client = SentinelClient::build(nodes(list), name.to_owned(), None, kind)?;
        return Ok(Connection::One(client.get_async_connection().await?));
    }
    if let Some(rest) = url.strip_prefix("rediss://") {
        return connect_by_tls(rest).await.map(Connection::One);
    }
    let client = Client::open(url)?;
    Ok(Connection::One(client.get_multiplexed_async_connection().await?))
}

/// Over TLS, with the TLS of the server: `host:port/db?ca=/file`.
async fn connect_by_tls(rest: &str) -> Result<MultiplexedConnection, RedisError> {
    let (rest, file) = match rest.split_once("?ca=") {
        Some((rest, file)) => (rest, Some(Path::new(file))),
        None => (rest, None),
    };
    let wrong = |why: String| RedisError::from((ErrorKind::InvalidClientConfig, "TLS", why));
    let info = format!("redis://{rest}").into_connection_info()?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err(wrong("a host is missing".to_owned()));
    };
    let name = ServerName::try_from(host.clone()).map_err(|error| wrong(error.to_string()))?;
    let tls = client_tls(file).map_err(wrong)?;
    let socket = TcpStream::connect((host.as_str(), *port)).await?;
    socket.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(name, socket).await?;
    let (settings, config) = (info.redis_settings(), AsyncConnectionConfig::default());
    let made = MultiplexedConnection::new_with_config(settings, stream, config).await;
    let (connection, driver) = made?;
    tokio::spawn(driver);
    Ok(connection)
}
