//! The recipes of `docs/cgi.md`, tried with the real programs. Where one is not installed its test says so
//! and is over.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sekisho_testkit::{Client, Finished, Tree, have, run};

use crate::common::{LONG, Process, own_address, pattern};
use crate::support::{Site, sh};

/// Whether a file is installed; says so when it is not.
fn is_there(path: &str) -> bool {
    let is_there = Path::new(path).is_file();
    if !is_there {
        println!("skipped: {path} is not installed");
    }
    is_there
}

/// Runs a line of shell in a folder; fails the test when it fails.
#[track_caller]
fn shell(folder: &Path, line: &str) -> Finished {
    let line = format!("cd '{}' && {line}", folder.display());
    let finished = run("sh", &["-c", &line], Duration::from_mins(1));
    assert_eq!(finished.code(), 0, "{line}: {finished:?}");
    finished
}

/// Fetches every style sheet, script, picture and link of a page that leads to the same server: all are there.
#[track_caller]
fn follow_links(client: &mut Client, page: &str) {
    let text = client.get(page).text();
    let folder = &page[..=page.rfind('/').expect("a folder")];
    let path = page.split('?').next().unwrap_or(page);
    let mut count = 0;
    for quote in ['"', '\''] {
        for part in
            text.split(&format!("href={quote}")).chain(text.split(&format!("src={quote}"))).skip(1)
        {
            let link = part.split([quote, '#']).next().unwrap_or_default().replace("&amp;", "&");
            let link = link.strip_prefix("http://127.0.0.1:").map_or(link.clone(), |rest| {
                rest.find('/').map_or("/".to_owned(), |at| rest[at..].to_owned())
            });
            let target = match link.as_bytes() {
                [] | [b'/', b'/', ..] => continue,
                [b'/', ..] => link,
                [b'?', ..] => format!("{path}{link}"),
                _ if link.contains(':') || link.contains(['<', ' ', '\n']) => continue,
                _ => format!("{folder}{link}"),
            };
            let status = client.get(&target).status;
            assert!(matches!(status, 200 | 301 | 302 | 304), "{page} links to {target}: {status}");
            count += 1;
        }
    }
    assert!(count > 3, "{page} has links");
}

#[test]
fn a_shell_script_answers_a_form() {
    // C7, C8
    let tree = Tree::new();
    let script = "printf 'Content-Type: text/plain; charset=utf-8\\n\\n'\n\
                  echo \"$REQUEST_METHOD $PATH_INFO ?$QUERY_STRING\"\nhead -c \"${CONTENT_LENGTH:-0}\"";
    tree.script("root/cgi-bin/form.cgi", &sh(script));
    let site = Site::start(tree, "");
    let mut client = site.server.connect();
    let target = "/cgi-bin/form.cgi/a?b=c";
    assert_eq!(client.get(target).text(), "GET /a ?b=c\n");
    let answer = client.request_with_body("POST", target, "", "name=kim");
    assert_eq!(answer.text(), "POST /a ?b=c\nname=kim");
}

#[test]
fn python_and_perl_run_by_their_extension() {
    // C8
    if !have("python3") || !have("perl") {
        return;
    }
    let tree = Tree::new();
    let python = "import os, sys\nbody = sys.stdin.buffer.read(int(os.environ.get('CONTENT_LENGTH') or 0))\n\
                  print('Content-Type: text/plain')\nprint()\nprint('python', body.decode()[::-1])\n";
    tree.file("root/app.py", python);
    let perl = "read(STDIN, my $body, $ENV{CONTENT_LENGTH} // 0);\n\
                print \"Content-Type: text/plain\\r\\n\\r\\nperl \", scalar reverse($body), \"\\n\";\n";
    tree.file("root/app.pl", perl);
    let python = run("sh", &["-c", "command -v python3"], LONG).stdout;
    let settings = format!(
        "cgi_read_timeout 30s; cgi_extension .py {}; cgi_extension .pl /usr/bin/env perl;",
        python.trim()
    );
    let site = Site::start(tree, &settings);
    let mut client = site.server.connect().with_patience(Duration::from_secs(30));
    assert_eq!(client.request_with_body("POST", "/app.py", "", "abc").text(), "python cba\n");
    assert_eq!(client.request_with_body("POST", "/app.pl", "", "abc").text(), "perl cba\n");
}

