//! A cache whose files do not respond (O10). A FIFO in the place of an entry makes the thread that opens it wait, as a
//! disk that hangs does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sekisho_testkit::{Client, Tree, eventually};

use crate::backend::Backend;
use crate::cache::status;
use crate::common::{LONG, serve};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// O10: a request whose entry cannot be read is passed on in time; entries in memory and other files do not wait.
#[test]
fn a_stuck_cache_is_passed_by() {
    let backend = Backend::start(move |connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "Cache-Control: max-age=600\r\n", "served");
        }
    });
    let to = backend.address();
    let config = format!(
        "proxy_cache one; proxy_cache_key $uri;
         location /static/ {{ root {{root}}; dav_methods PUT; create_full_put_path on; proxy_cache off; }}
         location / {{ proxy_pass http://{to}; add_header X-Cache $upstream_cache_status; }}
         }} proxy_cache_path {{dir}}/cache keys_zone=one:1m; server {{ listen 127.0.0.1:{{port2}};"
    );
    let server = serve(Tree::new(), &config);
    let folder = server.tree().path("cache");
    for at in 0..40 {
        eventually("it is kept", LONG, || {
            status(&server.connect().get(&format!("/{at}"))) == "HIT"
        });
    }
    for path in files(&folder) {
        std::fs::remove_file(&path).expect("removed");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    }
    // A file that has not changed for a moment is kept in memory when it is read.
    let kept = sekisho_testkit::now();
    eventually("one is in memory", LONG, || {
        status(&server.connect().get("/hot")) == "HIT"
            && kept.elapsed() > Duration::from_millis(100)
    });
    let begun = sekisho_testkit::now();
    let ask = |at: usize| {
        let mut client = server.connect().with_patience(LONG);
        client.send(format!("GET /{at} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    let mut waiting: Vec<Client> = (0..40).map(ask).collect();
    for _ in 0..20 {
        let asked = sekisho_testkit::now();
        assert_eq!(status(&server.connect().get("/hot")), "HIT");
        let put = server.connect().request_with_body("PUT", "/static/x", "", b"abc").status;
        assert!(matches!(put, 201 | 204), "{put}");
        assert!(asked.elapsed() < Duration::from_millis(900), "{:?}", asked.elapsed());
    }
    for client in waiting.drain(32..) {
        let mut client = client;
        let response = client.read_response();
        assert_eq!((status(&response), response.text().as_str()), ("MISS", "served"));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for client in &mut waiting {
        let response = client.read_response();
        assert_eq!((status(&response), response.text().as_str()), ("MISS", "served"));
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    assert!(server.log("error.log").contains("cannot look into the cache"));
    // Threads that wait for a FIFO go on when somebody opens its other end.
    for path in files(&folder) {
        let _ = std::fs::File::options().read(true).write(true).open(path);
    }
}
