//! What real clients do.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sekisho_testkit::{Tree, have, run};

use crate::common::pattern;
use crate::share;

const PATIENCE: Duration = Duration::from_mins(2);

/// RFC 4918, by litmus: basic, copymove, props, locks and http, without a failure or a warning.
#[test]
fn litmus_passes_whole() {
    if !have("litmus") {
        return;
    }
    let server = share(Tree::new());
    let url = server.url("/dav/");
    let work = server.tree().folder("work").display().to_string();
    // It writes its logs where it is started.
    let script = format!("cd '{work}' && litmus -k '{url}'");
    let run = run("sh", &["-c", &script], PATIENCE);
    println!("{}", run.stdout);
    assert_eq!(run.code(), 0, "{}{}", run.stdout, run.stderr);
    for suite in ["basic", "copymove", "props", "locks", "http"] {
        let summary = format!("<- summary for `{suite}': of ");
        let line = run.stdout.lines().find(|line| line.starts_with(&summary)).expect(suite);
        assert!(line.contains(" 0 failed. 100.0%"), "{line}");
    }
    assert!(!run.stdout.contains("WARNING"), "{}", run.stdout);
}

/// A tree with odd names, and what it holds.
fn sample(folder: &Path) {
    for (name, content) in [
        ("a.txt", b"hello".to_vec()),
        ("empty", Vec::new()),
        ("sub/deep/er/big.bin", pattern(300_000)),
        ("sub/ü & <odd> #1 100%.txt", b"odd".to_vec()),
        (".hidden", b"dot".to_vec()),
    ] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (one.display().to_string(), other.display().to_string());
    let compared = run("diff", &["-r", &one, &other], PATIENCE);
    assert_eq!(compared.code(), 0, "{}{}", compared.stdout, compared.stderr);
}

/// rclone copies a tree there and back, and sees no difference.
#[test]
fn rclone_copies_trees_both_ways() {
    if !have("rclone") {
        return;
    }
    let server = share(Tree::new());
    let tree = server.tree();
    sample(&tree.folder("here"));
    let url = format!("--webdav-url={}", server.url("/dav/"));
    let rclone = |arguments: &[&str]| {
        let all = [&["--config=/dev/null", "--retries=1", &url], arguments].concat();
        let run = run("rclone", &all, PATIENCE);
        assert_eq!(run.code(), 0, "{arguments:?}: {}{}", run.stdout, run.stderr);
        run.stdout
    };
    let path = |name: &str| tree.path(name).display().to_string();
    rclone(&["copy", &path("here"), ":webdav:copy"]);
    assert_same(&tree.path("here"), &tree.path("root/dav/copy"));
    rclone(&["copy", ":webdav:copy", &path("back")]);
    assert_same(&tree.path("here"), &tree.path("back"));
    rclone(&["check", &path("here"), ":webdav:copy", "--size-only"]);
    let listed = rclone(&["lsf", ":webdav:copy/sub"]);
    assert!(listed.contains("ü & <odd> #1 100%.txt\n") && listed.contains("deep/\n"), "{listed}");
    rclone(&["moveto", ":webdav:copy/sub", ":webdav:moved"]);
    assert_same(&tree.path("here/sub"), &tree.path("root/dav/moved"));
    rclone(&["purge", ":webdav:moved"]);
    assert!(!tree.exists("root/dav/moved"));
}

/// cadaver: put, get, lock, set a property, copy, move, delete.
#[test]
fn cadaver_works_with_files_locks_and_properties() {
    if !have("cadaver") {
        return;
    }
    let server = share(Tree::new());
    let tree = server.tree();
    tree.file("a.txt", "hello");
    let script = tree.file(
        "script",
        "mkcol one\nput a.txt one/a.txt\nlock one/a.txt\npropset one/a.txt colour green\n\
         propget one/a.txt colour\nput a.txt one/a.txt\nunlock one/a.txt\ncopy one two\nmove two three\n\
         ls three\nget three/a.txt back.txt\nrmcol one\nquit\n",
    );
    let line = format!(
        "cd '{}' && HOME=. cadaver '{}' < '{}'",
        tree.dir().display(),
        server.url("/dav/"),
        script.display()
    );
    let run = run("sh", &["-c", &line], PATIENCE);
    let said = run.stdout;
    assert_eq!(said.matches("succeeded.").count(), 11, "{said}");
    assert!(said.contains("green"), "{said}");
    assert!(!said.contains("failed"), "{said}");
    assert_eq!(tree.text("back.txt"), "hello");
    assert_eq!(tree.text("root/dav/three/a.txt"), "hello");
    assert!(!tree.exists("root/dav/one") && !tree.exists("root/dav/two"));
}