#[test]
fn php_runs_and_cannot_be_talked_into_options() {
    // C8, C9, V23
    if !have("php-cgi") {
        return;
    }
    let tree = Tree::new();
    let page = "<?php header('X-Own: 1'); http_response_code(201); /* secret */\n\
                echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '-', ' ',\n\
                $_GET['q'] ?? '-', ' ', $_POST['p'] ?? '-', ' ', isset($_FILES['f']) ? md5_file($_FILES['f']['tmp_name']) : '-';";
    tree.file("root/index.php", page);
    tree.file("root/redirect.php", "<?php header('Location: https://example.org/');");
    tree.file("root/dies.php", "<?php echo 'partly'; posix_kill(getmypid(), 9);");
    let site = Site::start(
        tree,
        "index index.php; cgi_extension .php /usr/bin/php-cgi; cgi_read_timeout 30s; client_max_body_size 8m;",
    );
    let mut client = site.server.connect().with_patience(Duration::from_secs(30));
    let answer = client.get("/?q=1");
    assert_eq!((answer.status, answer.text().as_str()), (201, "GET /index.php - 1 - -"));
    assert_eq!(answer.field("X-Own"), Some("1"));
    assert_eq!(client.get("/index.php/more").text(), "GET /index.php /more - - -");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let answer = client.request_with_body("POST", "/index.php?q=2", form, "p=3");
    assert_eq!(answer.text(), "POST /index.php - 2 3 -");
    // An upload, with its length and in chunks.
    let file = pattern(1 << 20);
    let mut body =
        b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n".to_vec();
    body.extend_from_slice(&file);
    body.extend_from_slice(b"\r\n--x--\r\n");
    let path = site.server.tree().file("upload", &file);
    let sum = run("md5sum", &[&path.to_string_lossy()], LONG).stdout;
    let sum = sum.split(' ').next().unwrap_or_default();
    let multipart = "Content-Type: multipart/form-data; boundary=x\r\n";
    let answer = client.request_with_body("POST", "/index.php", multipart, &body);
    assert_eq!(answer.text(), format!("POST /index.php - - - {sum}"));
    let head = format!(
        "POST /index.php HTTP/1.1\r\nHost: a\r\n{multipart}Transfer-Encoding: chunked\r\n\r\n"
    );
    client.send(format!("{head}{:x}\r\n", body.len())).send(&body).send("\r\n0\r\n\r\n");
    assert_eq!(client.read_response().text(), format!("POST /index.php - - - {sum}"));
    let answer = client.get("/redirect.php");
    assert_eq!((answer.status, answer.field("Location")), (302, Some("https://example.org/")));
    // CVE-2012-1823 and its relatives: the query is never an option.
    for query in ["-s", "-s+", "%ads", "-d+auto_prepend_file%3d/etc/passwd+-n", "--%20-s", "-h"] {
        let answer = client.get(&format!("/index.php?{query}"));
        assert_eq!(answer.status, 201, "{query}: {}", answer.text());
        assert!(!answer.text().contains("secret") && !answer.text().contains("root:"), "{query}");
        assert!(answer.text().starts_with("GET /index.php"), "{query}: {}", answer.text());
    }
    drop(client);
    site.assert_clean("php");
}

