//! What packages install: the Debian package and the RPM with their man pages, completions, units and configuration, and
//! the container image.
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

/// O1: the configuration of the package serves its page, as the user who runs the tests.
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

/// O1: installed by apt, serving, upgraded, removed and purged in a system of its own, without systemd (with `SEKISHO_LONG`, as
/// root).
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
    // From the package to a served page, in a network of its own: within a minute.
    let watch = sekisho_testkit::Stopwatch::start();
    let script = format!(
        "ip link set lo up; chroot '{system}' apt-get install -y -qq --no-install-recommends /sekisho.deb >&2; \
         chroot '{system}' sekisho -c /etc/sekisho/sekisho.conf & server=$!; \
         for try in $(seq 200); do curl -sf http://127.0.0.1/ && break; sleep 0.05; done; \
         kill -QUIT $server; wait $server"
    );
    let first = run("unshare", &["--net", "sh", "-c", &script], PATIENCE);
    assert!(first.stdout.contains("Sekisho works"), "{}{}", first.stdout, first.stderr);
    println!("from the package to a served page: {:?}", watch.elapsed());
    assert!(watch.elapsed() < Duration::from_mins(1), "{:?}", watch.elapsed());
    inside("getent passwd sekisho && sekisho -t -c /etc/sekisho/sekisho.conf");
    inside(
        "echo \"# mine\" >> /etc/sekisho/sekisho.conf && dpkg -i /sekisho.deb && grep mine /etc/sekisho/sekisho.conf",
    );
    inside("dpkg -r sekisho && test -f /etc/sekisho/sekisho.conf && test ! -e /usr/bin/sekisho");
    inside("dpkg -P sekisho && test ! -e /etc/sekisho && test ! -e /var/log/sekisho");
}

/// O1: an RPM, installed in a system of its own, serves its page, keeps a changed configuration when it is upgraded, and
/// leaves no program behind (with `SEKISHO_LONG`, as root).
#[test]
fn the_rpm_is_installed_upgraded_and_erased() {
    let is_asked = std::env::var_os("SEKISHO_LONG").is_some();
    if !is_asked
        || !rustix::process::geteuid().is_root()
        || !have("debootstrap")
        || !have("rpmbuild")
    {
        println!("skipped: needs SEKISHO_LONG, root, debootstrap and rpmbuild");
        return;
    }
    let tree = Tree::new();
    let (out, top) = (tree.folder("out"), tree.folder("top"));
    let (out, top, from) = (out.display(), top.display(), packaging());
    let (spec, source) = (from.join("rpm/sekisho.spec"), from.join(".."));
    shell(&format!("cp {BINARY} '{top}/sekisho' && strip '{top}/sekisho'"));
    shell(&format!(
        "rpmbuild -bb --quiet --nodeps --define '_topdir {top}' --define '_sourcedir {}' --define '_rpmdir {out}' \
         --define '_build_name_fmt sekisho.rpm' --define 'binary {top}/sekisho' '{}'",
        source.display(),
        spec.display()
    ));
    let system = tree.path("system").display().to_string();
    let package = format!("{out}/sekisho.rpm");
    shell(&format!("debootstrap --variant=minbase --include=passwd,logrotate bookworm '{system}'"));
    shell(&format!("mkdir -p '{system}/var/lib/rpm' && rpm --root '{system}' --initdb"));
    let rpm = |line: &str| shell(&format!("rpm --root '{system}' {line}"));
    let inside = |line: &str| shell(&format!("chroot '{system}' sh -ec '{line}'"));
    // The database does not know Debian's packages.
    rpm(&format!("-i --nodeps '{package}'"));
    rpm("-V --nodeps sekisho");
    inside("getent passwd sekisho && sekisho -t -c /etc/sekisho/sekisho.conf");
    let script = format!(
        "ip link set lo up; chroot '{system}' sekisho -c /etc/sekisho/sekisho.conf & server=$!; \
         for try in $(seq 200); do curl -sf http://127.0.0.1/ && break; sleep 0.05; done; \
         kill -QUIT $server; wait $server"
    );
    let served = run("unshare", &["--net", "sh", "-c", &script], PATIENCE);
    assert!(served.stdout.contains("Sekisho works"), "{}{}", served.stdout, served.stderr);
    // Rotation by the user of the server, in a folder that belongs to it.
    inside("logrotate -f /etc/logrotate.d/sekisho && test -s /var/log/sekisho/access.log.1");
    inside("echo \"# mine\" >> /etc/sekisho/sekisho.conf");
    rpm(&format!("-U --force --nodeps '{package}'"));
    inside("grep mine /etc/sekisho/sekisho.conf");
    rpm("-e sekisho");
    inside("test ! -e /usr/bin/sekisho && grep mine /etc/sekisho/sekisho.conf.rpmsave");
}

