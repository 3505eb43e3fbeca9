//! The life of a node in its cluster: it connects, announces itself, asks and answers, and connects again when the
//! connection is lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use sekisho_config::Level;
use sekisho_endpoint::control::{self, ControlRequest, NodeInfo, NodeList, What};
use sekisho_endpoint::remote::{RemoteCall, Returned};
use sekisho_endpoint::{Caller, Code, ControlAccess, Identity, Peer};
use sekisho_lifecycle::Moment;
use sekisho_nats::{Message, Operation, is_token};
use sekisho_net::{Clock, Site};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::connection::Connection;
use super::message::{Announcement, Content, Description, Failure, Reply, Request};
use super::peers::{ANNOUNCE_EVERY, EXPECT_WITHIN, PEERS_MAX, Peers};
use super::{Answer, Membership, Part, Question, Setting};

/// How long nodes have to describe themselves.
const DESCRIBE_LIMIT: Duration = Duration::from_millis(500);
/// The others announce themselves to a newcomer within this time.
const KNOWS_ALL_AFTER: Duration = Duration::from_secs(1);
/// A process that another one has replaced announces itself for no longer than this.
const REPLACED_WITHIN: Duration = Duration::from_secs(3);
/// So many other processes with the name of this node are told apart.
const NAMESAKES_MAX: usize = 8;
/// How long a node may be silent while it answers: a reload reads files.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// So many requests of other nodes run at a time.
const REQUESTS_MAX: usize = 64;
/// A server that says nothing for so long is asked whether it is there, and then given up.
const PING_AFTER: Duration = Duration::from_secs(15);
const LOST_AFTER: Duration = Duration::from_secs(30);
/// Pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long running answers may take when this node leaves.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// So many parts of answers wait to be sent.
const REPLIES_MAX: usize = 16;

/// The subscriptions.
const ANNOUNCED: u64 = 1;
const DESCRIBED: u64 = 2;
const ASKED: u64 = 3;
const INBOX: u64 = 4;

/// Lives in one cluster after the other, as configurations say.
pub(super) async fn run(
    mut changes: watch::Receiver<Setting>,
    mut questions: UnboundedReceiver<Question>,
    calls: UnboundedSender<RemoteCall>,
    started: Instant,
) {
    loop {
        let Setting { membership, site } = changes.borrow_and_update().clone();
        let Some(membership) = membership else {
            tokio::select! {
                it = changes.changed() => if it.is_err() { return },
                Some(question) = questions.recv() => refuse(question, "this server is in no cluster"),
            }
            continue;
        };
        let mut view = View::new(membership, site, calls.clone(), Clock::new(started));
        loop {
            tokio::select! {
                () = view.live(&mut questions) => {}
                it = changes.changed() => if it.is_err() { return },
            }
            let next = changes.borrow_and_update().clone();
            // A reload that says the same about the cluster changes the log at most: answers under way go on.
            if !next.membership.is_some_and(|next| next.is_same(&view.membership)) {
                break;
            }
            view.site = next.site;
        }
        changes.mark_changed();
        view.leave().await;
    }
}

fn refuse(question: Question, why: &str) {
    let error = (Code::ServiceUnavailable, why.to_owned());
    // An asker that has gone needs no answer.
    match question {
        Question::Nodes(asker) => _ = asker.send(Err(error)),
        Question::Control { parts, .. } => _ = parts.try_send(Part::Answer(Err(error))),
    }
}

/// A message to be sent: subject and body.
type Outgoing = (String, Vec<u8>);

/// A question that is under way.
enum Pending {
    Nodes {
        asker: Option<oneshot::Sender<Result<NodeList, (Code, String)>>>,
        found: Vec<NodeInfo>,
        awaited: BTreeSet<String>,
    },
    Control {
        node: String,
        parts: Sender<Part>,
        next: u64,
    },
}

/// Another process with the name of this node.
struct Namesake {
    since: Moment,
    is_told: bool,
}

