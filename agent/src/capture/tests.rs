use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::*;

const SOON: Duration = Duration::from_millis(500);

/// Process that has a pipe, and writes this dump when something is written to it. Killed on drop.
struct Recorder {
    child: Child,
    folder: TempDir,
}

impl Recorder {
    fn with_dump(dump: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("prepared"), dump).unwrap();
        // Opened for both, a pipe does not wait for the other side.
        Self::running(
            folder,
            "mkfifo pipe_3.pipe; exec 3<>pipe_3.pipe; echo ready; head -c 1 <&3; cp prepared dump_3; read -r _",
        )
    }

    fn running(folder: TempDir, script: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .current_dir(folder.path())
            .env(
                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
                folder.path().join("pipe_"),
            )
            .env("TORCH_FR_DUMP_TEMP_FILE", folder.path().join("dump_"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, folder }
    }

    async fn dump(&self, patience: Duration) -> Result<Vec<u8>, String> {
        let dump = flight_recorder::dump(Path::new("/proc"), self.child.id(), 3, patience).await;
        dump.map_err(|error| error.to_string())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Dump of a real rank.
fn real_dump() -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../testdata/torch/hang4/nccl_trace_rank_3.gz");
    unzipped(&fs::read(path).unwrap())
}

fn unzipped(gzip: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn the_recorder_of_a_process_writes_its_dump_when_it_is_asked() {
    let recorder = Recorder::with_dump(&real_dump());
    assert_eq!(recorder.dump(Duration::from_mins(1)).await, Ok(real_dump()));
}

#[tokio::test]
async fn a_file_that_is_no_dump_is_not_given_away() {
    let recorder = Recorder::with_dump(b"root:x:0:0");
    let error = recorder.dump(SOON).await.unwrap_err();
    assert!(error.contains("no new dump in "), "{error}");
}

#[tokio::test]
async fn an_earlier_dump_is_not_returned() {
    let script =
        "mkfifo pipe_3.pipe; exec 3<>pipe_3.pipe; cp prepared dump_3; echo ready; read -r _";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prepared"), real_dump()).unwrap();
    let error = Recorder::running(folder, script)
        .dump(SOON)
        .await
        .unwrap_err();
    assert!(error.contains("no new dump in "), "{error}");
}

#[tokio::test]
async fn a_link_to_another_file_is_not_followed() {
    let recorder = Recorder::with_dump(&real_dump());
    let folder = recorder.folder.path();
    fs::write(folder.join("secret"), real_dump()).unwrap();
    symlink(folder.join("secret"), folder.join("dump_3")).unwrap();
    let error = recorder.dump(SOON).await.unwrap_err();
    assert!(error.contains("no new dump in "), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_pipe_is_not_written_to() {
    let script = "echo content > pipe_3.pipe; echo ready; read -r _";
    let recorder = Recorder::running(tempfile::tempdir().unwrap(), script);
    let error = recorder.dump(SOON).await.unwrap_err();
    assert!(
        error.ends_with("is no named pipe of the user of the process"),
        "{error}"
    );
    let content = fs::read_to_string(recorder.folder.path().join("pipe_3.pipe"));
    assert_eq!(content.unwrap(), "content\n");
}

#[tokio::test]
async fn what_is_missing_is_listed_with_its_reason() {
    let mut capture = Capture::default();
    let pid = std::process::id();
    capture.add_threads(Path::new("/proc"), pid);
    capture
        .add_flight_recorder(Path::new("/proc"), pid, Some(0))
        .await;
    capture.finish();
    let files = capture.take();
    assert_eq!(capture.take(), []);
    let [threads, list] = &files[..] else {
        panic!("{files:?}")
    };
    assert_eq!((threads.name, list.name), ("threads.txt", "capture.txt"));
    let list = String::from_utf8(unzipped(&list.gzip)).unwrap();
    let expected = format!(
        "threads.txt: {} bytes\nflight_recorder.pickle is missing: \
         TORCH_NCCL_DEBUG_INFO_PIPE_FILE is not set for the process\n",
        threads.size
    );
    assert_eq!(list, expected);
}

#[test]
fn the_states_of_all_threads_and_descendants_are_listed() {
    let recorder = Recorder::running(tempfile::tempdir().unwrap(), "echo ready; read -r _");
    let pid = std::process::id();
    let states = threads::states(Path::new("/proc"), pid).unwrap();
    let (threads, descendants) = states.split_once("\nDescendants:\n").unwrap();
    assert!(
        threads.starts_with(&format!("Threads of process {pid}:")),
        "{states}"
    );
    // The thread of this test runs.
    assert!(
        threads.lines().any(|line| line.contains("  R  ")),
        "{states}"
    );
    let id = recorder.child.id().to_string();
    let mut rows = descendants
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let child = rows.find(|row| row.first() == Some(&id.as_str()));
    assert!(child.is_some_and(|row| row.contains(&"sh")), "{states}");
}
