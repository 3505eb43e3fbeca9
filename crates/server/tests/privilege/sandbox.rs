//! The sandbox: the kernel keeps the workers within the places of the configuration.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;

use sekisho_testkit::{Client, Server, Signal, Tree, eventually, run};

use crate::background_load::{ByPidFile, install};
use crate::common::{BINARY, LONG, Process, http, own_address, serve, site};

/// Whether this kernel can do it at all.
fn has_landlock() -> bool {
    let has = sekisho_sys::landlock_version().is_ok();
    if !has {
        println!("skipped: this kernel has no Landlock");
    }
    has
}

/// Whether the kernel can do it, and links of another user can be made, which are not followed.
fn has_foreign_links() -> bool {
    has_landlock() && crate::is_root()
}

/// A tree with a file, a secret beside the root, and links in the root that lead to it: of another user, if we are root.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("secret/key", "secret");
    tree.link("root/out", "../secret/key");
    tree.link("root/folder", "../secret");
    for link in ["root/out", "root/folder"] {
        give_away(&tree, link);
    }
    tree
}

/// Makes a link one of another user.
fn give_away(tree: &Tree, link: &str) {
    if crate::is_root() {
        lchown(tree.path(link), Some(12_345), None).expect("it is theirs");
    }
}

/// F2: links of root and of the owner of the root lead out of it, as in nginx; at the start, after a refusal, and by way of
/// another link. Links of others do not, and the log names the link and its target.
#[test]
fn links_out_of_the_root_are_followed_if_root_or_its_owner_made_them() {
    if !has_foreign_links() {
        return;
    }
    for owner in [0, 4_321] {
        let tree = tree();
        tree.file("storage/app/public/a.txt", "stored");
        tree.file("share/js/lib.js", "script");
        tree.file("later/b.txt", "late");
        tree.link("root/storage", "../storage/app/public");
        tree.link("root/lib.js", "../share/js/lib.js");
        lchown(tree.root(), Some(owner), None).expect("it is theirs");
        for link in ["root/storage", "root/lib.js"] {
            lchown(tree.path(link), Some(owner), None).expect("it is theirs");
        }
        let server = serve(tree, "location /try/ { alias {root}/; try_files $uri =404; }");
        let get = |path: &str| server.connect().get(path);
        assert_eq!(get("/storage/a.txt").text(), "stored", "owner {owner}");
        assert_eq!(get("/lib.js").text(), "script", "owner {owner}");
        assert_eq!(get("/try/lib.js").text(), "script", "owner {owner}");
        assert_eq!(get("/folder/key").status, 403, "a link of another user");
        eventually("the hint", LONG, || {
            server.log("error.log").contains("root/folder\" is a link to \"../secret\"")
        });
        // One that comes later is followed when it was refused once.
        server.tree().link("root/later", "../later");
        lchown(server.tree().path("root/later"), Some(owner), None).expect("it is theirs");
        eventually("the target of a new link", LONG, || get("/later/b.txt").text() == "late");
        assert_eq!(get("/folder/key").status, 403, "still");
    }
}

/// O13, V45: the server follows links, the kernel does not let it.
#[test]
fn a_link_of_another_user_out_of_the_root_is_refused_by_the_kernel() {
    if !has_foreign_links() {
        return;
    }
    let server = serve(tree(), "autoindex on;");
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").text(), "hello");
    assert_eq!(client.get("/out").status, 403);
    eventually("the hint", LONG, || {
        server.log("error.log").contains("(or it is outside the sandbox)")
    });
    assert_eq!(client.get("/folder/key").status, 403);
    assert_eq!(client.get("/folder/").status, 403);
    assert!(client.get("/").text().contains("a.txt"), "the root can be listed");
    let free = Server::start_in(tree(), BINARY, &format!("sandbox off;\n{}", site("")));
    assert_eq!(free.connect().get("/out").text(), "secret", "without it, the link is followed");
}