/// O1: an image has the settings of the Dockerfile and what the server needs; one that is larger than 15 MB, such as that of
/// a debug build, is refused, and its size is named.
#[test]
fn the_image_has_a_limit_and_the_settings_of_the_dockerfile() {
    if !have("strip") || !have("tar") || !Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        return;
    }
    let tree = Tree::new();
    let (script, out) = (packaging().join("image"), tree.path("image.tar"));
    let (script, out) = (script.display().to_string(), out.display().to_string());
    let refused = run(&script, &[BINARY, &out], PATIENCE);
    assert_eq!(refused.code(), 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("bytes, the limit is 15000000"), "{}", refused.stderr);
    assert!(!tree.exists("image.tar"));

    shell(&format!("IMAGE_BYTES_MAX=0 '{script}' {BINARY} '{out}'"));
    let json = |name: &str| {
        let text = shell(&format!("tar -xOf '{out}' '{name}'")).stdout;
        serde_json::from_str::<serde_json::Value>(&text).expect(name)
    };
    let manifest = json("manifest.json");
    let settings = json(manifest[0]["Config"].as_str().expect("a name"))["config"].clone();
    for (name, value) in [
        ("User", serde_json::json!("65534:65534")),
        ("WorkingDir", serde_json::json!("/srv")),
        ("StopSignal", serde_json::json!("SIGQUIT")),
        ("Entrypoint", serde_json::json!(["/sekisho"])),
        ("ExposedPorts", serde_json::json!({ "8080/tcp": {} })),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    let health = serde_json::json!(["CMD", "/sekisho", "ctl", "--pid", "1", "metrics"]);
    assert_eq!(settings["Healthcheck"]["Test"], health);
    assert_eq!(settings["Healthcheck"]["Interval"], 30_000_000_000_u64);
    let files = shell(&format!("tar -xOf '{out}' layer.tar | tar -tv")).stdout;
    assert!(files.contains("drwxrwxrwt 0/0"), "{files}");
    assert!(files.contains("etc/ssl/certs/ca-certificates.crt"), "{files}");
}

/// O1: the image of a release is small, and its files are all that the server needs: it serves, and its health check
/// succeeds (with `SEKISHO_STATIC_BINARY`, as root).
#[test]
fn the_image_serves_with_nothing_but_its_files() {
    let binary = std::env::var("SEKISHO_STATIC_BINARY").unwrap_or_default();
    if binary.is_empty() || !rustix::process::geteuid().is_root() || !have("unshare") {
        println!("skipped: needs root and a static binary (SEKISHO_STATIC_BINARY)");
        return;
    }
    let tree = Tree::new();
    let (script, root) = (packaging().join("image"), tree.folder("root"));
    let (script, root, dir) = (script.display(), root.display(), tree.dir().display().to_string());
    println!("{}", shell(&format!("'{script}' '{binary}' '{dir}/image.tar'")).stdout);
    shell(&format!("tar -xOf '{dir}/image.tar' layer.tar | tar -x -C '{root}'"));
    tree.file("root/srv/hello.txt", "from the image");
    let script = format!(
        "ip link set lo up; mkdir '{root}/proc'; mount -t proc proc '{root}/proc'; \
         chroot --userspec=65534:65534 '{root}' /sekisho serve /srv -l 8080 --open-listing >&2 & server=$!; \
         for try in $(seq 200); do curl -sf http://127.0.0.1:8080/hello.txt && break; sleep 0.05; done; \
         chroot --userspec=65534:65534 '{root}' /sekisho ctl --pid $server metrics >&2 && echo healthy; \
         kill -QUIT $server; wait $server; echo ended $?"
    );
    let arguments = ["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", &script];
    let served = run("unshare", &arguments, PATIENCE);
    let said = format!("{}{}", served.stdout, served.stderr);
    assert!(served.stdout.starts_with("from the image"), "{said}");
    assert!(served.stdout.contains("healthy") && served.stdout.contains("ended 0"), "{said}");
}
