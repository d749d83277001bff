//! Volumes that are small, full, or read-only. They are mounted for the test, which takes root; elsewhere the tests say
//! that they are left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::load::{Sent, request, send, sender, stored};
use crate::testbed::{ECHO, Echo, serve_command, wait_for};

/// A file system of its own, unmounted when it is dropped.
pub(crate) struct Mounted {
    folder: TempDir,
}

impl Mounted {
    /// An ext4 file system of `mib` MiB on a loop device; nothing, with a word why, where mounting is not allowed.
    pub(crate) fn ext4(mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mib * 1024 * 1024).unwrap();
        let made = run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image));
        match made.and_then(|()| Self::mount(folder)) {
            Ok(mounted) => Some(mounted),
            Err(why) => {
                eprintln!("left out, no file system can be mounted here: {why}");
                None
            }
        }
    }

    /// Mounts the image that lies in a folder.
    fn mount(folder: TempDir) -> Result<Self, String> {
        std::fs::create_dir(folder.path().join("volume")).unwrap();
        let mounted = Self { folder };
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(mounted.image())
            .arg(mounted.path()))?;
        Ok(mounted)
    }

    /// The file system as a failure of power leaves it now: with what was written to its disk, and without what the kernel still
    /// holds in memory. Nobody may be writing.
    pub(crate) fn after_power_failure(&self) -> Self {
        loop {
            let folder = tempfile::tempdir().unwrap();
            let before = self.image().metadata().unwrap().modified().unwrap();
            std::fs::copy(self.image(), folder.path().join("image")).unwrap();
            // The kernel writes when it likes; a copy of two moments is none.
            if self.image().metadata().unwrap().modified().unwrap() == before {
                return Self::mount(folder).unwrap();
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// Where a database would lie.
    pub(crate) fn db(&self) -> PathBuf {
        self.path().join("fleet.duckdb")
    }

    fn make_read_only(&self) {
        self.remount("ro");
    }

    /// Makes it what the kernel makes of a file system after an error of its disk: read-only, also for open files.
    pub(crate) fn fail(&self) {
        self.remount("abort");
    }

    fn remount(&self, option: &str) {
        let remounted = run(Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.path()));
        remounted.unwrap();
    }

    /// Takes up room until only so much is left.
    fn fill_up(&self, left: u64) -> PathBuf {
        let filler = self.path().join("of-somebody-else");
        let file = std::fs::File::create(&filler).unwrap();
        let available = fs2::available_space(self.path()).unwrap();
        fs2::FileExt::allocate(&file, available - left).unwrap();
        filler
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Not mounted, if mounting failed.
        let _not_mounted = run(Command::new("umount").arg("-l").arg(self.path()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output: Output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

const MIB: u64 = 1024 * 1024;

fn serve(db: &Path) -> Echo {
    Echo::serve_with(db, &["--min-free", "48MiB", "--ballast", "16MiB"])
}

#[test]
fn below_the_floor_events_are_refused_with_a_time_to_come_back_while_questions_are_answered() {
    let Some(volume) = Mounted::ext4(200) else {
        return;
    };
    let echo = serve(&volume.db());
    let sender = sender();
    let put = |number| {
        send(
            &sender,
            &echo.otlp_http,
            ("agent-1", number),
            &request(number, 100),
        )
    };
    assert_eq!(put(1), Sent::Acknowledged);
    let ballast = volume.path().join("fleet.duckdb.ballast");
    // It grows while it is made, so that being there is not enough.
    let is_made = || ballast.metadata().is_ok_and(|file| file.len() == 16 * MIB);
    wait_for("the ballast to be made", is_made);

    // Without the ballast there is more than the floor, but that is for deleting.
    let filler = volume.fill_up(40 * MIB);
    for _ in 0..3 {
        assert_eq!(put(2), Sent::Refused(503, Some(1)));
        assert!(!ballast.exists(), "it makes room for deleting");
    }
    let outliers = echo.ask("find_outlier_nodes", "load");
    assert_eq!(outliers["data_quality"]["ranks_reporting"], 0, "{outliers}");

    std::fs::remove_file(filler).unwrap();
    assert_eq!(put(2), Sent::Acknowledged, "the same batch, again");
    wait_for("the ballast to be made again", is_made);
    assert_eq!(echo.terminate(), 0);
    let stored = stored(&volume.db());
    assert_eq!(
        stored.into_iter().collect::<Vec<_>>(),
        [(1, (100, 100)), (2, (100, 100))]
    );
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_commit_ends_echo_with_74_and_loses_nothing() {
    let Some(volume) = Mounted::ext4(120) else {
        return;
    };
    // Without a floor nothing keeps the engine from running into the wall.
    let mut command = serve_command(&volume.db());
    command.args(["--min-free", "1", "--ballast", "off"]);
    let (echo, said) = Echo::spawn(command);
    let sender = sender();
    let mut acknowledged = 0;
    let _filler = volume.fill_up(4 * MIB);
    for number in 1..=200 {
        match send(
            &sender,
            &echo.otlp_http,
            ("agent-1", number),
            &request(number, 2_000),
        ) {
            Sent::Acknowledged => acknowledged = number,
            Sent::Refused(..) | Sent::Unknown => break,
        }
    }
    assert!(acknowledged < 200, "the disk did not fill up");
    let code = echo.wait();
    let said = std::fs::read_to_string(said.path()).unwrap();
    assert_eq!(code, Some(74), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("fleet-echo: ")
            && last.contains("failed permanently and must be opened again"),
        "{said}"
    );

    // Whoever starts it again without making room is told the same.
    let output = serve_command(&volume.db())
        .args(["--min-free", "1", "--ballast", "off"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert!(!said.contains("--drop-wal"), "the log is sound: {said}");
    let log = volume.path().join("fleet.duckdb.wal");
    let before = log.metadata().unwrap().len();
    let repaired = Command::new(ECHO)
        .args(["repair", "--drop-wal", "--db"])
        .arg(volume.db())
        .output()
        .unwrap();
    assert!(repaired.status.success(), "{repaired:?}");
    assert_eq!(log.metadata().unwrap().len(), before, "it was left alone");

    std::fs::remove_file(volume.path().join("of-somebody-else")).unwrap();
    let echo = serve(&volume.db());
    assert_eq!(echo.terminate(), 0);
    let stored = stored(&volume.db());
    for batch in 1..=acknowledged {
        assert_eq!(stored.get(&batch), Some(&(2_000, 2_000)), "batch {batch}");
    }
}

#[test]
fn a_read_only_volume_is_refused_with_64_and_a_reason() {
    let Some(volume) = Mounted::ext4(64) else {
        return;
    };
    assert_eq!(Echo::serve(&volume.db()).terminate(), 0);
    volume.make_read_only();
    let output = serve_command(&volume.db()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("Read-only") && said.contains("--db"),
        "{said}"
    );
}
