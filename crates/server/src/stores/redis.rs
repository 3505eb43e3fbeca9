//! A Redis or Valkey server, a cluster of them, or the primary that their sentinels name. Whatever is decided there is one
//! script, by the store's clock.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::{ClusterConnection, Connect};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    Pipeline, RedisConnectionInfo, RedisError, RedisFuture, Value,
};
use rustls::pki_types::ServerName;
use sekisho_config::Rate;
use sekisho_handler::limits::Counted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::client_tls::client_tls;

/// The places of a server that is gone are free after this time.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// One secret of TLS tickets is used for so long, and read for so long after that (RFC 8446 §4.6.1).
const SECRET_USE: Duration = Duration::from_hours(6);
const SECRET_READ: Duration = Duration::from_hours(7 * 24);

/// No answer to a message is longer. The library keeps what it reads until an answer is complete.
const ANSWER_BYTES_MAX: usize = 4 << 20;

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
    Cluster(ClusterConnection<Node>),
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
        return Ok(Connection::Cluster(client.get_async_generic_connection().await?));
    }
    if let Some(rest) = url.strip_prefix("rediss-cluster://") {
        let several = Several::new(rest, true);
        let known = several.at("localhost")?;
        let settings = known.redis_settings();
        let mut builder = ClusterClientBuilder::new(nodes(&several.hosts))
            .username(carry(several.authority.as_deref(), settings.username()));
        if let Some(password) = settings.password() {
            builder = builder.password(password);
        }
        let client = builder.build()?;
        return Ok(Connection::Cluster(client.get_async_generic_connection().await?));
    }
    if let Some(rest) = url.strip_prefix("redis-sentinel://") {
        return Several::new(rest, false).primary().await.map(Connection::One);
    }
    if let Some(rest) = url.strip_prefix("rediss-sentinel://") {
        return Several::new(rest, true).primary().await.map(Connection::One);
    }
    if let Some(rest) = url.strip_prefix("rediss://") {
        let (rest, authority) = split_authority(rest);
        let info = format!("redis://{rest}").into_connection_info()?;
        let config = AsyncConnectionConfig::default();
        return connect_by_tls(&info, authority, config).await.map(Connection::One);
    }
    let info = url.into_connection_info()?;
    connect_plainly(&info, AsyncConnectionConfig::default()).await.map(Connection::One)
}

/// Several servers: `[user:password@]host:port,host:port[/name][?ca=/file]`.
#[derive(Clone)]
struct Several {
    /// With its `@`; empty where there is none.
    login: String,
    hosts: String,
    name: String,
    is_tls: bool,
    authority: Option<PathBuf>,
}

fn split_authority(rest: &str) -> (&str, Option<&Path>) {
    rest.split_once("?ca=").map_or((rest, None), |(rest, file)| (rest, Some(Path::new(file))))
}

impl Several {
    fn new(rest: &str, is_tls: bool) -> Self {
        let (rest, authority) = split_authority(rest);
        let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = authority.map(Path::to_owned);
        Self { login: login.into(), hosts: hosts.into(), name: name.into(), is_tls, authority }
    }

    /// One of the servers that hold what is stored.
    fn at(&self, host: &str) -> Result<ConnectionInfo, RedisError> {
        format!("redis://{}{host}", self.login).into_connection_info()
    }

    /// The primary that the first sentinel to answer names. All are asked at once: one that is away must not use up the
    /// time that there is.
    async fn primary(self) -> Result<MultiplexedConnection, RedisError> {
        let mut asked = JoinSet::new();
        for sentinel in self.hosts.split(',') {
            asked.spawn(self.clone().named_by(sentinel.to_owned()));
        }
        let mut last = fault("no sentinel answers".to_owned());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(primary)) => return Ok(primary),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn connect(&self, info: ConnectionInfo) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::default();
        if self.is_tls {
            return connect_by_tls(&info, self.authority.as_deref(), config).await;
        }
        connect_plainly(&info, config).await
    }

    async fn named_by(self, sentinel: String) -> Result<MultiplexedConnection, RedisError> {
        let info = format!("redis://{sentinel}").into_connection_info()?;
        let mut connection = self.connect(info).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let found: Option<(String, u16)> = question.query_async(&mut connection).await?;
        let unknown = || fault(format!("the sentinels do not know \"{}\"", self.name));
        let (host, port) = found.ok_or_else(unknown)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let info = self.at(&format!("{host}:{port}"))?;
        let mut primary = self.connect(info).await?;
        // A sentinel may not know yet that it is one no longer.
        match redis::cmd("ROLE").query_async(&mut primary).await? {
            Value::Array(role) if role.first() == Some(&Value::BulkString(b"master".to_vec())) => {
                Ok(primary)
            }
            _ => Err(fault("the sentinels name a server that is no primary".to_owned())),
        }
    }
}

