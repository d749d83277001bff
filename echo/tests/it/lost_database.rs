//! A database that is removed, renamed or replaced while Echo runs, and one whose file system
//! becomes read-only.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use fleet_test_harness::MOUNTS;
use tempfile::{NamedTempFile, TempDir};

use crate::load::{Sent, request, send, sender, stored};
use crate::readiness::reasons;
use crate::testbed::{Echo, serve_command, wait_for};
use crate::volume::Mounted;

const POINTS: u64 = 50;

/// An instance that has stored one batch, with its database in a separate folder.
struct Serving {
    folder: TempDir,
    echo: Echo,
    log: NamedTempFile,
}

impl Serving {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let (echo, log) = Echo::spawn(serve_command(&db(&folder.path().join("data"))));
        let serving = Self { folder, echo, log };
        assert_eq!(serving.put(1), Sent::Acknowledged);
        serving
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, batch: u64) -> Sent {
        let body = request(batch, POINTS);
        send(&sender(), &self.echo.otlp_http, "agent-1", batch, &body)
    }

    /// Waits until Echo exits with 74, and checks that its last line names the reason.
    fn assert_ends_because(self, reason: &str) -> TempDir {
        let code = self.echo.wait();
        let log = fs::read_to_string(self.log.path()).unwrap();
        assert_eq!(code, Some(74), "{log}");
        let last = log.lines().last().unwrap();
        assert!(
            last.starts_with("fleet-echo: ") && last.contains(reason),
            "{log}"
        );
        self.folder
    }
}

fn db(folder: &Path) -> PathBuf {
    folder.join("fleet.duckdb")
}

#[test]
fn nothing_is_acknowledged_after_the_database_folder_is_removed() {
    let serving = Serving::start();
    fs::remove_dir_all(serving.path("data")).unwrap();
    // Batch 1 is sent again, since it was lost with the folder.
    for batch in 1..=5 {
        let sent = serving.put(batch);
        let is_retried = matches!(sent, Sent::Refused(503, Some(_)) | Sent::Unknown);
        assert!(is_retried, "batch {batch}: {sent:?}");
    }
    serving.assert_ends_because("no longer");
}

#[test]
fn an_idle_instance_detects_a_removed_file_and_is_not_ready() {
    let serving = Serving::start();
    // Echo finishes this request before it exits.
    let mut open = TcpStream::connect(&serving.echo.otlp_http).unwrap();
    write!(
        open,
        "POST /v1/metrics HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: 2\r\nconnection: close\r\n\r\n{{"
    )
    .unwrap();
    fs::remove_file(db(&serving.path("data"))).unwrap();
    wait_for("Echo to report that it is not ready", || {
        reasons(&serving.echo).contains(&"store_failed".to_owned())
    });
    open.write_all(b"}").unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).unwrap();
    serving.assert_ends_because("no longer");
}

#[test]
fn a_renamed_folder_keeps_acknowledged_events_and_its_replacement_is_unchanged() {
    let serving = Serving::start();
    fs::rename(serving.path("data"), serving.path("moved")).unwrap();
    let replacement = serving.path("data");
    fs::create_dir(&replacement).unwrap();
    let wal = replacement.join("fleet.duckdb.wal");
    fs::write(db(&replacement), "another database").unwrap();
    fs::write(&wal, "its log").unwrap();
    assert_ne!(serving.put(2), Sent::Acknowledged);
    let folder = serving.assert_ends_because("no longer");
    assert_eq!(fs::read_to_string(wal).unwrap(), "its log");
    let stored = stored(&db(&folder.path().join("moved")));
    assert_eq!(stored.get(&1), Some(&(POINTS, POINTS)));
}

#[test]
#[needs(MOUNTS)]
fn a_file_system_that_becomes_read_only_ends_echo_with_and_without_load() {
    for batches in [[2, 3, 4].as_slice(), &[]] {
        let volume = Mounted::ext4(64);
        let mut command = serve_command(&volume.db());
        command.args(["--min-free", "1", "--ballast", "off"]);
        let (echo, log) = Echo::spawn(command);
        let put = |batch| {
            let body = request(batch, POINTS);
            send(&sender(), &echo.otlp_http, "agent-1", batch, &body)
        };
        assert_eq!(put(1), Sent::Acknowledged);
        volume.fail();
        for &batch in batches {
            assert_ne!(put(batch), Sent::Acknowledged, "batch {batch}");
        }
        let code = echo.wait();
        let log = fs::read_to_string(log.path()).unwrap();
        assert_eq!(code, Some(74), "{log}");
        assert!(log.contains("Read-only file system"), "{log}");
    }
}
