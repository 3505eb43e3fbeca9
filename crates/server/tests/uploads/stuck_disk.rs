//! A disk that does not respond (O10): an ext4 file system that is frozen, as a dead file server looks to writers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sekisho_testkit::{Client, Tree, eventually, run};

use crate::common::{BINARY, LONG, serve};
use crate::whole::Mounted;

/// A file system whose writers wait, until this is dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(at: &'a Path) -> Option<Self> {
        let frozen = Command::new("fsfreeze").arg("-f").arg(at).output();
        frozen.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).output();
    }
}

/// O10: uploads to a frozen disk wait or are refused with 503; other disks do not notice. The log and `ctl status`
/// name the disk. When it responds again, uploads that had begun are complete.
#[test]
fn a_frozen_disk_holds_up_no_other() {
    let tree = Tree::new();
    let disk = tree.folder("root/disk");
    let Some(_mounted) = Mounted::ext4(&disk, &tree.path("image"), 16 << 20) else {
        println!("skipped: a disk cannot be mounted here");
        return;
    };
    tree.folder("root/up");
    tree.file("root/disk/there", "there");
    let server = serve(tree, "client_max_body_size 0; dav_methods PUT DELETE MOVE;");
    let Some(frozen) = Frozen::new(&disk) else {
        println!("skipped: a disk cannot be frozen here");
        return;
    };
    let begun = sekisho_testkit::now();
    let put = |at: usize| {
        let mut client = server.connect().with_patience(LONG);
        client.send(format!("PUT /disk/f{at} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"));
        client
    };
    let mut waiting: Vec<Client> = (0..90).map(put).collect();
    // Others go on, while and after all threads of the frozen disk are taken.
    for at in 0..20 {
        let asked = sekisho_testkit::now();
        let mut client = server.connect();
        let target = format!("/up/f{at}");
        assert_eq!(client.request_with_body("PUT", &target, "", b"abc").status, 201);
        let moved = client.request("MOVE", &target, "Destination: /up/other\r\n").status;
        assert!(matches!(moved, 201 | 204), "{moved}");
        assert_eq!(client.request("DELETE", "/up/other", "").status, 204);
        assert_eq!(client.get("/disk/there").text(), "there");
        assert!(asked.elapsed() < Duration::from_millis(900), "{:?}", asked.elapsed());
    }
    // Those without a thread are refused in time.
    let mut refused = 0;
    while let Some(mut client) = (waiting.len() > 32).then(|| waiting.pop()).flatten() {
        let response = client.read_response();
        assert_eq!((response.status, response.field("retry-after")), (503, Some("10")));
        refused += 1;
    }
    assert_eq!(refused, 58);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let line = format!("the disk of \"{}", disk.display());
    eventually("it is logged", LONG, || server.log("error.log").contains(&line));
    let pid = server.id().to_string();
    let status = run(BINARY, &["ctl", "--pid", &pid, "status"], LONG);
    assert!(status.stdout.contains("Disks that do not respond"), "{}", status.stdout);
    assert!(status.stdout.contains(&disk.display().to_string()), "{}", status.stdout);
    let metrics = run(BINARY, &["ctl", "--pid", &pid, "metrics"], LONG);
    let is_stuck = |line: &str| line.starts_with("disk_stuck_seconds{") && !line.ends_with(" 0");
    assert!(metrics.stdout.lines().any(is_stuck), "{}", metrics.stdout);
    drop(frozen);
    for client in &mut waiting {
        assert_eq!(client.read_response().status, 201);
    }
    eventually("that is logged, too", LONG, || server.log("error.log").contains("responds again"));
    let lines = server.log("error.log").matches(&line).count();
    assert_eq!(lines, 2, "once when it hangs, once when it goes on");
    for at in 0..90 {
        let name = format!("root/disk/f{at}");
        let expected: Option<&[u8]> = (at < 32).then_some(b"abc");
        let found = server.tree().exists(&name).then(|| server.tree().read(&name));
        assert_eq!(found.as_deref(), expected, "{at}");
    }
}

/// O10: a large body that is on its way to the disk when it freezes is refused, and nothing of it is left.
#[test]
fn an_upload_that_meets_a_frozen_disk_is_refused_in_time() {
    let tree = Tree::new();
    let disk = tree.folder("root/disk");
    let Some(_mounted) = Mounted::ext4(&disk, &tree.path("image"), 16 << 20) else {
        println!("skipped: a disk cannot be mounted here");
        return;
    };
    let server = serve(tree, "client_max_body_size 0; dav_methods PUT;");
    let Some(frozen) = Frozen::new(&disk) else {
        println!("skipped: a disk cannot be frozen here");
        return;
    };
    let begun = sekisho_testkit::now();
    let mut client = server.connect().with_patience(LONG);
    client.send("PUT /disk/large HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
    let _ = client.try_send(vec![b'x'; 200_000]);
    let response = client.read_response();
    assert_eq!((response.status, response.field("retry-after")), (503, Some("10")));
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    drop(frozen);
    let names = || server.tree().names("root/disk").join(" ");
    eventually("nothing is left", LONG, || names() == "lost+found");
}
