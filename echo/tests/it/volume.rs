//! Small, full and read-only volumes.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_test_harness::MOUNTS;
use tempfile::TempDir;

use crate::load::{Sent, request, send, sender, stored};
use crate::testbed::{ECHO, Echo, serve_command, wait_for};

/// A file system on a loop device, unmounted on drop.
pub(crate) struct Mounted {
    folder: TempDir,
}

impl Mounted {
    /// Creates an ext4 file system of `mib` MiB.
    pub(crate) fn ext4(mib: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mib * 1024 * 1024).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image));
        Self::mount(folder)
    }

    /// Mounts the image in a folder.
    fn mount(folder: TempDir) -> Self {
        std::fs::create_dir(folder.path().join("volume")).unwrap();
        let mounted = Self { folder };
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(mounted.image())
            .arg(mounted.path()));
        mounted
    }

    /// Returns the file system as after a power failure: with everything written to its disk, and
    /// without pages that the kernel holds in memory. No process may write meanwhile.
    pub(crate) fn after_power_failure(&self) -> Self {
        loop {
            let folder = tempfile::tempdir().unwrap();
            let before = self.image().metadata().unwrap().modified().unwrap();
            std::fs::copy(self.image(), folder.path().join("image")).unwrap();
            // The kernel may write at any time; the copy is valid only if it did not meanwhile.
            if self.image().metadata().unwrap().modified().unwrap() == before {
                return Self::mount(folder);
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// Returns the path for a database.
    pub(crate) fn db(&self) -> PathBuf {
        self.path().join("fleet.duckdb")
    }

    fn make_read_only(&self) {
        self.remount("ro");
    }

    /// Simulates a disk error: the file system becomes read-only, also for open files.
    pub(crate) fn fail(&self) {
        self.remount("abort");
    }

    fn remount(&self, option: &str) {
        run(Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.path()));
    }

    /// Creates a file that leaves `left` bytes of free space.
    fn fill_up(&self, left: u64) -> PathBuf {
        let filler = self.path().join("filler");
        let file = std::fs::File::create(&filler).unwrap();
        let available = fs2::available_space(self.path()).unwrap();
        fs2::FileExt::allocate(&file, available - left).unwrap();
        filler
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Mounting may have failed.
        let _not_mounted = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

const MIB: u64 = 1024 * 1024;

fn serve(db: &Path) -> Echo {
    Echo::serve_with(db, &["--min-free", "48MiB", "--ballast", "16MiB"])
}

#[test]
#[needs(MOUNTS)]
fn without_free_space_events_are_refused_with_retry_after_and_queries_are_answered() {
    let volume = Mounted::ext4(200);
    let echo = serve(&volume.db());
    let sender = sender();
    let put = |number| {
        send(
            &sender,
            &echo.otlp_http,
            "agent-1",
            number,
            &request(number, 100),
        )
    };
    assert_eq!(put(1), Sent::Acknowledged);
    let ballast = volume.path().join("fleet.duckdb.ballast");
    // The file exists before it has its full size.
    let is_made = || ballast.metadata().is_ok_and(|file| file.len() == 16 * MIB);
    wait_for("the ballast to be created", is_made);

    // Without the ballast the free space is above the limit, but it is reserved for deletes.
    let filler = volume.fill_up(40 * MIB);
    for _ in 0..3 {
        assert_eq!(put(2), Sent::Refused(503, Some(1)));
        assert!(
            !ballast.exists(),
            "the ballast still takes the space for deletes"
        );
    }
    let outliers = echo.query("find_outlier_nodes", "load");
    assert_eq!(outliers["data_quality"]["ranks_reporting"], 0, "{outliers}");

    std::fs::remove_file(filler).unwrap();
    assert_eq!(put(2), Sent::Acknowledged, "the same batch, again");
    wait_for("the ballast to be created again", is_made);
    assert_eq!(echo.terminate(), 0);
    let stored = stored(&volume.db());
    assert_eq!(
        stored.into_iter().collect::<Vec<_>>(),
        [(1, (100, 100)), (2, (100, 100))]
    );
}

#[test]
#[needs(MOUNTS)]
fn a_disk_that_fills_up_during_a_commit_ends_echo_with_74_and_loses_nothing() {
    let volume = Mounted::ext4(120);
    // Without a minimum of free space, the engine fills the disk completely.
    let mut command = serve_command(&volume.db());
    command.args(["--min-free", "1", "--ballast", "off"]);
    let (echo, log) = Echo::spawn(command);
    let sender = sender();
    let mut acknowledged = 0;
    let _filler = volume.fill_up(4 * MIB);
    for number in 1..=200 {
        match send(
            &sender,
            &echo.otlp_http,
            "agent-1",
            number,
            &request(number, 2_000),
        ) {
            Sent::Acknowledged => acknowledged = number,
            Sent::Refused(..) | Sent::Unknown => break,
        }
    }
    assert!(acknowledged < 200, "the disk did not fill up");
    let code = echo.wait();
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(code, Some(74), "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        last.starts_with("fleet-echo: ")
            && last.contains("failed permanently and must be opened again"),
        "{log}"
    );

    // A restart without more free space fails in the same way.
    let output = serve_command(&volume.db())
        .args(["--min-free", "1", "--ballast", "off"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(74), "{stderr}");
    assert!(stderr.contains("No space left"), "{stderr}");
    assert!(!stderr.contains("--drop-wal"), "the log is sound: {stderr}");
    let wal = volume.path().join("fleet.duckdb.wal");
    let before = wal.metadata().unwrap().len();
    let repaired = Command::new(ECHO)
        .args(["repair", "--drop-wal", "--db"])
        .arg(volume.db())
        .output()
        .unwrap();
    assert!(repaired.status.success(), "{repaired:?}");
    assert_eq!(wal.metadata().unwrap().len(), before, "the log was changed");

    std::fs::remove_file(volume.path().join("filler")).unwrap();
    let echo = serve(&volume.db());
    assert_eq!(echo.terminate(), 0);
    let stored = stored(&volume.db());
    for batch in 1..=acknowledged {
        assert_eq!(stored.get(&batch), Some(&(2_000, 2_000)), "batch {batch}");
    }
}

#[test]
#[needs(MOUNTS)]
fn a_read_only_volume_is_refused_with_64_and_a_reason() {
    let volume = Mounted::ext4(64);
    assert_eq!(Echo::serve(&volume.db()).terminate(), 0);
    volume.make_read_only();
    let output = serve_command(&volume.db()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    assert!(
        stderr.contains("Read-only") && stderr.contains("--db"),
        "{stderr}"
    );
}
