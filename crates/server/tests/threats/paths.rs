//! Paths that want out of the root: made of all that has ever worked somewhere, for every way in which a location
//! maps a path to a file; and files that turn into links while they are asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sekisho_testkit::{Server, Tree};

use crate::background_load::rounds;
use crate::common::{BINARY, site};

const SECRET: &str = "the secret beside the root";
/// Answers that are waited for at a time: their requests fit into the buffers of the sockets.
const BATCH: usize = 64;

/// Numbers that look random and are the same in every run.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: usize) -> usize {
        // Xorshift: good enough to choose by.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// A server without the sandbox, which would refuse whatever a mistake of ours leads to.
#[track_caller]
fn alone(tree: Tree, body: &str) -> Server {
    Server::start_in(tree, BINARY, &format!("sandbox off;\n{}", site(body)))
}

/// Ways into a site, each of which maps paths in another way.
const LISTENERS: &[&str] = &[
    "/",
    "/",
    "/folder/",
    "/alias",
    "/alias/",
    "/slash/",
    "/bare",
    "/re/",
    "/try/",
    "/named/x?f=",
    "/try/x?f=",
    "/page?p=",
    "/by-arg/secret.txt?d=",
    "/listed/",
    "/rewritten/",
    "/keeps/",
    "http://localhost/",
    "/a.txt/",
];
/// Paths that climb, or that some parser has taken for climbing.
const UPS: &[&str] = &[
    "..",
    "..",
    "..",
    "%2e%2e",
    "%2E%2E",
    ".%2e",
    "%2e.",
    "..%2f",
    "%2e%2e%2f",
    "..%5c",
    "..\\",
    "..;",
    "..;a=b",
    "..%00",
    "..%01",
    "..%09",
    "..%20",
    "..%0d%0a",
    "..%c0%af",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%f0%80%80%ae%f0%80%80%ae",
    "..%252f",
    "%252e%252e",
    "%%32%65%%32%65",
    "%25%32%65.",
    "..%ef%bc%8f",
    "%ef%bc%8e%ef%bc%8e",
    "%u002e%u002e",
    "...",
    "....",
    "./..",
    "../.",
    ".//..",
    "..?",
    "..%3f",
    "..#",
    "..%23",
    "~",
    "%7e",
];
/// What stands between the steps.
const SLASHES: &[&str] =
    &["/", "/", "/", "/", "//", "/./", "\\", "%2f", "%5c", "%252f", "/%2e/", ";/", "/;/", ""];
/// Steps down, so that a climb begins somewhere.
const DOWNS: &[&str] =
    &["folder", "root", "a.txt", "deep/er", "%66older", "x", ".", "link", "root%00", "FOLDER"];
/// What is wanted.
const ENDS: &[&str] = &[
    "secret.txt",
    "secret.txt",
    "secret%2etxt",
    "secret.txt%00.html",
    "secret.txt/",
    "secret.txt;.html",
    "",
];

fn hostile_target(rng: &mut Rng) -> String {
    let mut target = rng.pick(LISTENERS).to_owned();
    for _ in 0..=rng.roll(6) {
        // Half of all are plain, so that a path is more often one that leads somewhere.
        target.push_str(match rng.roll(6) {
            0..=2 => rng.pick(DOWNS),
            3 => "..",
            _ => rng.pick(UPS),
        });
        target.push_str(if rng.roll(2) == 0 { "/" } else { rng.pick(SLASHES) });
    }
    target.push_str(rng.pick(ENDS));
    // What no client could say is not a path. (Spaces and line ends are for the parser's own tests.)
    if target.contains('#') { target.replace('#', "%23") } else { target }
}

fn start() -> Server {
    let tree = Tree::new();
    tree.file("secret.txt", SECRET);
    tree.file("root/a.txt", "hello");
    tree.file("root/folder/b.txt", "below");
    tree.file("root/deep/er/c.txt", "deep");
    tree.link("root/link", "..");
    alone(
        tree,
        "keepalive_requests 10000000; disable_symlinks on;
         location /alias { alias {root}/; }
         location /slash/ { alias {root}/; }
         location /bare { alias {root}; }
         location /try/ { try_files $uri /$arg_f =404; }
         location /named/ { alias {root}/folder/; try_files $uri $arg_f =404; }
         location ~ ^/re/(.*)$ { alias {root}/$1; }
         location /by-arg { root {root}/$arg_d; }
         location /page { error_page 404 /$arg_p; return 404; }
         location /listed/ { alias {root}/; autoindex on; }
         location /rewritten/ { rewrite ^/rewritten/(.*)$ /$1 last; }
         location /keeps/ { rewrite ^/keeps/(.*)$ /folder/$1 break; }",
    )
}