/// A node in a cluster.
struct View {
    membership: Arc<Membership>,
    site: Arc<Site>,
    calls: UnboundedSender<RemoteCall>,
    clock: Clock,
    /// Of this process.
    instance: String,
    inbox: String,
    connection: Option<Connection>,
    /// When the server last said something, and when this node joined.
    heard: Moment,
    joined: Moment,
    announce_at: Moment,
    peers: Peers,
    /// Other processes with the name of this node.
    namesakes: HashMap<String, Namesake>,
    next_question: u64,
    pending: HashMap<u64, (Moment, Pending)>,
    tasks: JoinSet<()>,
    replies: (Sender<Outgoing>, Receiver<Outgoing>),
    attempts: usize,
    pause: Duration,
    /// Why there is no connection, once that was logged.
    away: Option<String>,
}

impl View {
    fn new(
        membership: Arc<Membership>,
        site: Arc<Site>,
        calls: UnboundedSender<RemoteCall>,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        Self {
            membership,
            site,
            calls,
            clock,
            instance: random(),
            inbox: format!("_INBOX.{}", random()),
            connection: None,
            heard: now,
            joined: now,
            announce_at: now,
            peers: Peers::default(),
            namesakes: HashMap::new(),
            next_question: 0,
            pending: HashMap::new(),
            tasks: JoinSet::new(),
            replies: mpsc::channel(REPLIES_MAX),
            attempts: 0,
            pause: PAUSE_MIN,
            away: None,
        }
    }

    /// Goes on until it is dropped; what was under way goes on when it is called again.
    async fn live(&mut self, questions: &mut UnboundedReceiver<Question>) {
        loop {
            let Some(connection) = self.connection.take() else {
                self.connect(questions).await;
                continue;
            };
            self.connection = Some(connection);
            if let Err(why) = self.turn(questions).await {
                self.lose(&why);
            }
        }
    }