/// O13, V45: a sandbox without effect is reported with its cause, and the paths of a sandbox can be seen.
#[test]
fn a_root_that_begins_with_a_variable_is_warned_of_and_the_places_are_told() {
    if !has_landlock() {
        return;
    }
    let tree = tree();
    tree.link("localhost", "root");
    let server = serve(tree, "");
    let dir = server.tree().dir().display().to_string();
    let log = server.log("error.log");
    assert!(log.contains(&format!("[debug] {}#0: sandbox: read {dir}/root", server.id())), "{log}");
    assert!(!server.stderr().contains("whole disk"), "{}", server.stderr());
    let whole = site("location /all/ {\nroot /$host;\n}");
    server.rewrite_config(&whole);
    let path = server.config_path().display().to_string();
    let place = format!(
        "sekisho.conf:{}:",
        1 + whole.lines().take_while(|it| !it.contains("/$host")).count()
    );
    let is_told = |said: &str| {
        said.contains("\"root\" has a variable right after the first slash")
            && said.contains(&place)
    };
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert!(is_told(&tested.stderr), "{place} {}", tested.stderr);
    server.rewrite_config(&format!("sandbox off;\n{whole}"));
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert!(!tested.stderr.contains("whole disk"), "{}", tested.stderr);
}

/// O13, V45: a file is no more than itself, a root that is a link to its neighbour opens no other neighbour, and what a
/// reload takes away is taken away.
#[test]
fn a_place_is_no_more_than_it_says_and_a_reload_takes_it_away() {
    if !has_foreign_links() {
        return;
    }
    let tree = tree();
    tree.file("secret/open", "open");
    tree.file("sites/other/config", "secret");
    tree.file("sites/site-1/a.txt", "hello");
    tree.link("sites/site", "site-1");
    tree.link("sites/site-1/other", "../other/config");
    give_away(&tree, "sites/site-1/other");
    let config = |main: &str| {
        let servers = "server { listen 127.0.0.1:{port}; root {root}; }\n\
                       server { listen 127.0.0.1:{port2}; root {dir}/sites/site; }";
        format!("{main}\n{}", http(servers))
    };
    let server = Server::start_in(tree, BINARY, &config("sandbox_read {dir}/secret/open;"));
    assert_eq!(server.connect().get("/folder/open").text(), "open");
    assert_eq!(server.connect().get("/folder/key").status, 403);
    let mut linked = Client::connect(server.address_of(1));
    assert_eq!(linked.get("/a.txt").text(), "hello");
    assert_eq!(linked.get("/other").status, 403);
    server.rewrite_config(&config(""));
    server.signal(Signal::HUP);
    eventually("the reload", LONG, || server.log("error.log").contains(" reloaded"));
    assert_eq!(server.connect().get("/folder/open").status, 403);
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
}

/// O13: a place that cannot be opened (a disk that is away, a link that leads to itself) does not affect the
/// others.
#[test]
fn a_place_that_cannot_be_opened_keeps_no_server_from_its_start() {
    let tree = tree();
    tree.link("loop", "loop");
    let server = serve(tree, "location /loop/ { root {dir}/loop; }");
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    assert!(server.connect().get("/loop/x").status >= 400);
    if has_landlock() {
        let log = server.log("error.log");
        assert!(log.contains("/loop is left out: "), "{log}");
    }
}

/// O13, V45: also where a program would have to be kept from everything.
#[test]
fn by_default_there_is_none_where_programs_are_run() {
    let tree = tree();
    tree.script(
        "root/x.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; cat \"$DOCUMENT_ROOT/out\"\n",
    );
    let server = serve(tree, "cgi_extension .cgi;");
    assert_eq!(server.connect().get("/x.cgi").text(), "secret");
    let log = server.log("error.log");
    assert!(log.contains("no sandbox: programs are run"), "{log}");
}

