//! The listing in a real browser: it sorts, filters, takes and deletes files, is dark where that is wished,
//! keeps its own policy and has no accessibility errors (F4).
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod chromium;

use std::fs::File;
use std::time::{Duration, SystemTime};

use chromium::Browser;
use common::serve;
use sekisho_testkit::{Server, Tree, have};
use serde_json::json;

const NAMES: &str = "[...document.querySelectorAll('tbody tr:not([hidden]):not(.u) td:first-child a')]\
                     .map(link => link.textContent).join(' ')";

/// A folder with typical files, and one where everything is allowed.
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
    serve(
        tree,
        "location /pub/ { autoindex on; autoindex_exact_size off; autoindex_archive zip; }
         location /box/ {
             autoindex on; autoindex_exact_size off; client_max_body_size 1m;
             dav_methods PUT DELETE MKCOL;
         }
         location /all/ {
             autoindex on; dav_methods PUT DELETE MKCOL MOVE; upload_delete_directories recursive;
         }
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
    browser.picture("listing-upload");
    let done = "[...document.querySelectorAll('#jobs li span')].filter(state => state.textContent === 'done')";
    browser.wait(&format!("{done}.length === 3"));
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
    browser.wait(&format!("{done}.length === 4"));
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
    let done = "[...document.querySelectorAll('#jobs li span')].filter(state => state.textContent === 'done')";

    // Several are asked for one by one, or all at once, and before anything is sent.
    let sent = "performance.getEntriesByType('resource').filter(entry => /old|two/.test(entry.name)).length";
    let before = browser.eval(sent);
    browser.drop_files("#drop", &[file("old.txt", 7), file("two.txt", 7), file("four.txt", 1)]);
    browser.wait("document.querySelector('dialog[open]')");
    assert_eq!(browser.eval(sent), before);
    browser.eval("document.querySelector('dialog [value=\"Replace all\"]').click()");
    browser.wait(&format!("{done}.length === 3"));
    assert_eq!(server.tree().text("root/box/old.txt"), "xxxxxxx");
    assert_eq!(server.tree().text("root/box/two.txt"), "xxxxxxx");

    // A folder comes with all that is in it.
    tree.file("album/1.jpg", "one");
    tree.file("album/deep/er/2 ü.jpg", "two");
    tree.folder("album/empty");
    browser.drop_files("#drop", &[tree.path("album").display().to_string()]);
    browser.wait(&format!("{done}.length === 5"));
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
    browser.wait("document.querySelector('#jobs span')?.textContent === 'done'");
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
