//! The pages about the server itself (`status`, `stub_status`): asked of the control plane, which knows all workers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::StatusForm;
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use sekisho_route::ConnectionCounts;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::reply::{Piece, Reply};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work};
use crate::without;

/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The style of the page for people.
pub const STYLE: &str = ":root{color-scheme:light dark;--b:#fff;--f:#1f2328;--d:#59636e;--l:#0969da}\
    @media(prefers-color-scheme:dark){:root{--b:#0d1117;--f:#e6edf3;--d:#9198a1;--l:#4493f8}}\
    body{background:var(--b);color:var(--f);font:14px/1.45 system-ui,sans-serif;margin:1rem auto;padding:0 1rem;max-width:72rem}\
    h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.2rem 0 1rem;color:var(--d)}\
    table{border-collapse:collapse}td,th{text-align:left;padding:.15em .8em .15em 0;\
    border-bottom:1px solid #8884;white-space:nowrap;font-variant-numeric:tabular-nums}\
    dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:.6rem;margin:0}\
    dt{color:var(--d)}dd{margin:0;font-size:1.3em}.s{overflow-x:auto}\
    .c{display:grid;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:1rem}\
    header{display:flex;justify-content:space-between}figure{margin:0}figcaption{display:flex;justify-content:space-between;color:var(--d)}\
    b{color:var(--f)}svg{width:100%;height:3rem;border-bottom:1px solid #8884}\
    polyline{fill:none;stroke:var(--l);stroke-width:1.5;vector-effect:non-scaling-stroke}";
/// The script of the page for people: renews it every 2 s, until that is paused.
pub const SCRIPT: &str = "(()=>{let on=true;const find=name=>document.querySelector(name),\
    button=document.createElement('button');button.type='button';button.textContent='Pause';\
    button.onclick=()=>{on=!on;button.textContent=on?'Pause':'Continue'};find('header').append(button);\
    setInterval(async()=>{if(!on||document.hidden)return;try{\
    const answer=await fetch(location.href,{cache:'no-store'});\
    const page=new DOMParser().parseFromString(await answer.text(),'text/html');\
    find('main').replaceWith(page.querySelector('main'))}catch{}},2000)})()";
/// The policy of the page: its own style and script, and nothing else (V48). A test keeps the digests true.
const POLICY: &str = "default-src 'none'; \
                      style-src 'sha256-PpCANdFa0NTTel5YI52n7DBXzgXUfONFsB0ye9hLinI='; \
                      script-src 'sha256-ycI7sbQbNaIVqcVV/Gd9V0sMLNZc2d6vVdZHCIGEjv0='; connect-src 'self'";

/// Asks how the server is.
#[derive(Debug)]
pub struct StatusQuery {
    /// In which form.
    pub form: StatusForm,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Vec<u8>>,
}

/// A page that waits for its answer.
#[derive(Debug)]
struct StatusTask {
    form: StatusForm,
    stage: StatusStage,
    by: Moment,
    is_head: bool,
}

#[derive(Debug)]
enum StatusStage {
    Waiting(oneshot::Receiver<Vec<u8>>),
    Answered(Vec<u8>),
    Over,
    Failed,
}

/// nginx's `stub_status`.
pub fn counts(connections: ConnectionCounts, accepted: u64, requests: u64) -> String {
    let ConnectionCounts { active, reading, writing, waiting } = connections;
    format!(
        "Active connections: {active} \nserver accepts handled requests\n {accepted} {accepted} {requests} \n\
         Reading: {reading} Writing: {writing} Waiting: {waiting} \n"
    )
}

/// The answer with these counts.
pub fn counts_reply(text: String, fields: &mut Fields) -> Reply {
    fields.push("Content-Type", "text/plain");
    fields.push("Cache-Control", "no-store");
    Reply::of(Status::OK, Piece::Bytes(text.into_bytes()))
}

/// The answer to a health probe.
pub fn health_reply(is_ready: bool, fields: &mut Fields) -> Reply {
    fields.push("Content-Type", "text/plain");
    fields.push("Cache-Control", "no-store");
    if is_ready {
        Reply::of(Status::OK, Piece::Static(b"ready\n"))
    } else {
        Reply::of(Status::SERVICE_UNAVAILABLE, Piece::Static(b"draining\n"))
    }
}

/// Asks, and makes a page of the answer.
pub fn start(
    asked: Option<&UnboundedSender<StatusQuery>>,
    form: StatusForm,
    is_head: bool,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let asked = asked.ok_or(Status::SERVICE_UNAVAILABLE)?;
    let (answer, answered) = oneshot::channel();
    asked.send(StatusQuery { form, answer }).map_err(|_| Status::SERVICE_UNAVAILABLE)?;
    Ok(Box::new(StatusTask {
        form,
        stage: StatusStage::Waiting(answered),
        by: now + LIMIT,
        is_head,
    }))
}

impl Work for StatusTask {
    without!(hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        match std::mem::replace(&mut self.stage, StatusStage::Over) {
            StatusStage::Waiting(mut answered) => match Pin::new(&mut answered).poll(cx) {
                Poll::Ready(Ok(text)) => {
                    let media_type = match self.form {
                        StatusForm::Page => "text/html; charset=utf-8",
                        StatusForm::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
                        StatusForm::Counts
                        | StatusForm::Ready
                        | StatusForm::Live
                        | StatusForm::Pixel => "text/plain",
                    };
                    out.fields.push("Content-Type", media_type);
                    out.fields.push("Cache-Control", "no-store");
                    if self.form == StatusForm::Page {
                        out.fields.push("Content-Security-Policy", POLICY);
                        out.fields.push("X-Content-Type-Options", "nosniff");
                    }
                    let length = text.len() as u64;
                    self.stage =
                        if self.is_head { StatusStage::Over } else { StatusStage::Answered(text) };
                    Poll::Ready(Progress::Head(Status::OK, Some(length)))
                }
                Poll::Ready(Err(_)) => Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
                Poll::Pending if self.by.is_due(now) => {
                    Poll::Ready(Progress::Fail(Status::GATEWAY_TIMEOUT))
                }
                Poll::Pending => {
                    self.stage = StatusStage::Waiting(answered);
                    Poll::Pending
                }
            },
            StatusStage::Answered(text) => {
                out.body.extend_from_slice(&text);
                Poll::Ready(Progress::Body)
            }
            StatusStage::Over => Poll::Ready(Progress::Done),
            StatusStage::Failed => Poll::Ready(Progress::Fail(Status::SERVICE_UNAVAILABLE)),
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let is_waiting = matches!(self.stage, StatusStage::Waiting(_));
        is_waiting.then_some(Deadline { at: self.by, kind: DeadlineKind::Wait })
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        if let StatusStage::Waiting(_) = self.stage {
            self.stage = StatusStage::Failed;
        }
    }
}

impl BodyIn for StatusTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for StatusTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "status"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V48
    #[test]
    fn the_policy_names_the_style_of_the_page() {
        use base64::Engine as _;
        use sha2::Digest as _;
        for text in [STYLE, SCRIPT] {
            let digest =
                base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(text));
            assert!(POLICY.contains(&digest), "it is {digest}");
        }
    }
}
