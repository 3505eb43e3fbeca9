//! A headless Chromium, driven over its debugging pipe: two named pipes that a shell puts where Chromium
//! looks for them, and JSON messages that end with a NUL. Killed and waited for, by its id, when dropped.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use base64::Engine;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sekisho_testkit::{Stopwatch, Tree, pause};
use serde_json::{Value, json};

/// How long anything in the browser may take, on a loaded machine too.
const PATIENCE: Duration = Duration::from_mins(1);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    orders: File,
    answers: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    tree: Tree,
}

impl Browser {
    /// Starts one with an empty page.
    pub(crate) fn start() -> Self {
        let tree = Tree::new();
        let pipe = |name: &str| {
            let path = tree.path(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
            // Open at both ends: opening does not block.
            (path.clone(), File::options().read(true).write(true).open(path).expect("opened"))
        };
        let ((orders_path, orders), (answers_path, from_browser)) =
            (pipe("orders"), pipe("answers"));
        let profile = tree.folder("profile");
        let child = Command::new("sh")
            .arg("-c")
            .arg("exec chromium \"$@\" 3<\"$ORDERS\" 4>\"$ANSWERS\"")
            .arg("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .env("ORDERS", orders_path)
            .env("ANSWERS", answers_path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(tree.path("stderr")).expect("a file"))
            .spawn()
            .expect("a shell");
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut from_browser = from_browser;
            let (mut waiting, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(count @ 1..) = from_browser.read(&mut buffer) {
                waiting.extend_from_slice(&buffer[..count]);
                while let Some(end) = waiting.iter().position(|byte| *byte == 0) {
                    let message = serde_json::from_slice(&waiting[..end]);
                    waiting.drain(..=end);
                    if message.is_ok_and(|message| sender.send(message).is_err()) {
                        return;
                    }
                }
            }
        });
        let mut browser = Self { child, orders, answers, last_id: 0, session: None, tree };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        // What a policy forbids is remembered by the page itself.
        let source = "addEventListener('securitypolicyviolation', event => \
                      (window.violations ??= []).push(event.violatedDirective + ' ' + event.blockedURI))";
        browser.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": source }));
        browser
    }

    /// Calls a method of the debugging protocol.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).expect("the browser reads");
        let watch = Stopwatch::start();
        loop {
            let answer = self.answers.recv_timeout(watch.left_of(PATIENCE));
            let Ok(mut answer) = answer else {
                panic!("{method}: no answer\n{}", self.tree.text("stderr"))
            };
            if answer["id"] == json!(id) {
                // The page has gone on to another one meanwhile, as the expression may have wanted.
                if answer["error"]["message"] == json!("Inspected target navigated or closed") {
                    return Value::Null;
                }
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
        }
    }

    /// The value of an expression; a promise is waited for.
    #[track_caller]
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let mut result = self.call("Runtime.evaluate", &params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait(&mut self, expression: &str) {
        let watch = Stopwatch::start();
        while self.eval(&format!("Boolean({expression})")) != json!(true) {
            if watch.elapsed() > PATIENCE {
                let page = self.eval("document.body.innerText");
                panic!("never: {expression}\n{page}");
            }
            pause(Duration::from_millis(20));
        }
    }

    /// Opens a page and waits for it.
    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.wait(&format!(
            "document.readyState === 'complete' && location.href === {}",
            json!(url)
        ));
    }

    /// Drops files onto the middle of an element, as a person does.
    #[track_caller]
    pub(crate) fn drop_files(&mut self, selector: &str, files: &[String]) {
        let place = self.eval(&format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2] }})()",
            json!(selector)
        ));
        for kind in ["dragEnter", "dragOver", "drop"] {
            let data = json!({ "items": [], "files": files, "dragOperationsMask": 1 });
            let event = json!({ "type": kind, "x": place[0], "y": place[1], "data": data });
            self.call("Input.dispatchDragEvent", &event);
        }
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if key.len() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", &down);
        self.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
    }

    /// What axe-core finds wrong with the page.
    #[track_caller]
    pub(crate) fn accessibility_errors(&mut self) -> Vec<String> {
        self.eval(include_str!("axe/axe.min.js").trim_end());
        let found = self.eval(
            "axe.run().then(found => found.violations.map(rule => \
             rule.id + ': ' + rule.nodes.map(node => node.html).join(' | ')))",
        );
        let found = found.as_array().expect("a list");
        found.iter().map(|rule| rule.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Keeps a picture of the page for the documentation, where that is asked for.
    pub(crate) fn picture(&mut self, name: &str) {
        if std::env::var_os("UPDATE_SCREENSHOTS").is_none() {
            return;
        }
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images");
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(format!("{folder}/{name}.png"), bytes).expect("written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
