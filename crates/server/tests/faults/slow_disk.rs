//! A disk that makes writers wait: uploads are slow, other requests are not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sekisho_testkit::{Client, Stopwatch, Tree};

use crate::common::{pattern, serve};
use crate::inject::Injected;

/// How long each call takes that changes a file system.
const DELAY: Duration = Duration::from_millis(400);
/// Much less than that, and more than a busy machine takes for a small file.
const QUICK: Duration = Duration::from_millis(200);
/// What changes files. (Logs are written by a thread of their own, by `write`.)
const CALLS: &str = "pwrite64,pwritev,pwritev2,splice,copy_file_range,linkat,renameat,renameat2,unlinkat,mkdirat,\
                     fchmod,utimensat,ftruncate,fallocate,fsync,fdatasync,flock,symlinkat";

const SITE: &str = "keepalive_requests 10000000; client_max_body_size 0; upload_direct 1m;
     upload_delete_directories recursive;
     dav_methods PUT DELETE MKCOL COPY MOVE; upload_store {dir}/in; upload_resumable on;";

/// F5, X21: one worker, a slow disk, every kind of upload and change; files are served all the while.
#[test]
fn a_disk_that_makes_writers_wait_holds_up_nobody_else() {
    let tree = Tree::new();
    tree.file("root/small.txt", "small");
    tree.file("root/old/a/b.txt", "b");
    tree.folder("in");
    let server = serve(tree, SITE);
    let mut warm = server.connect();
    assert_eq!(warm.get("/small.txt").status, 200);
    assert_eq!(warm.request_with_body("PUT", "/warm", "", b"x").status, 201);
    let Some(injected) = Injected::delay(&server, CALLS, DELAY) else { return };
    let is_over = AtomicBool::new(false);
    let (late, asked, watch) = thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let mut client = server.connect();
            let (mut late, mut asked) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let watch = Stopwatch::start();
                assert_eq!(client.get("/small.txt").text(), "small");
                late += usize::from(watch.elapsed() > QUICK);
                asked += 1;
            }
            (late, asked)
        });
        let watch = Stopwatch::start();
        let changes: [&(dyn Fn(&mut Client) + Sync); 6] = [
            &|client| {
                let put = client.request_with_body("PUT", "/small", "", b"body");
                assert_eq!(put.status, 201);
            },
            &|client| {
                let put = client.request_with_body("PUT", "/medium", "", pattern(700_000));
                assert_eq!(put.status, 201);
            },
            &|client| {
                let put = client.request_with_body("PUT", "/large", "", pattern(2_500_000));
                assert_eq!(put.status, 201);
            },
            &|client| {
                let form = "Content-Type: multipart/form-data; boundary=XX\r\n";
                let part = |name: &str| {
                    format!(
                        "--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n\
                         content\r\n"
                    )
                };
                let body = format!("{}{}--XX--\r\n", part("one"), part("two"));
                assert_eq!(client.request_with_body("POST", "/", form, body).status, 201);
            },
            &|client| {
                let tus = "Tus-Resumable: 1.0.0\r\n";
                let made = client.request("POST", "/", &format!("{tus}Upload-Length: 5\r\n"));
                let at = made.field("location").expect("a location").to_owned();
                let piece = "Content-Type: application/offset+octet-stream\r\nUpload-Offset: 0\r\n";
                let sent =
                    client.request_with_body("PATCH", &at, &format!("{tus}{piece}"), b"hello");
                assert_eq!(sent.status, 204);
                assert_eq!(client.request("DELETE", &at, tus).status, 204);
            },
            &|client| {
                assert_eq!(client.request("MKCOL", "/new/", "").status, 201);
                let copied = client.request("COPY", "/old/", "Destination: /copy/\r\n");
                assert_eq!(copied.status, 201);
                assert_eq!(client.request("DELETE", "/copy/", "").status, 204);
                assert_eq!(client.request("DELETE", "/warm", "").status, 204);
            },
        ];
        let changes: Vec<_> = changes
            .into_iter()
            .map(|change| {
                let server = &server;
                scope.spawn(move || {
                    change(&mut server.connect());
                    // A body that is broken off has to be cleared away, too.
                    let mut gone = server.connect();
                    gone.send("PUT /gone HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n");
                    gone.send(pattern(50_000));
                })
            })
            .collect();
        for change in changes {
            change.join().expect("done");
        }
        is_over.store(true, Ordering::Relaxed);
        let (late, asked) = probe.join().expect("asked");
        (late, asked, watch)
    });
    println!("{late} of {asked} requests were late, in {:?}", watch.elapsed());
    assert!(watch.elapsed() > DELAY * 2, "the disk was slow");
    // A busy machine holds a few up; a worker that waits for the disk would hold up nearly all.
    assert!(late <= asked / 20, "{late} of {asked} took more than {QUICK:?}");
    drop(injected.end());
    assert_eq!(server.tree().read("root/medium"), pattern(700_000));
    assert_eq!(server.tree().read("root/large"), pattern(2_500_000));
}