/// F2, V17: thousands of generated paths (100,000 in the long form), and none leads to what lies beside the root.
#[test]
fn no_generated_path_leads_out_of_the_root() {
    let server = start();
    let mut rng = Rng(0x005e_ed17);
    let mut client = server.connect();
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for _ in 0..rounds(10_000, 100_000).div_ceil(BATCH) {
        let targets: Vec<String> = (0..BATCH).map(|_| hostile_target(&mut rng)).collect();
        let request = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.send(targets.iter().map(request).collect::<Vec<_>>().concat());
        for target in &targets {
            let response = client.read_response();
            let text = response.text();
            assert!(!text.contains(SECRET), "{target}: {text}");
            assert!(!text.contains("secret.txt</a>"), "{target} is listed: {text}");
            *statuses.entry(response.status).or_default() += 1;
            // A target that the parser refuses would end the connection: these are all of one piece.
            assert!(!response.says_close(), "{target}: {response:?}");
        }
    }
    println!("{statuses:?}");
    let known = [200, 301, 302, 400, 403, 404];
    assert!(statuses.keys().all(|status| known.contains(status)), "{statuses:?}");
    // The paths are good for something: some lead to a file or folder, and many are refused.
    for status in [200, 400, 403, 404] {
        assert!(statuses.contains_key(&status), "no {status} among {statuses:?}");
    }
}

/// F7, V18: every pair of slashes, with every spelling of the way up, over sockets. What nginx would let out by the
/// famous mistake (`location /i` and `alias …/img/`) stays in.
#[test]
fn no_alias_opens_the_folder_above_it() {
    for (location, alias) in [("/i", "img/"), ("/i", "img"), ("/i/", "img/"), ("/i/", "img")] {
        for kind in ["", "^~ "] {
            let tree = Tree::new();
            tree.file("secret.txt", SECRET);
            tree.file("img/x.png", "image");
            tree.file("img/sub/y.png", "below");
            tree.file("img2/secret.txt", SECRET);
            tree.folder("root");
            let server = alone(
                tree,
                &format!("location {kind}{location} {{ alias {{dir}}/{alias}; autoindex on; }}"),
            );
            let mut client = server.connect();
            for up in UPS {
                let up = up.replace('#', "%23");
                for target in [
                    format!("/i{up}/secret.txt"),
                    format!("/i{up}secret.txt"),
                    format!("/i/{up}/secret.txt"),
                    format!("/i/sub/{up}/{up}/secret.txt"),
                    format!("/i/sub{up}/{up}/secret.txt"),
                    format!("/%69{up}/secret.txt"),
                    format!("//i{up}/secret.txt"),
                    format!("/i{up}"),
                    format!("/i{up}/"),
                ] {
                    let text = client.get(&target).text();
                    let what = format!("{kind}{location}, {alias}: {target}: {text}");
                    assert!(!text.contains(SECRET), "{what}");
                    assert!(!text.contains("img2"), "{what}");
                }
            }
        }
    }
}

/// V19: a file that turns into a link and back as fast as can be: 100,000 requests in the long form, from the file,
/// from the cache of open files and through a folder, and none reads what the link leads to.
#[test]
fn a_file_that_turns_into_a_link_and_back_is_never_followed() {
    let tree = Tree::new();
    tree.file("outside/f", SECRET);
    tree.file("root/f", "public");
    tree.file("root/real/f", "public");
    let server = alone(
        tree,
        "disable_symlinks on; keepalive_requests 10000000;
         location /cached/ { alias {root}/; open_file_cache max=100; open_file_cache_valid 1s; }
         location /tried/ { try_files /f =404; }
         location /listed/ { alias {root}/; autoindex on; }",
    );
    let tree = server.tree();
    let pairs =
        [("root/f", "root/f.link", "../outside/f"), ("root/real", "root/real.link", "../outside")];
    let pairs = pairs.map(|(real, link, to)| (tree.path(real), tree.link(link, to)));
    let targets = [
        "/f",
        "/f.link",
        "/real/f",
        "/real.link/f",
        "/cached/f",
        "/tried/f",
        "/listed/real/",
        "/cached/real/f",
    ];
    let request = |target: &&str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let requests = targets.iter().map(request).collect::<Vec<_>>().concat();
    let (is_over, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (real, link) in &pairs {
                    renameat_with(CWD, real, CWD, link, RenameFlags::EXCHANGE).expect("exchanged");
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (server, requests) = (&server, &requests);
                scope.spawn(move || {
                    let (mut client, mut read) = (server.connect(), 0);
                    for _ in 0..rounds(10_000, 100_000) / targets.len() / 2 {
                        client.send(requests);
                        for target in targets {
                            let answer = client.read_response();
                            assert!(!answer.text().contains(SECRET), "{target} was followed");
                            assert!(
                                matches!(answer.status, 200 | 403 | 404),
                                "{target}: {answer:?}"
                            );
                            read += usize::from(answer.body == b"public");
                        }
                    }
                    read
                })
            })
            .collect();
        let read = readers.into_iter().map(|reader| {
            let ended = reader.join();
            is_over.store(true, Ordering::Relaxed);
            ended.expect("a client came to its end")
        });
        read.collect::<Vec<usize>>().iter().sum::<usize>()
    });
    let swaps = swaps.load(Ordering::Relaxed);
    println!("{swaps} swaps, {read} times the file");
    assert!(swaps > 100 && read > 100, "{swaps} swaps, {read} times the file");
}