/// O13, V45: a program is kept where the server is; more is to be named.
#[test]
fn programs_are_kept_within_the_places_too_where_that_is_wished() {
    if !has_foreign_links() {
        return;
    }
    let tree = tree();
    tree.folder("data");
    tree.folder("more");
    tree.file("more/file", "more");
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\ncd /\n\
         cat \"$D/secret/key\" 2>/dev/null || echo no secret\n\
         echo x 2>/dev/null >\"$D/root/new\" || echo no writing\n\
         echo x 2>/dev/null >\"$D/data/new\" && echo written\n\
         cat \"$D/more/file\"; echo\n\
         echo x >/dev/null && echo nothing\n";
    tree.script("root/x.cgi", script);
    let config = format!(
        "sandbox on; sandbox_read {{dir}}/more; sandbox_write data;\n{}",
        site("cgi_extension .cgi; cgi_set_var D {dir};")
    );
    // The folder for temporary files is among the places, and this test lies in it.
    tree.folder("tmp");
    let run = format!("#!/bin/sh\nTMPDIR={}/tmp exec {BINARY} \"$@\"\n", tree.dir().display());
    let binary = tree.script("run", &run).display().to_string();
    let server = Server::start_in(tree, &binary, &config);
    let answer = server.connect().get("/x.cgi");
    let log = server.log("error.log");
    let expected = "no secret\nno writing\nwritten\nmore\nnothing\n";
    assert_eq!(answer.text(), expected, "{log}");
    assert!(server.tree().exists("data/new") && !server.tree().exists("root/new"));
    assert_eq!(server.connect().get("/out").status, 403);
}

/// O13, V45, F5: uploads work where they may be, links do not lead out of there.
#[test]
fn what_may_be_changed_can_be_changed_and_nothing_else() {
    if !has_landlock() {
        return;
    }
    let tree = tree();
    tree.folder("root/in");
    let body = "location /in/ { dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; \
                client_max_body_size 0; root {root}; }\n\
                location /up/ { alias {dir}/up/; upload_store {dir}/up; }";
    tree.folder("up");
    tree.link("root/in/out", "../../secret");
    let server = serve(tree, body);
    let mut client = server.connect();
    assert_eq!(client.request_with_body("PUT", "/in/deep/new", "", "x").status, 201);
    let large = vec![b'x'; 3 << 20];
    assert_eq!(client.request_with_body("PUT", "/in/large", "", &large).status, 201);
    let to = "Destination: /in/deep/moved\r\n";
    assert_eq!(client.request("MOVE", "/in/large", to).status, 201);
    assert_eq!(client.request("DELETE", "/in/deep/new", "").status, 204);
    assert_eq!(client.request_with_body("POST", "/up/?name=raw", "", "x").status, 201);
    let out = client.request_with_body("PUT", "/in/out/new", "", "x").status;
    assert!(matches!(out, 403 | 404 | 409), "{out}");
    assert_eq!(server.tree().names("secret"), ["key"]);
    assert_eq!(server.tree().names("root/in/deep"), ["moved"]);
}

/// O13, V45, O3: a new root is a new path; clients that are connected meanwhile are answered, and no address
/// is lost.
#[test]
fn a_reload_with_a_new_root_works() {
    if !has_foreign_links() {
        return;
    }
    let tree = tree();
    tree.file("second/b.txt", "second");
    let config = |root: &str, more: &str| {
        http(&format!("server {{ listen 127.0.0.1:{{port}}; root {root}; {more} }}"))
    };
    let server = Server::start_in(tree, BINARY, &config("{root}", ""));
    let reload = |config: &str, times: usize| {
        server.rewrite_config(config);
        server.signal(Signal::HUP);
        eventually("the reload", LONG, || {
            server.log("error.log").matches(" reloaded").count() >= times
        });
    };
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    let before = workers(&server);
    // The same paths: the same workers, and connections stay.
    let mut kept = server.connect();
    kept.get("/a.txt");
    reload(&config("{root}", "add_header X-Now 2;"), 1);
    assert_eq!(kept.get("/a.txt").field("x-now"), Some("2"));
    assert_eq!(workers(&server), before);
    reload(&config("{dir}/second", ""), 2);
    assert_eq!(server.connect().get("/b.txt").text(), "second");
    // An old connection ends, by a close between two requests or with the last answer.
    kept.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(kept.try_read_response(false).map_or(true, |answer| answer.says_close()));
    drop(kept);
    eventually("new workers", LONG, || {
        let now = workers(&server);
        !now.is_empty() && now.iter().all(|name| !before.contains(name))
    });
    // And back, as often as one likes: a domain is not put upon another one.
    for turn in 0..20 {
        let (root, file) =
            if turn % 2 == 0 { ("{root}", "/a.txt") } else { ("{dir}/second", "/b.txt") };
        reload(&config(root, ""), 3 + turn);
        assert_eq!(server.connect().get(file).status, 200, "turn {turn}");
        assert_eq!(server.connect().get("/out").status, if turn % 2 == 0 { 403 } else { 404 });
    }
}