fn fault(why: String) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "store", why))
}

/// Over TLS, with the TLS of the server.
async fn connect_by_tls(
    info: &ConnectionInfo,
    authority: Option<&Path>,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err(fault("a host is missing".to_owned()));
    };
    let name = ServerName::try_from(host.clone()).map_err(|error| fault(error.to_string()))?;
    let tls = client_tls(authority).map_err(fault)?;
    let socket = TcpStream::connect((host.as_str(), *port)).await?;
    socket.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(name, socket).await?;
    speak(stream, info, config).await
}

/// Without TLS: to a port or to a Unix socket.
async fn connect_plainly(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let socket = TcpStream::connect((host.as_str(), *port)).await?;
            socket.set_nodelay(true)?;
            speak(socket, info, config).await
        }
        ConnectionAddr::Unix(path) => speak(UnixStream::connect(path).await?, info, config).await,
        _ => Err(fault("a host is missing".to_owned())),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let stream = Bounded { stream, answer_bytes: 0 };
    let made = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
    let (connection, driver) = made?;
    tokio::spawn(driver);
    Ok(connection)
}

/// A connection that fails where more comes than an answer has.
struct Bounded<S> {
    stream: S,
    /// How much has come since the last message was sent.
    answer_bytes: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.answer_bytes += buffer.filled().len() - before;
        if self.answer_bytes > ANSWER_BYTES_MAX {
            let why = format!("an answer of more than {ANSWER_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answer_bytes = 0;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A server of a cluster.
#[derive(Clone)]
struct Node(MultiplexedConnection);

/// What the user's name begins with where servers of a cluster are spoken to by TLS. The library connects to them by
/// itself, and hands over nothing of ours but this name: it has the file of the authority in it.
const BY_TLS: &str = "\0tls\0";

fn carry(authority: Option<&Path>, user: Option<&str>) -> String {
    let authority = authority.map(Path::to_string_lossy).unwrap_or_default();
    format!("{BY_TLS}{authority}\0{}", user.unwrap_or_default())
}

/// The file of the authority, and the user's name; `None` where nothing was carried.
fn carried(user: &str) -> Option<(Option<&Path>, Option<&str>)> {
    let (authority, user) = user.strip_prefix(BY_TLS)?.split_once('\0')?;
    let given = |text: &'_ str| !text.is_empty();
    Some((Some(authority).filter(|it| given(it)).map(Path::new), Some(user).filter(|it| given(it))))
}

impl Connect for Node {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let info = info.into_connection_info()?;
            let settings = info.redis_settings().clone();
            let Some((authority, user)) = settings.username().and_then(carried) else {
                return connect_plainly(&info, config).await.map(Self);
            };
            let mut own = RedisConnectionInfo::default().set_protocol(settings.protocol());
            if let Some(user) = user {
                own = own.set_username(user);
            }
            if let Some(password) = settings.password() {
                own = own.set_password(password);
            }
            let info = info.clone().set_redis_settings(own);
            connect_by_tls(&info, authority, config).await.map(Self)
        })
    }
}

impl ConnectionLike for Node {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.0.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.0.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_several_servers_has_its_parts() {
        let all = Several::new("u:p@a:1,b:2/main?ca=/f.pem", true);
        assert_eq!((&*all.login, &*all.hosts, &*all.name), ("u:p@", "a:1,b:2", "main"));
        assert_eq!(all.authority.as_deref(), Some(Path::new("/f.pem")));
        let few = Several::new("a:1", false);
        assert_eq!((&*few.login, &*few.hosts, &*few.name), ("", "a:1", ""));
        assert_eq!(few.authority, None);
    }

    #[test]
    fn what_a_name_carries_comes_out_again() {
        for (authority, user) in
            [(None, None), (Some("/f"), None), (None, Some("u")), (Some("/f"), Some("u"))]
        {
            let authority = authority.map(Path::new);
            assert_eq!(carried(&carry(authority, user)), Some((authority, user)));
        }
        assert_eq!(carried("user"), None);
    }
}