#[test]
fn git_clones_and_pushes_over_http() {
    // C7, C8
    let backend = "/usr/lib/git-core/git-http-backend";
    if !have("git") || !is_there(backend) {
        return;
    }
    let tree = Tree::new();
    let folder = tree.folder("repositories");
    let quiet = "GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 git -c user.name=a -c user.email=a@b -c init.defaultBranch=main";
    shell(&folder, "git init -q --bare project.git");
    let site = Site::start(
        tree,
        &format!(
            "client_max_body_size 0; cgi_read_timeout 60s;\n\
             location /git/ {{ cgi_pass {backend}; cgi_set_var GIT_PROJECT_ROOT {{dir}}/repositories;\n\
                 cgi_set_var GIT_HTTP_EXPORT_ALL 1; cgi_set_var TEST_MARK {{dir}}; cgi_leave_daemons on; }}\n\
             location /push/ {{ cgi_pass {backend}; cgi_set_var GIT_PROJECT_ROOT {{dir}}/repositories;\n\
                 cgi_set_var GIT_HTTP_EXPORT_ALL 1; cgi_set_var TEST_MARK {{dir}}; cgi_set_var REMOTE_USER kim; }}"
        ),
    );
    let url = |place: &str| site.server.url(&format!("/{place}/project.git"));
    let work = site.server.tree().folder("work");
    // More than git puts into one piece: this push is chunked.
    site.server.tree().file("work/first/large", pattern(3 << 20));
    shell(
        &work,
        &format!("cd first && {quiet} init -q && {quiet} add . && {quiet} commit -q -m one"),
    );
    // A client without a user name may not push.
    let line = format!("cd '{}/first' && {quiet} push -q {} HEAD:main", work.display(), url("git"));
    let refused = run("sh", &["-c", &line], Duration::from_mins(1));
    assert_ne!(refused.code(), 0, "{refused:?}");
    assert!(refused.stderr.contains("403"), "{refused:?}");
    shell(&work, &format!("cd first && {quiet} push -q {} HEAD:main", url("push")));
    shell(&work, &format!("{quiet} clone -q -b main {} second", url("git")));
    assert_eq!(fs::read(work.join("second/large")).ok(), Some(pattern(3 << 20)));
    // The other way to allow it: the repository says so itself.
    shell(&folder, "git -C project.git config http.receivepack true");
    shell(
        &work,
        &format!("cd second && echo x >more && {quiet} add . && {quiet} commit -q -m two"),
    );
    shell(&work, &format!("cd second && {quiet} push -q {} HEAD:main", url("git")));
    shell(&work, &format!("cd first && {quiet} pull -q {} main && test -f more", url("git")));
    // The plain protocol of old, which fetches files.
    shell(&work, &format!("GIT_SMART_HTTP=0 {quiet} clone -q -b main {} third", url("git")));
    site.assert_clean("git");
}

