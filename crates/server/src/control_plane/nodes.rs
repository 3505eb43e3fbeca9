//! What operators ask about other nodes of the cluster: passed on, and the answer back.

use std::sync::atomic::Ordering;

use prost::Message;
use sekisho_endpoint::control::{ControlRequest, NodeInfo, NodeList, What};
use sekisho_endpoint::{Code, Response};
use tokio::sync::{mpsc, oneshot};

use super::control::{Failure, check_sent, no_channel};
use super::host::Host;
use super::overview;
use crate::cluster::{Membership, Part, Question};

/// What this node is.
pub(super) async fn describe(host: &Host) -> NodeInfo {
    let of = overview::gather(host).await;
    let is_drained = host.shared.is_drained.load(Ordering::Relaxed);
    NodeInfo {
        name: host.membership().map(|of| of.node.clone()).unwrap_or_default(),
        version: of.version,
        pid: of.pid,
        uptime_millis: of.uptime_millis,
        is_ready: !is_drained && !host.is_ending.get(),
        is_drained,
        sessions: of.idle + of.processing + of.closing,
        processing: of.processing,
        requests: of.requests,
        is_silent: false,
        heard_millis: 0,
    }
}

/// Which nodes there are.
pub(super) async fn list(host: &Host) -> Result<NodeList, Failure> {
    if host.membership().is_none() {
        return Err(no_cluster());
    }
    let (asker, answer) = oneshot::channel();
    host.cluster.send(Question::Nodes(asker)).map_err(|_| ended())?;
    answer.await.map_err(|_| ended())?
}

/// Whether a request is for another node. One to this node by its name needs no cluster that works.
pub(super) fn is_for_another(host: &Host, ask: &ControlRequest) -> bool {
    let is_own = |of: &Membership| of.node == ask.node;
    !ask.node.is_empty() && !host.membership().is_some_and(|of| is_own(&of))
}

/// Has another node answer.
pub(super) async fn pass_on(
    host: &Host,
    mut ask: ControlRequest,
    asker: &str,
    response: &Response,
) -> Result<Vec<u8>, Failure> {
    if host.membership().is_none() {
        return Err(no_cluster());
    }
    if !sekisho_nats::is_token(ask.node.as_bytes()) {
        let text = format!("\"{}\" is no name of a node", ask.node.escape_debug());
        return Err((Code::InvalidRequest, text));
    }
    if matches!(&ask.what, Some(What::Measure(of)) if of.every_millis > 0) {
        let text = "another node's metrics are asked for one at a time".to_owned();
        return Err((Code::UnsupportedOperation, text));
    }
    let node = std::mem::take(&mut ask.node);
    let (parts, mut coming) = mpsc::channel(PARTS_MAX);
    let (asker, body) = (asker.to_owned(), ask.encode_to_vec());
    host.cluster.send(Question::Control { node, asker, body, parts }).map_err(|_| ended())?;
    let mut channel = None;
    loop {
        let part = tokio::select! {
            part = coming.recv() => part.ok_or_else(unread)?,
            () = response.cancelled() => {
                return Err((Code::OperationCancelled, "the caller wants no answer".to_owned()));
            }
        };
        match part {
            Part::Record(record) => {
                let open = match channel.take() {
                    Some(open) => open,
                    None => response.acquire_channel().map_err(no_channel)?,
                };
                let sent = open.write(&record).await;
                channel = Some(open);
                check_sent(sent)?;
            }
            Part::Answer(answer) => {
                if let Some(channel) = channel {
                    response.release_channel(channel);
                }
                return answer;
            }
        }
    }
}

fn no_cluster() -> Failure {
    (Code::ServiceUnavailable, "this server's configuration has no \"cluster\"".to_owned())
}

/// A list of sessions has records of 16 KiB: so many may wait for a caller that reads slowly.
const PARTS_MAX: usize = 1024;

fn unread() -> Failure {
    let text = "the answer of the other node was not read as fast as it came, or the server ends";
    (Code::ResourceLimitReached, text.to_owned())
}

fn ended() -> Failure {
    (Code::ServiceUnavailable, "the server is about to end".to_owned())
}