    /// Tries one server; without success it pauses. Questions wait for the first attempt, and are refused later.
    async fn connect(&mut self, questions: &mut UnboundedReceiver<Question>) {
        let servers = &self.membership.servers;
        let address = servers[self.attempts % servers.len()].clone();
        self.attempts += 1;
        let membership = Arc::clone(&self.membership);
        let mut opening = Box::pin(Connection::open(&membership, &address));
        let opened = loop {
            let why = self.away.as_deref();
            tokio::select! {
                opened = &mut opening => break opened,
                Some(question) = questions.recv(), if why.is_some() => {
                    refuse(question, why.unwrap_or_default());
                }
            }
        };
        let greeted = match opened {
            Ok(connection) => {
                self.connection = Some(connection);
                self.greet().await
            }
            Err(why) => Err(why),
        };
        let (cluster, node) = (self.membership.cluster.clone(), self.membership.node.clone());
        match greeted {
            Ok(()) => {
                (self.pause, self.away) = (PAUSE_MIN, None);
                let text = format_args!("joined cluster \"{cluster}\" as \"{node}\" at {address}");
                self.log(Level::Notice, text);
            }
            Err(why) => {
                self.lose(&format!("{address}: {why}"));
                let pause = tokio::time::sleep(self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                tokio::pin!(pause);
                let why = self.away.clone().unwrap_or_default();
                loop {
                    tokio::select! {
                        () = &mut pause => break,
                        Some(question) = questions.recv() => refuse(question, &why),
                    }
                }
            }
        }
    }

    /// Subscribes and says that this node is there.
    async fn greet(&mut self) -> Result<(), String> {
        let (cluster, node) = (&self.membership.cluster, &self.membership.node);
        let mut out = Vec::new();
        sekisho_nats::subscribe(&mut out, &format!("sekisho.{cluster}.announce"), None, ANNOUNCED);
        sekisho_nats::subscribe(&mut out, &format!("sekisho.{cluster}.nodes"), None, DESCRIBED);
        // Of two processes of this name one is asked.
        let own = format!("sekisho.{cluster}.node.{node}");
        sekisho_nats::subscribe(&mut out, &own, Some("node"), ASKED);
        sekisho_nats::subscribe(&mut out, &format!("{}.*", self.inbox), None, INBOX);
        self.announce(&mut out, false);
        self.heard = self.clock.now();
        self.joined = self.heard;
        self.send(&out).await
    }

    fn announce(&mut self, out: &mut Vec<u8>, is_leaving: bool) {
        let (node, instance) = (self.membership.node.clone(), self.instance.clone());
        let body = Announcement { node, instance, is_leaving }.encode_to_vec();
        let subject = format!("sekisho.{}.announce", self.membership.cluster);
        sekisho_nats::publish(out, &subject, None, &body);
        self.announce_at = self.clock.now() + ANNOUNCE_EVERY;
    }

    async fn send(&mut self, out: &[u8]) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) if !out.is_empty() => connection.send(out).await,
            _ => Ok(()),
        }
    }

    /// The connection is lost: so is what was asked over it.
    fn lose(&mut self, why: &str) {
        self.connection = None;
        let why = format!("NATS is away: {why}");
        for (_, (_, pending)) in std::mem::take(&mut self.pending) {
            self.end(pending, Some(&why));
        }
        if self.away.is_none() {
            let cluster = self.membership.cluster.clone();
            self.log(Level::Error, format_args!("cluster \"{cluster}\": {why}"));
        }
        self.away = Some(why);
    }

    /// One event.
    async fn turn(&mut self, questions: &mut UnboundedReceiver<Question>) -> Result<(), String> {
        let now = self.clock.now();
        let due = self.pending.values().map(|(due, _)| *due).chain([self.announce_at]).min();
        let wait = due.map_or(ANNOUNCE_EVERY, |due| due.since(now));
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let mut out = Vec::new();
        tokio::select! {
            operation = connection.next() => {
                let operation = operation?;
                self.heard = self.clock.now();
                self.take(operation, &mut out)?;
            }
            Some(question) = questions.recv() => self.ask(question, &mut out),
            Some((subject, body)) = self.replies.1.recv() => {
                sekisho_nats::publish(&mut out, &subject, None, &body);
            }
            () = tokio::time::sleep(wait) => {}
        }
        self.look_at_time(&mut out)?;
        while self.tasks.try_join_next().is_some() {}
        self.send(&out).await
    }

    fn look_at_time(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let now = self.clock.now();
        if self.announce_at.is_due(now) {
            self.announce(out, false);
            let silence = now.since(self.heard);
            if silence >= LOST_AFTER {
                return Err(format!("it said nothing for {} s", silence.as_secs()));
            }
            if silence >= PING_AFTER {
                sekisho_nats::ping(out);
            }
        }
        let is_due = |(_, (due, _)): &(&u64, &(Moment, Pending))| due.is_due(now);
        let due: Vec<u64> = self.pending.iter().filter(is_due).map(|(number, _)| *number).collect();
        for number in due {
            if let Some((_, pending)) = self.pending.remove(&number) {
                self.end(pending, None);
            }
        }
        Ok(())
    }

    /// Ends a question that got no answer, or not from all.
    fn end(&self, pending: Pending, why: Option<&str>) {
        match pending {
            Pending::Nodes { asker: Some(asker), found, awaited } => {
                let _ = asker.send(match why {
                    Some(why) => Err((Code::ServiceUnavailable, why.to_owned())),
                    None => Ok(self.list(found, &awaited)),
                });
            }
            Pending::Nodes { asker: None, .. } => {}
            Pending::Control { node, parts, .. } => {
                let silent = format!("node \"{node}\" did not answer in time");
                let text = why.map_or(silent, str::to_owned);
                let _ = parts.try_send(Part::Answer(Err((Code::ServiceUnavailable, text))));
            }
        }
    }

    /// Those that described themselves, and those that should have.
    fn list(&self, mut found: Vec<NodeInfo>, awaited: &BTreeSet<String>) -> NodeList {
        let now = self.clock.now();
        for (node, ago) in self.peers.all(now) {
            if awaited.contains(node) || !found.iter().any(|of| of.name == node) {
                let heard_millis = ago.as_millis() as u64;
                let name = node.to_owned();
                found.push(NodeInfo { name, is_silent: true, heard_millis, ..NodeInfo::default() });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let Membership { cluster, node, .. } = &*self.membership;
        NodeList { cluster: cluster.clone(), node: node.clone(), nodes: found }
    }

    fn ask(&mut self, question: Question, out: &mut Vec<u8>) {
        let (now, cluster) = (self.clock.now(), &self.membership.cluster);
        self.next_question += 1;
        let number = self.next_question;
        let inbox = format!("{}.{number}", self.inbox);
        let pending = match question {
            Question::Nodes(asker) => {
                let subject = format!("sekisho.{cluster}.nodes");
                sekisho_nats::publish(out, &subject, Some(&inbox), b"");
                let fresh = self.peers.all(now).filter(|(_, ago)| *ago < EXPECT_WITHIN);
                let awaited = fresh.map(|(node, _)| node.to_owned()).collect();
                let pending = Pending::Nodes { asker: Some(asker), found: Vec::new(), awaited };
                (now + DESCRIBE_LIMIT, pending)
            }
            Question::Control { node, asker, body, parts } => {
                let asker = format!("{asker} at node {}", self.membership.node);
                let subject = format!("sekisho.{cluster}.node.{node}");
                let body = Request { asker, body }.encode_to_vec();
                let bytes_max = self.connection.as_ref().map_or(0, |of| of.payload_bytes_max);
                if body.len() > bytes_max {
                    let text = format!("the request is longer than NATS takes ({bytes_max} bytes)");
                    let error = (Code::ResourceLimitReached, text);
                    let _ = parts.try_send(Part::Answer(Err(error)));
                    return;
                }
                sekisho_nats::publish(out, &subject, Some(&inbox), &body);
                (now + ANSWER_LIMIT, Pending::Control { node, parts, next: 0 })
            }
        };
        self.pending.insert(number, pending);
    }

    fn take(&mut self, operation: Operation, out: &mut Vec<u8>) -> Result<(), String> {
        match operation {
            Operation::Ping => sekisho_nats::pong(out),
            Operation::Error(why) => {
                // Whatever this node may not do, others shall know.
                self.log(Level::Error, format_args!("NATS: {why}"));
                if !why.to_ascii_lowercase().starts_with("permissions violation") {
                    return Err(why);
                }
            }
            Operation::Message(message) => self.take_message(&message, out),
            Operation::Info(_) | Operation::Pong | Operation::Ok => {}
        }
        Ok(())
    }

    fn take_message(&mut self, message: &Message, out: &mut Vec<u8>) {
        match (message.subscription, message.reply.clone()) {
            (ANNOUNCED, _) => self.hear(message, out),
            (DESCRIBED, Some(reply)) => self.describe(reply),
            (ASKED, Some(reply)) => self.answer(message, reply, out),
            (INBOX, _) => self.take_reply(message),
            _ => {}
        }
    }

    fn hear(&mut self, message: &Message, out: &mut Vec<u8>) {
        let of = Announcement::decode(&*message.payload).ok();
        let Some(of) = of.filter(|of| is_token(of.node.as_bytes())) else { return };
        let now = self.clock.now();
        let is_own = of.node == self.membership.node;
        if is_own && of.instance != self.instance {
            self.hear_namesake(&of, out);
            return;
        }
        let is_new = self.peers.hear(&of, now);
        // A newcomer hears of the others at once.
        if is_new && !is_own {
            self.announce(out, false);
        }
    }

    /// Another process of this node's name. One that was replaced leaves soon, or its successor is the one to hear
    /// this; one that goes on announcing itself is another server, and each of the two says so, once.
    fn hear_namesake(&mut self, of: &Announcement, out: &mut Vec<u8>) {
        let now = self.clock.now();
        if of.is_leaving {
            self.namesakes.remove(&of.instance);
            return;
        }
        let has_room = self.namesakes.len() < NAMESAKES_MAX;
        match self.namesakes.get_mut(&of.instance) {
            None if has_room => {
                let instance = of.instance.clone();
                self.namesakes.insert(instance, Namesake { since: now, is_told: false });
                // It hears of this one at once, too.
                self.announce(out, false);
            }
            Some(namesake) if !namesake.is_told && now.since(namesake.since) >= REPLACED_WITHIN => {
                namesake.is_told = true;
                let text = format_args!("another server calls itself node \"{}\", too", of.node);
                self.log(Level::Warn, text);
            }
            _ => {}
        }
    }

    /// What this node is, for one that asks.
    fn describe(&mut self, reply: String) {
        if self.tasks.len() >= REQUESTS_MAX {
            return;
        }
        let body = ControlRequest::from(What::DescribeNode(control::DescribeNode {}));
        let Some(mut returned) = self.call(Identity::Anonymous, body.encode_to_vec()) else {
            return;
        };
        let (name, instance) = (self.membership.node.clone(), self.instance.clone());
        let replies = self.replies.0.clone();
        self.tasks.spawn(async move {
            let answer = tokio::time::timeout(DESCRIBE_LIMIT, returned.answer()).await;
            if let Ok(Ok(body)) = answer
                && let Ok(node) = NodeInfo::decode(&*body)
            {
                let node = Some(NodeInfo { name, ..node });
                let body = Description { node, instance }.encode_to_vec();
                let _ = replies.send((reply, body)).await;
            }
        });
    }

    /// A request to the service `control` of this process.
    fn call(&self, identity: Identity, body: Vec<u8>) -> Option<Returned> {
        let control = ControlAccess::Full;
        let caller = Caller { session: 0, peer: Peer::Unknown, identity, control };
        // The node that asked has looked at what its operator may do.
        let (call, returned) = RemoteCall::new(caller, control::NUMBER, body);
        self.calls.send(call).ok().map(|()| returned)
    }

    /// Another node asks.
    fn answer(&mut self, message: &Message, reply: String, out: &mut Vec<u8>) {
        let refuse = |out: &mut Vec<u8>, text: &str| {
            let body = ending(0, Err((Code::ServiceUnavailable, text.to_owned())));
            sekisho_nats::publish(out, &reply, None, &body);
        };
        let Ok(request) = Request::decode(&*message.payload) else {
            return refuse(out, "the request is not understood");
        };
        if self.tasks.len() >= REQUESTS_MAX {
            return refuse(out, "this node is asked too much at once");
        }
        let operator = Identity::Node(request.asker.into());
        let Some(returned) = self.call(operator, request.body) else {
            return refuse(out, "the server is about to end");
        };
        let bytes_max = self.connection.as_ref().map_or(0, |of| of.payload_bytes_max);
        let replies = self.replies.0.clone();
        self.tasks.spawn(send_back(returned, replies, reply, bytes_max));
    }

    /// A part of an answer to a question of ours.
    fn take_reply(&mut self, message: &Message) {
        let number = message.subject.rsplit('.').next().and_then(|text| text.parse().ok());
        let Some(number) = number else { return };
        let now = self.clock.now();
        let Some((due, pending)) = self.pending.get_mut(&number) else { return };
        let is_over = match pending {
            Pending::Nodes { found, awaited, .. } => {
                let node = Description::decode(&*message.payload).ok().and_then(|of| of.node);
                let is_good = |node: &NodeInfo| is_token(node.name.as_bytes());
                if let Some(node) = node.filter(is_good)
                    && found.len() < PEERS_MAX
                {
                    awaited.remove(&node.name);
                    found.push(node);
                }
                // Nobody but this node itself may be there: it answers, too. A newcomer has not heard of all.
                let knows_all = now.since(self.joined) >= KNOWS_ALL_AFTER;
                knows_all && awaited.is_empty() && !found.is_empty()
            }
            Pending::Control { node, parts, next } => {
                *due = now + ANSWER_LIMIT;
                let part = part_of(message, node, next);
                let is_last = matches!(part, Part::Answer(_));
                // An asker that has gone wants no more, and one that does not read gets no more.
                parts.try_send(part).is_err() || is_last
            }
        };
        if is_over && let Some((_, pending @ Pending::Nodes { .. })) = self.pending.remove(&number)
        {
            self.end(pending, None);
        }
    }

    /// Running answers are given; then others are told that this node leaves.
    async fn leave(mut self) {
        let until = tokio::time::sleep(LEAVE_LIMIT);
        tokio::pin!(until);
        let mut out = Vec::new();
        if self.connection.is_some() {
            sekisho_nats::unsubscribe(&mut out, ASKED);
            sekisho_nats::unsubscribe(&mut out, DESCRIBED);
        }
        while self.connection.is_some() {
            if self.send(&out).await.is_err() {
                return;
            }
            out.clear();
            if self.tasks.is_empty() && self.replies.1.is_empty() {
                break;
            }
            tokio::select! {
                _ = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                Some((subject, body)) = self.replies.1.recv() => {
                    sekisho_nats::publish(&mut out, &subject, None, &body);
                }
                () = &mut until => break,
            }
        }
        self.announce(&mut out, true);
        let _ = self.send(&out).await;
        let why = "this server has left the cluster";
        for (_, (_, pending)) in std::mem::take(&mut self.pending) {
            self.end(pending, Some(why));
        }
    }

    fn log(&self, level: Level, message: std::fmt::Arguments<'_>) {
        self.site.log.write(level, self.clock.stamp(self.clock.now()), None, message);
    }
}

/// Sends all of an answer.
async fn send_back(
    mut returned: Returned,
    replies: Sender<Outgoing>,
    reply: String,
    bytes_max: usize,
) {
    let mut number = 0;
    loop {
        let part = tokio::time::timeout(ANSWER_LIMIT, returned.next()).await;
        let (body, is_last) = match part {
            Ok(Ok(record)) => {
                let content = Some(Content::Record(record));
                (Reply { number, content }.encode_to_vec(), false)
            }
            Ok(Err(answer)) => (ending(number, answer), true),
            Err(_) => {
                let text = "the answer took too long".to_owned();
                (ending(number, Err((Code::ServiceUnavailable, text))), true)
            }
        };
        number += 1;
        let (body, is_last) = if body.len() > bytes_max {
            let text = format!("the answer is longer than NATS takes ({bytes_max} bytes)");
            (ending(number - 1, Err((Code::ResourceLimitReached, text))), true)
        } else {
            (body, is_last)
        };
        if replies.send((reply.clone(), body)).await.is_err() || is_last {
            return;
        }
    }
}

/// The last part of an answer.
fn ending(number: u64, answer: Answer) -> Vec<u8> {
    let content = match answer {
        Ok(body) => Content::Result(body),
        Err((code, text)) => Content::Error(Failure { code: code.number(), text }),
    };
    Reply { number, content: Some(content) }.encode_to_vec()
}

/// What a message says about a question to a node.
fn part_of(message: &Message, node: &str, next: &mut u64) -> Part {
    let failed = |text: String| Part::Answer(Err((Code::ServiceUnavailable, text)));
    if message.status == Some(503) {
        return failed(format!("no node \"{node}\" answers: \"ctl nodes\" shows which there are"));
    }
    let Ok(Reply { number, content: Some(content) }) = Reply::decode(&*message.payload) else {
        return failed(format!("the answer of node \"{node}\" is not understood"));
    };
    if number != *next {
        return failed(format!("a part of the answer of node \"{node}\" was lost"));
    }
    *next += 1;
    match content {
        Content::Record(record) => Part::Record(record),
        Content::Result(body) => Part::Answer(Ok(body)),
        Content::Error(Failure { code, text }) => {
            let code = Code::of_number(code);
            Part::Answer(Err((code, format!("node \"{node}\": {text}"))))
        }
    }
}

fn random() -> String {
    let mut bytes = [0; 16];
    // Fails only where there is no randomness at all; then nothing works.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_answer_come_in_their_order_or_the_answer_has_failed() {
        let record = |number| {
            let content = Some(Content::Record(vec![7]));
            let payload = Reply { number, content }.encode_to_vec();
            Message { payload, ..Message::default() }
        };
        let mut next = 0;
        assert!(matches!(part_of(&record(0), "b", &mut next), Part::Record(_)));
        assert!(matches!(part_of(&record(1), "b", &mut next), Part::Record(_)));
        for number in [1, 3, u64::MAX] {
            let Part::Answer(Err((_, text))) = part_of(&record(number), "b", &mut next) else {
                panic!("{number} is not the next");
            };
            assert!(text.contains("was lost"), "{text}");
        }
        let nobody = Message { status: Some(503), ..Message::default() };
        let Part::Answer(Err((_, text))) = part_of(&nobody, "b", &mut next) else {
            panic!("there is nobody");
        };
        assert!(text.contains("no node \"b\""), "{text}");
    }
}