#[test]
fn gitweb_and_cgit_show_a_repository() {
    // C8
    let (gitweb, cgit) = ("/usr/share/gitweb/gitweb.cgi", "/usr/lib/cgit/cgit.cgi");
    if !have("git") || !have("perl") {
        return;
    }
    let tree = Tree::new();
    let folder = tree.folder("repositories");
    let quiet = "GIT_CONFIG_GLOBAL=/dev/null git -c user.name=kim -c user.email=a@b -c init.defaultBranch=main";
    shell(
        &folder,
        &format!(
            "{quiet} init -q one && cd one && echo hello >a.txt && {quiet} add . && {quiet} commit -q -m 'the first'"
        ),
    );
    shell(
        &folder,
        "mv one/.git project.git && rm -r one && git -C project.git config core.bare true",
    );
    let repositories = folder.display().to_string();
    tree.file(
        "gitweb.conf",
        format!("our $projectroot = '{repositories}'; our $git_temp = '/tmp'; 1;"),
    );
    tree.file("cgitrc", format!("virtual-root=/cgit\ncss=/cgit-css/cgit.css\nlogo=/cgit-css/cgit.png\nfavicon=/cgit-css/favicon.ico\ncache-size=0\nscan-path={repositories}\n"));
    let site = Site::start(
        tree,
        &format!(
            "cgi_read_timeout 60s;\n\
             location /gitweb/ {{ alias /usr/share/gitweb/; index gitweb.cgi; cgi_extension .cgi;\n\
                 cgi_set_var GITWEB_CONFIG {{dir}}/gitweb.conf; }}\n\
             location /cgit-css/ {{ alias /usr/share/cgit/; }}\n\
             location /cgit/ {{ cgi_pass {cgit}; cgi_set_var CGIT_CONFIG {{dir}}/cgitrc; }}"
        ),
    );
    let patient = || site.server.connect().with_patience(Duration::from_mins(1));
    let shows = |client: &mut Client, target: &str, text: &str| {
        let answer = client.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert!(answer.text().contains(text), "{target}: {}", answer.text());
    };
    if is_there(gitweb) {
        let mut client = patient();
        shows(&mut client, "/gitweb/", "project.git");
        shows(&mut client, "/gitweb/?p=project.git;a=summary", "the first");
        shows(&mut client, "/gitweb/gitweb.cgi/project.git/blob_plain/HEAD:/a.txt", "hello");
        follow_links(&mut client, "/gitweb/");
        follow_links(&mut client, "/gitweb/?p=project.git;a=summary");
    }
    if is_there(cgit) {
        let mut client = patient();
        shows(&mut client, "/cgit/", "project.git");
        shows(&mut client, "/cgit/project.git/log/", "the first");
        shows(&mut client, "/cgit/project.git/plain/a.txt", "hello");
        follow_links(&mut client, "/cgit/");
        follow_links(&mut client, "/cgit/project.git/");
    }
    site.assert_clean("web pages of git");
}

#[test]
fn serve_runs_a_folder_of_scripts() {
    // C1, C8
    let tree = Tree::new();
    let hello = sh("printf 'Content-Type: text/plain\\n\\n'; echo hello from $SCRIPT_NAME");
    tree.script("site/cgi-bin/any-name", &hello);
    tree.script("site/page.cgi", &hello);
    tree.script("site/folder/index.cgi", &hello);
    tree.file("site/run.sh", "printf 'X: 1\\n\\n'; echo by the shell # secret");
    tree.file("site/page.php", "<?php echo 'by php'; /* secret */");
    tree.file("site/plain.cgi", "secret");
    tree.file("site/plain.txt", "text");
    let address = own_address(8080).to_string();
    // The user that runs the tests may be root.
    let arguments = ["serve", "site", "--cgi", "--cgi-allow-root", "--listen", &address];
    let mut served = Process::start(tree, &arguments);
    let mut client = Client::connect(served.address());
    for (target, status, text) in [
        ("/cgi-bin/any-name", 200, "hello from /cgi-bin/any-name"),
        ("/page.cgi", 200, "hello from /page.cgi"),
        ("/page.cgi/info", 200, "hello from /page.cgi"),
        ("/folder/", 200, "hello from /folder/index.cgi"),
        ("/run.sh", 200, "by the shell"),
        ("/plain.cgi", 403, "403"),
        ("/plain.txt", 200, "text"),
        ("/cgi-bin/none", 404, "404"),
    ] {
        let answer = client.get(target);
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert!(answer.text().contains(text), "{target}: {}", answer.text());
        assert!(!answer.text().contains("secret"), "{target}");
    }
    // With its interpreter or without, it is not shown.
    let answer = client.get("/page.php");
    assert!(!answer.text().contains("secret"));
    assert_eq!(answer.status, if have("php-cgi") { 200 } else { 403 });
    assert!(served.tree().text("stdout").contains("cgi-bin"));
    // Without `--cgi` they are files like others.
    let tree = Tree::new();
    tree.script("site/page.cgi", &hello);
    let address = own_address(8080).to_string();
    let mut served = Process::start(tree, &["serve", "site", "--listen", &address]);
    assert_eq!(Client::connect(served.address()).get("/page.cgi").text(), hello);
}
