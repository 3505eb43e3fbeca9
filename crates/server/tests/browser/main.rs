//! The listing in a real browser: it sorts, filters, takes and deletes files, is dark where that is wished,
//! keeps its own policy and has no accessibility errors (F4).
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod chromium;

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use chromium::Browser;
use common::serve;
use sekisho_testkit::{Server, Tree, eventually, have, run};
use serde_json::json;

const NAMES: &str = "[...document.querySelectorAll('tbody tr:not([hidden]):not(.u) td:first-child a')]\
                     .map(link => link.textContent).join(' ')";

const SAID: &str = "document.querySelector('#said').textContent";

/// A folder that looks like somebody's, and one where everything is allowed.
fn start() -> Server {
    let tree = Tree::new();
    let files = [
        ("photo.jpg", 2_400_000, 10),
        ("notes2.txt", 300, 40),
        ("notes10.txt", 12_000, 30),
        ("backup.tar.gz", 734_003_200, 20),
        ("talk.mp4", 90_000_000, 5),
        ("report <final> & more.pdf", 800_000, 15),
    ];
    for (name, size, days) in files {
        let path = tree.file(&format!("root/pub/{name}"), "");
        let file = File::options().write(true).open(path).expect("a file");
        file.set_len(size).expect("a length");
        let age = Duration::from_secs(1_790_000_000 - days * 86_400);
        file.set_modified(SystemTime::UNIX_EPOCH + age).expect("a time");
    }
    tree.folder("root/pub/archive");
    tree.folder("root/pub/pictures");
    tree.file(
        "root/pub/README.md",
        "# Shared files\n\nEverything here may be **copied**. See [the notes](notes2.txt).\n\n\
         - pictures\n- talks\n\n```\nsekisho serve .\n```\n",
    );
    tree.file("root/box/old.txt", "old");
    tree.file("root/box/other.txt", "other");
    tree.folder("root/box/folder");
    tree.folder("root/form");
    tree.file("root/all/one.txt", "one");
    tree.file("root/all/taken.txt", "taken");
    tree.file("root/all/folder/inner.txt", "inner");
    tree.file("root/see/notes.txt", "one <b>line</b>\nand another");
    tree.file("root/see/dot.svg", "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>");
    tree.file("root/see/long.log", "x".repeat(300_000));
    tree.file("root/see/data.bin", "");
    tree.file("root/see/below/deep/Notes of 2025.txt", "deep");
    serve(
        tree,
        "location /pub/ { autoindex on; autoindex_exact_size off; autoindex_archive zip; }
         location /box/ {
             autoindex on; autoindex_exact_size off; client_max_body_size 1m;
             dav_methods PUT DELETE MKCOL; upload_delete_directories off;
         }
         location /all/ {
             autoindex on; dav_methods PUT DELETE MKCOL MOVE; upload_delete_directories recursive;
         }
         location /see/ { autoindex on; autoindex_search on; autoindex_archive zip tar; }
         location /form/ { autoindex on; upload_store $document_root$uri; }",
    )
}

#[track_caller]
fn assert_good(browser: &mut Browser) {
    assert_eq!(browser.accessibility_errors(), Vec::<String>::new());
    assert_eq!(browser.eval("(window.violations || []).join()"), json!(""));
}

