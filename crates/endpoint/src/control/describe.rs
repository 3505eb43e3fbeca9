//! Sessions and services as `control` shows them.

use std::time::Duration;

use prost::Message;
use sekisho_lifecycle::{Manner, RequestId};
use sekisho_service::{Channel, Peer, Services, WriteError};

use super::{Request, ServiceInfo, Session, Sessions};
use crate::session::SessionInfo;

/// Sessions are sent in records of about this size.
const BATCH_BYTES: usize = 16 * 1024;

/// Sends sessions, as many in a record as are well put together.
pub async fn send_sessions(channel: &Channel, sessions: Vec<Session>) -> Result<(), WriteError> {
    let most = BATCH_BYTES.min(channel.record_bytes_max());
    let mut batch = Sessions::default();
    let mut bytes = 0;
    for session in sessions {
        // A tag and a length come before each.
        let more = session.encoded_len() + 8;
        if bytes + more > most && !batch.sessions.is_empty() {
            channel.write(&std::mem::take(&mut batch).encode_to_vec()).await?;
            bytes = 0;
        }
        bytes += more;
        batch.sessions.push(session);
    }
    if !batch.sessions.is_empty() {
        channel.write(&batch.encode_to_vec()).await?;
    }
    Ok(())
}

/// The services as they are listed.
pub fn describe_services(services: &Services) -> Vec<ServiceInfo> {
    let all = services.iter().filter_map(|(number, name)| {
        let service = services.find(number)?;
        Some(ServiceInfo {
            number,
            name: name.to_owned(),
            takes_stream: service.takes_stream(),
            schema: service.schema().unwrap_or_default().to_owned(),
        })
    });
    all.collect()
}

impl Session {
    /// A native session as it is shown; `worker` names its thread.
    pub fn of(info: SessionInfo, worker: &str) -> Self {
        let requests = info.requests.into_iter().map(|request| Request {
            id: shown_number(request.id),
            handler: request.service_name.unwrap_or_else(|| format!("service {}", request.service)),
            state: request.state.to_string(),
            age_millis: millis(request.age),
            cancelled: request.cancelled.map_or("", |cause| cause.tag()).to_owned(),
            ..Request::default()
        });
        Self {
            node: String::new(),
            id: info.id,
            protocol: "native".to_owned(),
            peer: shown_peer(&info.peer),
            label: info.label,
            application: info.application,
            admin: info.is_admin,
            state: info.state.to_string(),
            asked: match info.asked {
                None => "",
                Some(Manner::Graceful) => "graceful",
                Some(Manner::Forceful) => "forceful",
            }
            .to_owned(),
            age_millis: millis(info.age),
            deadline: info.deadline.map_or("", |(deadline, _)| deadline.kind.tag()).to_owned(),
            deadline_millis: info.deadline.map_or(0, |(_, left)| millis(left)),
            received_bytes: info.received_bytes,
            sent_bytes: info.sent_bytes,
            requests_total: info.requests_total,
            worker: worker.to_owned(),
            requests: requests.collect(),
            identity: info.identity.to_string(),
        }
    }
}

/// A peer as lists and logs show it.
pub fn shown_peer(peer: &Peer) -> String {
    match peer {
        Peer::Tcp(address) => address.to_string(),
        Peer::Local { uid, pid: Some(pid) } => format!("uid {uid}, pid {pid}"),
        Peer::Local { uid, pid: None } => format!("uid {uid}"),
        Peer::Loopback => "this process".to_owned(),
        Peer::Unknown => "unknown".to_owned(),
    }
}

/// A request's number as it is shown: from 1 on, as HTTP's are.
const fn shown_number(RequestId(id): RequestId) -> u64 {
    id + 1
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
