//! The documents: links lead somewhere, every page is in the table of contents, and the code on the pages works. The
//! blocks of a page are run in their order, as root, in namespaces of their own (files, network, processes), so that
//! commands, paths and ports are those that a reader would type.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod links;
mod page;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::BINARY;
use page::Page;
use sekisho_testkit::{Tree, have, python_with, run};

/// The whole run of one page.
const PAGE_LIMIT: Duration = Duration::from_mins(2);

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("there")
}

/// Runs a page that needs these programs.
#[track_caller]
fn run_page(name: &str, programs: &[&str]) {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: documents are run as root, in namespaces of their own");
        return;
    }
    let common = ["unshare", "ip", "curl", "bash", "openssl", "python3"];
    if !common.iter().chain(programs).all(|program| have(program)) {
        return;
    }
    let repository = repository();
    let source = fs::read_to_string(repository.join("docs").join(name)).expect(name);
    let tree = Tree::new();
    let script = tree.file("page.sh", Page::of(&source).script()).display().to_string();
    let (binary, docs) = (Path::new(BINARY), repository.display().to_string());
    let folder = binary.parent().expect("a folder").display().to_string();
    let prelude = repository.join("crates/server/tests/documents/prelude.sh");
    let prelude = prelude.display().to_string();
    let arguments = [
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        &prelude,
        &script,
        &folder,
        &docs,
    ];
    let finished = run("unshare", &arguments, PAGE_LIMIT);
    let (code, out, err) = (finished.code(), finished.stdout, finished.stderr);
    if code == 125 {
        println!("skipped: no namespaces here: {err}");
        return;
    }
    assert_eq!(code, 0, "docs/{name}\n--- stdout\n{out}\n--- stderr\n{err}");
}

macro_rules! pages {
    ($($test:ident: $page:literal $(needs $($program:literal)+)?;)*) => {
        const PAGES_RUN: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                run_page($page, &[$($($program),+)?]);
            }
        )*
    };
}

pages! {
    the_commands_of_the_first_page_work: "index.md";
    the_commands_of_access_work: "access.md" needs "htpasswd";
    the_commands_of_behind_a_proxy_work: "behind-a-proxy.md";
    the_commands_of_caching_work: "caching.md";
    the_commands_of_cluster_work: "cluster.md";
    the_commands_of_cgi_work: "cgi.md" needs "git" "perl";
    the_commands_of_compression_work: "compression.md" needs "zstd";
    the_commands_of_containers_work: "containers.md";
    the_commands_of_control_work: "control.md";
    the_commands_of_cors_work: "cors.md";
    the_commands_of_fastcgi_work: "fastcgi.md" needs "nginx";
    the_commands_of_filters_work: "filters.md";
    the_commands_of_git_work: "git.md" needs "git" "htpasswd";
    the_commands_of_http3_work: "http3.md";
    the_commands_of_identity_work: "identity.md";
    the_commands_of_install_work: "install.md";
    the_commands_of_listing_work: "listing.md";
    the_commands_of_logs_work: "logs.md";
    the_commands_of_metrics_work: "metrics.md";
    the_commands_of_nginx_work: "nginx.md" needs "nginx";
    the_commands_of_operation_work: "operation.md";
    the_commands_of_php_work: "php.md" needs "php-fpm8.2" "php-cgi" "nginx";
    the_commands_of_proxy_work: "proxy.md";
    the_commands_of_rate_limits_work: "rate-limits.md";
    the_commands_of_scale_work: "scale.md";
    the_commands_of_security_work: "security.md";
    the_commands_of_share_work: "share.md";
    the_commands_of_spa_work: "spa.md";
    the_commands_of_storage_work: "storage.md";
    the_commands_of_stream_work: "stream.md";
    the_commands_of_tls_work: "tls.md";
    the_commands_of_troubleshooting_work: "troubleshooting.md";
    the_commands_of_uploads_work: "files.md";
    the_commands_of_webdav_work: "webdav.md" needs "htpasswd" "rclone";
    the_commands_of_website_work: "website.md";
}

/// a page with code that a reader may type is run by a test.
#[test]
fn every_block_of_yaml_is_yaml() {
    // O7: the descriptions for orchestrators, whose kinds are those that they claim to be.
    let python = match python_with("pyyaml", "yaml", concat!(env!("CARGO_TARGET_TMPDIR"), "/yaml"))
    {
        Ok(python) => python,
        Err(why) => return println!("skipped: {why}"),
    };
    let python = |script: &str, arguments: &[&str]| {
        run(&python, &[&["-c", script], arguments].concat(), PAGE_LIMIT)
    };
    let source = fs::read_to_string(repository().join("docs/containers.md")).expect("the page");
    let page = Page::of(&source);
    let texts: Vec<&str> = page.blocks_of("yaml").map(|(_, text)| text).collect();
    let script = "import sys, yaml
for text in sys.argv[1:]:
    for document in yaml.safe_load_all(text):
        print(document.get('kind') or list(document)[0])";
    let finished = python(script, &texts);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert_eq!(finished.stdout, "services\nDeployment\nService\nPodDisruptionBudget\n");
}

#[test]
fn every_page_with_code_is_run() {
    for (name, source) in text::documents(&repository().join("docs")) {
        let page = Page::of(&source);
        let is_run = PAGES_RUN.contains(&name.as_str());
        assert!(is_run || !page.has_code(), "docs/{name} has code and no test that runs it");
        let unknown: Vec<_> = page.unknown_languages().collect();
        assert!(unknown.is_empty(), "docs/{name}: what is to be done with {unknown:?}?");
    }
}

/// links within the repository lead to files and headings that exist.
#[test]
fn no_link_is_dead() {
    let dead = links::dead(&repository());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// the site has every page.
#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = repository().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("a table of contents");
    let names = text::documents(&docs).into_iter().map(|(name, _)| name);
    let missing =
        names.filter(|name| name != "SUMMARY.md" && !summary.contains(&format!("({name})")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
}

/// the dashboard and the alert rules ask for metrics that exist.
#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let server = common::serve(Tree::new(), "location = /metrics { status prometheus; }");
    let metrics = server.connect().get("/metrics").text();
    let is_known = |name: &str| {
        metrics.lines().any(|line| {
            let rest = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(' '))
        })
    };
    let folder = repository().join("docs/metrics");
    for file in ["grafana-dashboard.json", "alerts.yml"] {
        let text = fs::read_to_string(folder.join(file)).expect(file);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("sekisho_"));
        let mut count = 0;
        for word in words {
            count += 1;
            assert!(is_known(word) || is_known(word.trim_end_matches("_bucket")), "{file}: {word}");
        }
        assert!(count > 5, "{file} asks for metrics");
    }
    let dashboard = fs::read(folder.join("grafana-dashboard.json")).expect("a dashboard");
    serde_json::from_slice::<serde_json::Value>(&dashboard).expect("JSON");
}