/// F4
#[test]
fn a_person_sorts_and_filters_in_light_and_dark_and_on_a_phone() {
    if !have("chromium") {
        return;
    }
    let server = start();
    let mut browser = Browser::start();
    let size = json!({ "width": 900, "height": 640, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", &size);
    browser.open(&server.url("/pub/"));
    let by_name = "archive/ pictures/ backup.tar.gz notes2.txt notes10.txt photo.jpg README.md \
                   report <final> & more.pdf talk.mp4";
    assert_eq!(browser.eval(NAMES), json!(by_name));
    assert_good(&mut browser);
    browser.picture("listing");

    // Sorting keeps the page, and the way back.
    browser.eval("window.mark = 1");
    browser
        .eval("[...document.querySelectorAll('th a')].find(a => a.textContent === 'Size').click()");
    browser.wait("document.querySelector('th:nth-child(2)').ariaSort === 'descending'");
    let by_size = browser.eval(NAMES);
    assert!(by_size.as_str().is_some_and(|names| names.starts_with("archive/ pictures/ backup")));
    assert_eq!(browser.eval("location.search + window.mark"), json!("?sort=size&order=desc1"));
    browser.eval("history.back()");
    browser.wait("document.querySelector('th').ariaSort === 'ascending'");
    assert_eq!(browser.eval(NAMES), json!(by_name));

    // The filter, by keyboard.
    browser.press("/");
    assert_eq!(browser.eval("document.activeElement.id"), json!("filter"));
    browser.call("Input.insertText", &json!({ "text": "NOTES" }));
    assert_eq!(browser.eval(NAMES), json!("notes2.txt notes10.txt"));
    assert_eq!(browser.eval("document.querySelector('#said').textContent"), json!("2 of 9 shown"));
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    assert_eq!(browser.eval("document.activeElement.textContent"), json!("notes2.txt"));
    browser.press("ArrowUp");
    browser.eval("document.querySelector('#filter').focus()");
    browser.press("Escape");
    assert_eq!(browser.eval(NAMES), json!(by_name));

    // Dark by wish of the system, and by one's own, which is remembered.
    let background = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.eval(background), json!("rgb(255, 255, 255)"));
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", &dark);
    assert_eq!(browser.eval(background), json!("rgb(13, 17, 23)"));
    assert_good(&mut browser);
    browser.picture("listing-dark");
    browser.eval("document.querySelector('#theme').click()");
    assert_eq!(browser.eval(background), json!("rgb(255, 255, 255)"));
    browser.open(&server.url("/pub/?sort=time"));
    assert_eq!(browser.eval(background), json!("rgb(255, 255, 255)"));
    browser.eval("document.querySelector('#theme').click()");
    assert_eq!(browser.eval(background), json!("rgb(13, 17, 23)"));

    // On a phone nothing sticks out.
    let phone = json!({ "width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", &phone);
    browser.open(&server.url("/pub/"));
    assert_eq!(browser.eval("document.scrollingElement.scrollWidth"), json!(360));
    assert_good(&mut browser);

    // Without a script it is all there but the filter, and links sort.
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.call("Emulation.clearDeviceMetricsOverride", &json!({}));
    browser.open(&server.url("/pub/?sort=size&order=asc"));
    assert!(browser.eval(NAMES).as_str().is_some_and(|names| names.ends_with("backup.tar.gz")));
    assert_eq!(browser.eval("document.querySelector('#filter').hidden"), json!(true));
}

/// F4, F5, F6
#[test]
fn a_person_uploads_and_deletes_files() {
    if !have("chromium") {
        return;
    }
    let server = start();
    let mut browser = Browser::start();
    let size = json!({ "width": 900, "height": 640, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", &size);
    browser.open(&server.url("/box/"));
    assert_good(&mut browser);
    let tree = Tree::new();
    let file = |name: &str, bytes: usize| tree.file(name, vec![b'x'; bytes]).display().to_string();
    let files = [file("one.bin", 400_000), file("two.txt", 10), file("drei ä.txt", 300_000)];

    // Slowly, so that the progress can be seen.
    let slow = json!({ "offline": false, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 400_000 });
    browser.call("Network.emulateNetworkConditions", &slow);
    browser.eval(
        "window.seen = []; new MutationObserver(() => { for (const bar of document.querySelectorAll('progress')) \
         seen.push(bar.value) }).observe(document.querySelector('#jobs'), { subtree: true, childList: true, \
         characterData: true })",
    );
    browser.drop_files("#drop", &files);
    browser.wait("document.querySelectorAll('#jobs li').length === 3");
    browser.wait("seen.some(value => value > 0 && value < 1)");
    // One bar for all of them, and good news that goes away.
    browser.wait(
        "/^[012] of 3 files, [0-9]+ %$/.test(document.querySelector('#all span').textContent)",
    );
    assert_good(&mut browser);
    browser.picture("listing-upload");
    browser.wait(&format!("{SAID} === 'All 3 files are uploaded'"));
    assert_eq!(browser.eval("document.querySelectorAll('#jobs li').length"), json!(0));
    assert_eq!(browser.eval("document.querySelector('#all').hidden"), json!(true));
    browser.wait(&format!("{SAID} === ''"));
    let fast =
        json!({ "offline": false, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
    browser.call("Network.emulateNetworkConditions", &fast);
    browser.wait(&format!("{NAMES} === 'folder/ drei ä.txt old.txt one.bin other.txt two.txt'"));
    assert_eq!(server.tree().read("root/box/one.bin").len(), 400_000);
    assert_eq!(server.tree().read("root/box/two.txt"), vec![b'x'; 10]);
    assert_good(&mut browser);

    // A file that is too large gets an error.
    browser.drop_files("#drop", &[file("huge.bin", 3_000_000)]);
    browser.wait("/too large/.test(document.querySelector('#jobs').textContent)");
    assert!(!server.tree().exists("root/box/huge.bin"));

    // One that is there already is asked for.
    browser.drop_files("#drop", &[file("old.txt", 5)]);
    browser.wait("document.querySelector('dialog[open]')");
    assert!(
        browser
            .eval("document.querySelector('dialog').textContent")
            .to_string()
            .contains("Replace")
    );
    assert_eq!(server.tree().text("root/box/old.txt"), "old");
    assert_good(&mut browser);
    browser.eval("document.querySelector('dialog [type=button]').click()");
    browser.wait("/skipped/.test(document.querySelector('#jobs').textContent)");
    assert_eq!(server.tree().text("root/box/old.txt"), "old");
    browser.drop_files("#drop", &[file("old.txt", 5)]);
    browser.wait("document.querySelector('dialog[open]')");
    browser.eval("document.querySelector('dialog button:not([type])').click()");
    browser.wait(&format!("{SAID} === 'The file is uploaded'"));
    assert_eq!(server.tree().text("root/box/old.txt"), "xxxxx");

    // Deleting asks first; folders are not offered here.
    let button = "document.querySelector('[aria-label=\"Delete other.txt\"]')";
    assert_eq!(browser.eval("document.querySelector('.d button')"), json!(null));
    browser.wait(button);
    browser.eval(&format!("{button}.click()"));
    browser.wait("document.querySelector('dialog[open]')");
    browser.press("Escape");
    browser.wait("!document.querySelector('dialog')");
    assert!(server.tree().exists("root/box/other.txt"));
    browser.eval(&format!("{button}.click()"));
    browser.wait("document.querySelector('dialog[open]')");
    browser.eval("document.querySelector('dialog button:not([type])').click()");
    browser.wait("document.querySelector('#said').textContent === 'other.txt deleted'");
    browser.wait(&format!("!({NAMES}).includes('other.txt')"));
    assert!(!server.tree().exists("root/box/other.txt"));

    // A new folder.
    browser.eval("document.querySelector('#folder').click()");
    browser.wait("document.querySelector('dialog[open] input')");
    browser.call("Input.insertText", &json!({ "text": "new & shiny" }));
    browser.eval("document.querySelector('dialog button:not([type])').click()");
    browser.wait(&format!("({NAMES}).includes('new & shiny/')"));
    assert!(server.tree().exists("root/box/new & shiny"));
    assert_good(&mut browser);
}

/// F4, F5, F6: many files and whole folders; renaming, and deleting a folder with what is in it.
#[test]
fn a_person_uploads_folders_and_renames() {
    if !have("chromium") {
        return;
    }
    let server = start();
    let mut browser = Browser::start();
    browser.open(&server.url("/box/"));
    let tree = Tree::new();
    let file = |name: &str, bytes: usize| tree.file(name, vec![b'x'; bytes]).display().to_string();
    server.tree().file("root/box/two.txt", "two");
    browser.open(&server.url("/box/"));

    // Several are asked for one by one, or all at once, and before anything is sent.
    let sent = "performance.getEntriesByType('resource').filter(entry => /old|two/.test(entry.name)).length";
    let before = browser.eval(sent);
    browser.drop_files("#drop", &[file("old.txt", 7), file("two.txt", 7), file("four.txt", 1)]);
    browser.wait("document.querySelector('dialog[open]')");
    assert_eq!(browser.eval(sent), before);
    browser.eval("document.querySelector('dialog [value=\"Replace all\"]').click()");
    browser.wait(&format!("{SAID} === 'All 3 files are uploaded'"));
    assert_eq!(server.tree().text("root/box/old.txt"), "xxxxxxx");
    assert_eq!(server.tree().text("root/box/two.txt"), "xxxxxxx");

    // A folder comes with all that is in it.
    tree.file("album/1.jpg", "one");
    tree.file("album/deep/er/2 ü.jpg", "two");
    tree.folder("album/empty");
    browser.drop_files("#drop", &[tree.path("album").display().to_string()]);
    browser.wait(&format!("{SAID} === 'All 2 files are uploaded'"));
    assert_eq!(server.tree().text("root/box/album/1.jpg"), "one");
    assert_eq!(server.tree().text("root/box/album/deep/er/2 ü.jpg"), "two");
    assert!(server.tree().path("root/box/album/empty").is_dir());
    browser.wait(&format!("({NAMES}).includes('album/')"));

    // Times are shown in the zone of the browser, which is named.
    browser.call("Emulation.setTimezoneOverride", &json!({ "timezoneId": "Asia/Tokyo" }));
    browser.open(&server.url("/pub/"));
    assert_eq!(browser.eval("document.querySelector('#zone').textContent"), json!("UTC+09:00"));
    let shown = browser.eval(
        "[...document.querySelectorAll('time')].every(time => { const at = new Date(Date.parse(time.dateTime) \
         + 9 * 3600000); return time.textContent === at.toISOString().slice(0, 16).replace('T', ' ') })",
    );
    assert_eq!(shown, json!(true));

    // Another name, which must be free.
    browser.open(&server.url("/all/"));
    assert_good(&mut browser);
    let rename = |browser: &mut Browser, name: &str, to: &str| {
        browser.eval(&format!("document.querySelector('[aria-label=\"Rename {name}\"]').click()"));
        browser.wait("document.querySelector('dialog[open] input')");
        browser.eval(&format!("document.querySelector('dialog input').value = '{to}'"));
        browser.eval("document.querySelector('dialog button:not([type])').click()");
    };
    rename(&mut browser, "one.txt", "taken.txt");
    browser.wait("/already exists/.test(document.querySelector('#said').textContent)");
    rename(&mut browser, "one.txt", "ü & two.txt");
    browser.wait(&format!("({NAMES}).includes('ü & two.txt')"));
    rename(&mut browser, "folder/", "renamed");
    browser.wait(&format!("({NAMES}).includes('renamed/')"));
    assert_eq!(server.tree().text("root/all/ü & two.txt"), "one");
    assert_eq!(server.tree().text("root/all/renamed/inner.txt"), "inner");

    // A folder with something in it is asked about twice.
    browser.eval("document.querySelector('[aria-label=\"Delete renamed/\"]').click()");
    for words in ["goes too", "will be lost"] {
        browser
            .wait(&format!("/{words}/.test(document.querySelector('dialog[open]')?.textContent)"));
        assert!(server.tree().exists("root/all/renamed/inner.txt"));
        browser.eval("document.querySelector('dialog button:not([type])').click()");
    }
    browser.wait(&format!("!({NAMES}).includes('renamed')"));
    assert!(!server.tree().exists("root/all/renamed"));
}

/// F4: files are looked at in the page, searched for below, selected, downloaded together and deleted together.
#[test]
fn a_person_looks_searches_and_selects() {
    if !have("chromium") {
        return;
    }
    let server = start();
    let mut browser = Browser::start();
    browser.open(&server.url("/see/"));
    assert_good(&mut browser);

    // A look at text, which is no page; the keys go to the next file.
    assert_eq!(
        browser.eval("document.querySelector('[aria-label=\"Preview data.bin\"]')"),
        json!(null)
    );
    browser.eval("document.querySelector('[aria-label=\"Preview long.log\"]').click()");
    browser.wait(
        "/the rest is not shown/.test(document.querySelector('dialog[open] pre')?.textContent)",
    );
    assert_eq!(
        browser.eval("document.querySelector('dialog pre').textContent.length > 262144"),
        json!(true)
    );
    browser.press("ArrowRight");
    browser.wait("/^one <b>line<.b>\\nand another$/.test(document.querySelector('dialog[open] pre')?.textContent)");
    assert_eq!(browser.eval("document.querySelector('dialog a').textContent"), json!("notes.txt"));
    assert_good(&mut browser);
    browser.press("ArrowRight");
    browser.wait("document.querySelector('dialog img')?.naturalWidth === 9");
    assert_good(&mut browser);
    browser.press("Escape");
    browser.wait("!document.querySelector('dialog')");

    // Enter searches in all folders below.
    browser.press("/");
    browser.call("Input.insertText", &json!({ "text": "notes" }));
    browser.eval("document.querySelector('#filter').form.requestSubmit()");
    browser.wait("location.search === '?search=notes' && document.readyState === 'complete'");
    assert_eq!(browser.eval(NAMES), json!("below/deep/Notes of 2025.txt notes.txt"));
    assert_eq!(browser.eval("document.querySelector('#filter').value"), json!("notes"));
    assert_good(&mut browser);
    browser.eval("document.querySelector('[aria-label^=\"Preview below\"]').click()");
    browser.wait("document.querySelector('dialog pre')?.textContent === 'deep'");

    // Selected files are one download.
    browser.open(&server.url("/see/"));
    let click =
        |name: &str| format!("document.querySelector('[aria-label=\"Select {name}\"]').click()");
    browser.eval(&click("notes.txt"));
    browser.eval(&click("below/"));
    let picked = "document.querySelector('#picked').innerText.replace(/\\s+/g, ' ')";
    assert_eq!(browser.eval(picked), json!("2 selected Download .zip Download .tar"));
    assert_good(&mut browser);
    let folder = server.tree().folder("downloads").display().to_string();
    let behavior = json!({ "behavior": "allow", "downloadPath": folder });
    browser.call("Page.setDownloadBehavior", &behavior);
    browser.eval("[...document.querySelectorAll('#picked button')].find(b => /tar/.test(b.textContent)).click()");
    let archive = server.tree().path("downloads/see.tar");
    eventually("the archive is there", common::LONG, || archive.exists());
    let listed = run("tar", &["-tf", &archive.display().to_string()], common::LONG).stdout;
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    let expected = [
        "see/",
        "see/below/",
        "see/below/deep/",
        "see/below/deep/Notes of 2025.txt",
        "see/notes.txt",
    ];
    assert_eq!(listed, expected);

    // All of them are deleted by one order, and folders after a second question.
    browser.open(&server.url("/all/"));
    browser.eval("document.querySelector('#every').click()");
    assert_eq!(browser.eval(picked), json!("3 selected Delete"));
    browser.eval("document.querySelector('[aria-label=\"Select taken.txt\"]').click()");
    assert_eq!(browser.eval("document.querySelector('#every').indeterminate"), json!(true));
    browser.eval("document.querySelector('#picked button').click()");
    for words in ["Delete 2 entries", "will be lost"] {
        browser
            .wait(&format!("/{words}/.test(document.querySelector('dialog[open]')?.textContent)"));
        assert!(server.tree().exists("root/all/folder/inner.txt"));
        browser.eval("document.querySelector('dialog button:not([type])').click()");
    }
    browser.wait(&format!("{NAMES} === 'taken.txt'"));
    assert_eq!(server.tree().names("root/all"), ["taken.txt"]);
    assert_eq!(browser.eval(SAID), json!("2 entries deleted"));
}

/// O7: the status page fits a phone, in light and dark, and has no accessibility errors.
#[test]
fn the_status_page_fits_a_phone() {
    if !have("chromium") {
        return;
    }
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    let server =
        serve(tree, "location = /status { status page; } location /files/ { alias {root}/; }");
    let mut client = server.connect();
    for _ in 0..20 {
        client.get("/a.txt");
        client.get("/files/a.txt");
    }
    let mut browser = Browser::start();
    for (width, is_mobile) in [(900, false), (360, true)] {
        let size =
            json!({ "width": width, "height": 640, "deviceScaleFactor": 1, "mobile": is_mobile });
        browser.call("Emulation.setDeviceMetricsOverride", &size);
        for scheme in ["light", "dark"] {
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.call("Emulation.setEmulatedMedia", &media);
            browser.open(&server.url("/status"));
            let is_fitting = "document.scrollingElement.scrollWidth <= innerWidth";
            assert_eq!(browser.eval(is_fitting), json!(true), "{width}");
            assert_eq!(browser.eval("document.querySelectorAll('svg polyline').length"), json!(3));
            assert_good(&mut browser);
            if width == 900 && scheme == "light" {
                // Something for the charts.
                let is_wanted = std::env::var_os("UPDATE_SCREENSHOTS").is_some();
                for many in [20, 90, 60, 150, 120, 200].into_iter().filter(|_| is_wanted) {
                    (0..many).for_each(|_| _ = client.get("/files/a.txt"));
                    browser.eval("window.mark = document.querySelector('main')");
                    browser.wait("document.querySelector('main') !== window.mark");
                }
                browser.picture("status");
            }
        }
    }
    // It renews itself, until it is paused.
    browser.eval("window.mark = document.querySelector('main')");
    browser.wait("document.querySelector('main') !== window.mark");
    browser.eval("document.querySelector('header button').click()");
    assert_eq!(
        browser.eval("document.querySelector('header button').textContent"),
        json!("Continue")
    );
    assert_good(&mut browser);
}

/// The documents as a site: every page is built, the search finds something, and axe finds no error.
#[test]
fn the_site_of_the_documents_is_accessible() {
    if !have("mdbook") {
        println!("to run it: cargo install --locked --root target/tools mdbook, then ./test");
        return;
    }
    if !have("chromium") {
        return;
    }
    let tree = Tree::new();
    let root = tree.folder("root").display().to_string();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let built = run("mdbook", &["build", "--dest-dir", &root, repository], common::LONG);
    assert_eq!(built.code(), 0, "{}", built.stderr);
    let server = serve(tree, "");
    let mut browser = Browser::start();
    let contents = fs::read_to_string(format!("{repository}/docs/SUMMARY.md")).expect("contents");
    let pages = contents.split("](").skip(1).filter_map(|rest| rest.split(".md)").next());
    // Decisions are plain text and many: only in the long form.
    let is_long = std::env::var_os("SEKISHO_LONG").is_some();
    let pages = pages.filter(|page| is_long || !page.starts_with("adr/00"));
    // Dark is one style sheet for all: a few pages show it.
    let dark = ["index", "php", "metrics", "troubleshooting", "control"].map(|page| (page, "dark"));
    let mut count = 0;
    for (page, scheme) in pages.map(|page| (page, "light")).chain(dark) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", &media);
        browser.open(&server.url(&format!("/{page}.html")));
        assert_eq!(browser.accessibility_errors(), Vec::<String>::new(), "{page}, {scheme}");
        count += 1;
    }
    assert!(count > 40, "{count} pages");
    browser.open(&server.url("/index.html?search=limit_req"));
    browser.wait(
        "document.querySelectorAll('#mdbook-searchresults li, #searchresults li').length > 0",
    );
}

/// F4, F5: where forms are taken, a person uploads without a script, and with one more comfortably.
#[test]
fn a_plain_form_uploads_too() {
    if !have("chromium") {
        return;
    }
    let server = start();
    let mut browser = Browser::start();
    let tree = Tree::new();
    let file = |name: &str| tree.file(name, name).display().to_string();
    browser.open(&server.url("/form/"));
    browser.drop_files("#drop", &[file("dropped.txt")]);
    browser.wait(&format!("{NAMES} === 'dropped.txt'"));
    assert_good(&mut browser);

    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&server.url("/form/?sort=time"));
    let document = browser.call("DOM.getDocument", &json!({}));
    let query = json!({ "nodeId": document["root"]["nodeId"], "selector": "#files" });
    let node = browser.call("DOM.querySelector", &query);
    let files = [file("one ü.txt"), file("two.txt")];
    let choice = json!({ "nodeId": node["nodeId"], "files": files });
    browser.call("DOM.setFileInputFiles", &choice);
    let place = browser.eval(
        "(() => { const box = document.querySelector('#drop [type=submit]').getBoundingClientRect(); \
         return [box.x + box.width / 2, box.y + box.height / 2] })()",
    );
    for kind in ["mousePressed", "mouseReleased"] {
        let event = json!({
            "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
        });
        browser.call("Input.dispatchMouseEvent", &event);
    }
    browser.wait(&format!("document.readyState === 'complete' && ({NAMES}).includes('two.txt')"));
    assert_eq!(server.tree().text("root/form/one ü.txt"), "one ü.txt");
    assert_eq!(server.tree().names("root/form").len(), 3);
}

/// F4: what a README brings looks like text, and nothing sticks out of the smallest screen.
#[test]
fn the_page_fits_a_small_phone_and_leaves_a_readme_alone() {
    if !have("chromium") {
        return;
    }
    let tree = Tree::new();
    for number in 0..60 {
        tree.file(&format!("root/all/a rather long name of a file, number {number}.txt"), "x");
    }
    tree.file("root/all/inner/x.txt", "kept");
    tree.link("root/all/way", "inner");
    tree.file(
        "root/all/README.md",
        "| a | b | c |\n|---|---|---|\n| [one](one.png) | two | three |\n",
    );
    let server = serve(
        tree,
        "location ~ /\\. { return 404; }
         location /all/ {
             autoindex on; autoindex_search on; autoindex_archive zip; autoindex_exact_size off;
             dav_methods PUT DELETE MKCOL MOVE; upload_delete_directories recursive;
         }",
    );
    let mut browser = Browser::start();
    for width in [320, 375] {
        let phone =
            json!({ "width": width, "height": 640, "deviceScaleFactor": 1, "mobile": true });
        browser.call("Emulation.setDeviceMetricsOverride", &phone);
        browser.open(&server.url("/all/"));
        assert_eq!(browser.eval("document.scrollingElement.scrollWidth"), json!(width));
        let right =
            |of: &str| format!("document.querySelector('{of}').getBoundingClientRect().right");
        let is_inside = format!("{} <= {}", right("#files"), right("#drop"));
        assert_eq!(browser.eval(&is_inside), json!(true), "{width}");
        assert_good(&mut browser);
    }
    // The field is wide enough for its words.
    let fits = "(() => { const field = document.querySelector('#filter'), style = getComputedStyle(field); \
                const brush = document.createElement('canvas').getContext('2d'); brush.font = style.font; \
                const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight); \
                return brush.measureText(field.placeholder).width <= room })()";
    assert_eq!(browser.eval(fits), json!(true));
    let cell = "getComputedStyle(document.querySelector('article td:nth-child(3)')).display";
    assert_eq!(browser.eval(cell), json!("table-cell"));
    let icon = "getComputedStyle(document.querySelector('article td a'), '::before').content";
    assert_eq!(browser.eval(icon), json!("none"));

    // The bar of what is selected stays in sight.
    browser.eval("document.querySelector('#list tbody tr:nth-child(5) input').click()");
    browser.eval("scrollTo(0, 900)");
    browser.wait("document.querySelector('#picked').getBoundingClientRect().top === 0");
    browser.eval("document.querySelector('#list tbody tr:nth-child(5) input').click()");

    // A link goes alone, after one question.
    browser.eval("document.querySelector('[aria-label=\"Delete way/\"]').click()");
    browser.wait("document.querySelector('dialog p')?.textContent === 'Delete way/?'");
    browser.eval("document.querySelector('dialog [value=Delete]').click()");
    browser.wait(&format!("{SAID} === 'way/ deleted'"));
    assert_eq!(server.tree().text("root/all/inner/x.txt"), "kept");

    // A name that is refused is explained.
    let files = Tree::new();
    browser.eval("scrollTo(0, 0)");
    for (name, why) in [(".hidden", "begin with a dot"), ("two\nlines", "names with line ends")] {
        let file = files.file(name, "x").display().to_string();
        browser.drop_files("#drop", &[file]);
        browser.wait(&format!("/{why}/.test(document.querySelector('#jobs').textContent)"));
    }

    // Where rows have no buttons, the page says so.
    let many = server.tree().folder("root/all/many");
    for number in 0..=5000 {
        File::create(many.join(number.to_string())).expect("a file");
    }
    browser.open(&server.url("/all/many/"));
    let count = browser.eval("document.querySelector('#count').textContent");
    let is_told = |text: &str| text.starts_with("5001 files. In a list of more than 5,000 entries");
    assert!(count.as_str().is_some_and(is_told), "{count}");
}
