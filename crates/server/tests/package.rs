//! What packages install: the Debian package, its man pages, completions, units and configuration.
#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{BINARY, LONG};
use sekisho_testkit::{Finished, Tree, have, run};

const PATIENCE: Duration = Duration::from_mins(5);

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").canonicalize().expect("there")
}

#[track_caller]
fn shell(line: &str) -> Finished {
    let finished = run("sh", &["-c", line], PATIENCE);
    assert_eq!(finished.code(), 0, "{line}: {}{}", finished.stdout, finished.stderr);
    finished
}

/// Makes the packages of the binary under test.
fn deb(tree: &Tree) -> PathBuf {
    let out = tree.folder("out");
    let (script, folder) = (packaging().join("deb"), out.display());
    shell(&format!("DEB_COMPRESSION=gzip '{}' {BINARY} '{folder}'", script.display()));
    let names = tree.names("out");
    let name = names.iter().find(|name| name.starts_with("sekisho_")).expect("a package");
    assert!(names.iter().any(|name| name.starts_with("sekisho-dbgsym_")), "{names:?}");
    out.join(name)
}

/// O1: everything is in the package, the man pages and completions can be read, the configuration is good, and lintian
/// finds no error.
#[test]
fn the_debian_package_is_whole() {
    if !have("dpkg-deb") || !have("objcopy") {
        return;
    }
    let tree = Tree::new();
    let package = deb(&tree).display().to_string();
    let root = tree.folder("unpacked");
    let at = root.display();
    shell(&format!("dpkg-deb -x '{package}' '{at}' && dpkg-deb -e '{package}' '{at}/DEBIAN'"));
    for name in [
        "usr/bin/sekisho",
        "etc/sekisho/sekisho.conf",
        "etc/sekisho/conf.d/default.conf",
        "etc/logrotate.d/sekisho",
        "lib/systemd/system/sekisho.service",
        "lib/systemd/system/sekisho.socket",
        "usr/share/man/man1/sekisho.1.gz",
        "usr/share/man/man1/sekisho-serve.1.gz",
        "usr/share/man/man1/sekisho-ctl.1.gz",
        "usr/share/man/man5/sekisho.conf.5.gz",
        "usr/share/bash-completion/completions/sekisho",
        "usr/share/zsh/vendor-completions/_sekisho",
        "usr/share/fish/vendor_completions.d/sekisho.fish",
        "usr/share/sekisho/html/index.html",
        "usr/share/doc/sekisho/copyright",
        "DEBIAN/postinst",
    ] {
        assert!(root.join(name).is_file(), "{name}");
    }
    shell(&format!("cd '{at}' && md5sum --quiet -c DEBIAN/md5sums"));
    assert!(!shell(&format!("readelf -S '{at}/usr/bin/sekisho'")).stdout.contains(".debug_info"));
    shell(&format!("for script in postinst prerm postrm; do sh -n '{at}/DEBIAN/'$script; done"));
    shell(&format!("bash -n '{at}/usr/share/bash-completion/completions/sekisho'"));
    if have("man") {
        let manual =
            format!("MANROFFSEQ= man --warnings -E UTF-8 -l -Tutf8 -Z '{at}/usr/share/man/");
        for page in ["man1/sekisho-serve.1.gz", "man5/sekisho.conf.5.gz"] {
            let read = shell(&format!("{manual}{page}' >/dev/null"));
            assert_eq!(read.stderr, "", "{page}");
        }
        let shown = shell(&format!("man -l '{at}/usr/share/man/man5/sekisho.conf.5.gz'")).stdout;
        assert!(shown.contains("dav_ext_methods") && shown.contains("worker_processes"));
    }
    if have("lintian") {
        let found = run("lintian", &["--no-tag-display-limit", &package], PATIENCE);
        assert!(!found.stdout.lines().any(|line| line.starts_with("E:")), "{}", found.stdout);
    }
}

/// O1: the configuration of the package serves its page, as the user that runs the tests.
#[test]
fn the_default_configuration_serves_its_page() {
    let tree = Tree::new();
    let from = packaging();
    let address = common::own_address(18_093);
    let dir = tree.dir().display().to_string();
    let text = |name: &str| fs::read_to_string(from.join(name)).expect(name);
    tree.folder("log");
    tree.file("html/index.html", text("index.html"));
    let site = text("default-site.conf");
    let site =
        site.replace("listen 80 default_server", &format!("listen {address} default_server"));
    let site = site.replace("    listen [::]:80 default_server;\n", "");
    tree.file("conf.d/default.conf", site.replace("/usr/share/sekisho", &dir));
    let config = text("sekisho.conf").replace("user sekisho;\n", "");
    let config = config.replace("/run/sekisho.pid", &format!("{dir}/pid"));
    tree.file("sekisho.conf", config.replace("/var/log/sekisho", &format!("{dir}/log")));
    let server = common::Process::start(tree, &["-c", "sekisho.conf"]);
    sekisho_testkit::eventually("it listens", LONG, || {
        std::net::TcpStream::connect(address).is_ok()
    });
    let page = sekisho_testkit::Client::connect(address).get("/");
    assert!(page.text().contains("Sekisho works"), "{}", page.text());
    assert!(server.tree().exists("log/access.log"));
}

/// O4: systemd understands the units.
#[test]
fn the_units_are_understood() {
    if !have("systemd-analyze") {
        return;
    }
    let tree = Tree::new();
    for name in ["sekisho.service", "sekisho.socket"] {
        let text = fs::read_to_string(packaging().join(name)).expect(name);
        // Only what is installed can be looked at.
        let text = text.replace("/usr/bin/sekisho", BINARY);
        let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
        tree.file(name, lines.collect::<Vec<_>>().join("\n") + "\n");
    }
    let units = [tree.path("sekisho.service"), tree.path("sekisho.socket")];
    let units = units.map(|unit| unit.display().to_string());
    let verified = run("systemd-analyze", &["verify", &units[0], &units[1]], LONG);
    let said = verified.stderr.lines().filter(|line| line.contains("sekisho")).collect::<Vec<_>>();
    assert!(said.is_empty(), "{said:?}");
}

/// O1: installed, upgraded, removed and purged in a system of its own, without systemd (with `SEKISHO_LONG`, as root).
#[test]
fn the_package_is_installed_upgraded_and_purged() {
    let is_asked = std::env::var_os("SEKISHO_LONG").is_some();
    if !is_asked || !rustix::process::geteuid().is_root() || !have("debootstrap") {
        println!("skipped: needs SEKISHO_LONG, root and debootstrap");
        return;
    }
    let tree = Tree::new();
    let package = deb(&tree);
    let system = tree.path("system").display().to_string();
    shell(&format!("debootstrap --variant=minbase --include=adduser bookworm '{system}'"));
    fs::copy(&package, tree.path("system/sekisho.deb")).expect("copied");
    let inside = |line: &str| shell(&format!("chroot '{system}' sh -ec '{line}'"));
    inside("dpkg -i /sekisho.deb && getent passwd sekisho");
    inside("sekisho -t -c /etc/sekisho/sekisho.conf");
    inside(
        "echo \"# mine\" >> /etc/sekisho/sekisho.conf && dpkg -i /sekisho.deb && grep mine /etc/sekisho/sekisho.conf",
    );
    inside("dpkg -r sekisho && test -f /etc/sekisho/sekisho.conf && test ! -e /usr/bin/sekisho");
    inside("dpkg -P sekisho && test ! -e /etc/sekisho && test ! -e /var/log/sekisho");
}
