//! A key-value service over a Unix socket and shared memory, and a client that comes back when the server does.
//!
//! A request is `set KEY VALUE`, `get KEY` or `list`; a list comes through a channel, one record for each entry.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;

use sekisho_endpoint::{
    Backoff, Code, Config, Endpoint, Manner, NewRequest, ReconnectingClient, Request, Response,
    Service, Services, Work, ipc,
};
use tokio::net::UnixListener;

#[derive(Default)]
struct KeyValue {
    entries: RefCell<BTreeMap<String, String>>,
}

impl Service for KeyValue {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        let text = String::from_utf8_lossy(request.body()).into_owned();
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        let answer = match words[..] {
            ["set", key, value] => {
                self.entries.borrow_mut().insert(key.to_owned(), value.to_owned());
                Ok(Vec::new())
            }
            ["get", key] => match self.entries.borrow().get(key) {
                Some(value) => Ok(value.clone().into_bytes()),
                None => Err((Code::InvalidRequest, format!("there is no {key}"))),
            },
            ["list"] => return Work::later(list(self, response)),
            _ => Err((Code::InvalidRequest, "set KEY VALUE, get KEY or list".to_owned())),
        };
        response.give(answer);
        Work::Done
    }

    fn schema(&self) -> Option<&str> {
        Some("text: set KEY VALUE | get KEY | list (records KEY=VALUE)")
    }
}

async fn list(service: Rc<KeyValue>, response: Response) {
    let Ok(channel) = response.acquire_channel() else { return };
    let entries = service.entries.borrow().clone();
    for (key, value) in entries {
        // A client that reads slowly holds this service back, and no other.
        if channel.write(format!("{key}={value}").as_bytes()).await.is_err() {
            break;
        }
    }
    response.release_channel(channel);
    let _ = response.body(b"");
}

async fn run() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("sekisho-kv-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (unix, shared) = (folder.join("unix"), folder.join("ipc"));
    let mut services = Services::default();
    services.add(100, "kv", Rc::new(KeyValue::default()))?;
    let endpoint = Endpoint::with_control(Config::default(), services)?;
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_unix(UnixListener::bind(&unix)?));
    let listener = UnixListener::bind(&shared)?;
    let memory = ipc::Config::default();
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_ipc(listener, memory));

    let addresses = [format!("unix:{}", unix.display()), format!("ipc:{}", shared.display())];
    for (number, address) in addresses.iter().enumerate() {
        let client = ReconnectingClient::new(address.parse()?, "example", Backoff::default());
        let kv = NewRequest::to_name("kv");
        client.call(&kv.body(format!("set key{number} {address}").as_bytes())).await?;
        let value = client.call(&kv.body(format!("get key{number}").as_bytes())).await?;
        assert_eq!(value, address.as_bytes());
        let mut call = client.start(&kv.body(b"list")).await?;
        while let Some(record) = call.next_record().await? {
            println!("{}", String::from_utf8_lossy(&record));
        }
        call.answer().await?;
    }
    endpoint.shut_down_all(Manner::Graceful).await;
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Runs it.
pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run())
}
