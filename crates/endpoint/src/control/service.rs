//! `control` for a program that embeds an endpoint: lists services and sessions, shows, cancels and ends them. What only
//! a server can do, such as a reload, is `UNSUPPORTED_OPERATION`. Callers have the
//! access that the authenticator gave them: none, to look, or full.

use std::rc::{Rc, Weak};

use prost::Message;
use sekisho_lifecycle::{Manner, RequestId};
use sekisho_service::{Code, ControlAccess, Request, Response, Service, Work, WriteError};

use super::{
    Cancel, ControlRequest, Finding, Listed, Outcome, SCHEMA, ServiceList, Session, ShutDown, What,
    describe_services, send_sessions,
};
use crate::endpoint::{Endpoint, FindError};

/// The service.
pub(crate) struct EndpointControl(pub(crate) Weak<Endpoint>);

type Failure = (Code, String);

impl Service for EndpointControl {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        Work::later(async move {
            let answer = self.answer(&request, &response).await;
            response.give(answer);
        })
    }

    fn schema(&self) -> Option<&str> {
        Some(SCHEMA)
    }
}

impl EndpointControl {
    async fn answer(&self, request: &Request, response: &Response) -> Result<Vec<u8>, Failure> {
        let access = request.caller().control;
        if access == ControlAccess::None {
            let text = "the caller may not control this endpoint".to_owned();
            return Err((Code::PermissionError, text));
        }
        let asked = ControlRequest::decode(request.body())
            .map_err(|error| (Code::InvalidRequest, error.to_string()))?;
        if access == ControlAccess::Read && asked.what.as_ref().is_none_or(What::is_change) {
            return Err((Code::PermissionError, "the caller may only look".to_owned()));
        }
        let Some(endpoint) = self.0.upgrade() else {
            return Err((Code::ServiceUnavailable, "the endpoint has ended".to_owned()));
        };
        match asked.what {
            Some(What::List(_)) => Ok(list(&endpoint, response).await?.encode_to_vec()),
            Some(What::Show(of)) => Ok(show(&endpoint, &of.reference).encode_to_vec()),
            Some(What::Cancel(command)) => Ok(cancel(&endpoint, &command).encode_to_vec()),
            Some(What::ShutDown(command)) => Ok(shut_down(&endpoint, &command).encode_to_vec()),
            Some(What::ListServices(_)) => {
                let services = describe_services(endpoint.services());
                Ok(ServiceList { services }.encode_to_vec())
            }
            _ => Err((Code::UnsupportedOperation, "not offered by this endpoint".to_owned())),
        }
    }
}

async fn list(endpoint: &Endpoint, response: &Response) -> Result<Listed, Failure> {
    let failed = |error: &dyn std::error::Error| (Code::ResourceLimitReached, error.to_string());
    let channel = response.acquire_channel().map_err(|error| failed(&error))?;
    let sessions: Vec<Session> =
        endpoint.list().into_iter().map(|info| Session::of(info, "")).collect();
    let count = sessions.len() as u64;
    let sent = send_sessions(&channel, sessions).await;
    response.release_channel(channel);
    match sent {
        Ok(()) | Err(WriteError::Unwanted) => Ok(Listed { count, silent_workers: 0 }),
        Err(error) => Err(failed(&error)),
    }
}

fn find(endpoint: &Endpoint, reference: &str) -> Result<Session, Outcome> {
    let shown = |id| endpoint.show(id).map(|info| Session::of(info, ""));
    let none = || Outcome { finding: Finding::NotFound.into(), ..Outcome::default() };
    match endpoint.find(reference) {
        Ok(id) => shown(id).ok_or_else(none),
        Err(FindError::None) => Err(none()),
        Err(FindError::Ambiguous(ids)) => {
            let sessions = ids.into_iter().filter_map(shown).collect();
            Err(Outcome { finding: Finding::Ambiguous.into(), sessions, cancelled: 0 })
        }
    }
}

fn show(endpoint: &Endpoint, reference: &str) -> Outcome {
    match find(endpoint, reference) {
        Ok(session) => done(session),
        Err(outcome) => outcome,
    }
}

fn cancel(endpoint: &Endpoint, command: &Cancel) -> Outcome {
    let session = match find(endpoint, &command.reference) {
        Ok(session) => session,
        Err(outcome) => return outcome,
    };
    let meant = session.requests.iter().map(|request| request.id);
    let meant = meant.filter(|id| command.request == 0 || command.request == *id);
    // They are shown from 1 on.
    let ids = meant.map(|id| RequestId(id.saturating_sub(1)));
    let cancelled = ids.filter(|id| endpoint.cancel(session.id, *id)).count() as u64;
    let finding = if cancelled == 0 { Finding::NothingRuns } else { Finding::Done };
    Outcome { finding: finding.into(), cancelled, ..done(session) }
}

fn shut_down(endpoint: &Endpoint, command: &ShutDown) -> Outcome {
    let session = match find(endpoint, &command.reference) {
        Ok(session) => session,
        Err(outcome) => return outcome,
    };
    let manner = if command.forceful { Manner::Forceful } else { Manner::Graceful };
    endpoint.shut_down(session.id, manner);
    done(session)
}

fn done(session: Session) -> Outcome {
    Outcome { finding: Finding::Done.into(), sessions: vec![session], cancelled: 0 }
}