/// The names of the worker threads.
fn workers(server: &Server) -> Vec<String> {
    let mut names: Vec<String> =
        crate::threads(server.id()).into_iter().map(|(_, name)| name).collect();
    names.retain(|name| name.starts_with("worker"));
    names.sort();
    names
}

/// O13, V45: a release that is changed by a link needs no reload, one that is moved into place heals by itself.
#[test]
fn a_site_can_be_replaced_while_it_is_served() {
    if !has_landlock() {
        return;
    }
    let tree = Tree::new();
    tree.file("app/releases/1/a.txt", "one");
    tree.link("app/current", "releases/1");
    tree.file("plain/a.txt", "one");
    let body = "server { listen 127.0.0.1:{port}; root {dir}/app/current; }\n\
                server { listen 127.0.0.1:{port2}; root {dir}/plain; }\n\
                server { listen 127.0.0.1:{port3}; root {dir}/later; }";
    let server = Server::start_in(tree, BINARY, &http(body));
    let tree = server.tree();
    assert_eq!(server.connect().get("/a.txt").text(), "one");
    for release in 2..6 {
        tree.file(&format!("app/releases/{release}/a.txt"), release.to_string());
        tree.link("app/next", format!("releases/{release}"));
        fs::rename(tree.path("app/next"), tree.path("app/current")).expect("renamed");
        let answer = server.connect().get(&format!("/a.txt?{release}"));
        assert_eq!((answer.status, answer.text()), (200, release.to_string()));
    }
    let plain = || Client::connect(server.address_of(1)).get("/a.txt");
    assert_eq!(plain().text(), "one");
    tree.file("new/a.txt", "two");
    fs::rename(tree.path("plain"), tree.path("old")).expect("renamed");
    fs::rename(tree.path("new"), tree.path("plain")).expect("renamed");
    eventually("the new folder", LONG, || plain().text() == "two");
    let later = || Client::connect(server.address_of(2)).get("/a.txt");
    assert_eq!(later().status, 404);
    tree.file("later/a.txt", "late");
    eventually("the folder that was missing", LONG, || later().text() == "late");
    assert!(server.log("error.log").contains("a place has changed"));
}

/// O13, V45, O4: the new process begins free, reads its configuration, and is kept as the old one was.
#[test]
fn an_upgrade_works_from_within_the_sandbox() {
    if !has_landlock() {
        return;
    }
    let tree = tree();
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    let pid_file = tree.path("server.pid");
    let config = format!("pid {{dir}}/server.pid;\n{}", site(""));
    let server = Server::start_in(tree, &binary.display().to_string(), &config);
    eventually("the pid file", LONG, || {
        fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let current = ByPidFile::new(pid_file.clone());
    server.signal(Signal::USR2);
    eventually("the new process", LONG, || {
        fs::read_to_string(&pid_file)
            .is_ok_and(|text| text.ends_with('\n') && text.trim() != server.id().to_string())
    });
    eventually("the old one's word", LONG, || server.log("error.log").contains("serves now"));
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    assert_eq!(server.connect().get("/out").status, 403);
    drop(current);
}

/// O13, V45, O1
#[test]
fn a_folder_that_is_served_is_all_that_is_served() {
    if !has_landlock() {
        return;
    }
    let listen = own_address(18_080).to_string();
    let arguments = ["serve", "root", "--listen", &listen, "--upload", "--quiet"];
    let mut served = Process::start(tree(), &arguments);
    let mut client = Client::connect(served.address());
    assert_eq!(client.get("/a.txt").text(), "hello");
    assert_eq!(client.get("/out").status, 403);
    assert_eq!(client.request_with_body("PUT", "/new/x", "", "x").status, 201);
    assert_eq!(served.tree().names("secret"), ["key"]);
}
