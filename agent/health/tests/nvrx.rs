//! The launcher of `NVRx` asks for the health of a host, by its own code from `PyPI`.

#[macro_use]
extern crate fleet_test_harness;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use fleet_agent_export::statement::Statement;
use fleet_agent_health::server::serve;
use fleet_agent_health::standing::Standings;
use fleet_proto::policy::{Culprit, HostCulprits};
use fleet_test_harness::{NIGHTLY, PYPI};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_stream::wrappers::UnixListenerStream;

/// What the check of a host imports. The wheel of `NVRx` is for a newer libc than many machines have,
/// and its other dependencies are gigabytes.
const IMPORTED: [&str; 4] = ["grpcio==1.76.0", "protobuf", "defusedxml", "httpx"];
const NVRX: [&str; 6] = [
    "--no-deps",
    "--only-binary=:all:",
    "--platform=manylinux_2_39_x86_64",
    "--python-version=3.12",
    "--upgrade",
    "nvidia-resiliency-ext==0.7.0",
];

/// The check that `ft_launcher` makes before each rendezvous.
const CHECK: &str = "\
import sys
from nvidia_resiliency_ext.shared_utils.health_check import NodeHealthCheck

print(NodeHealthCheck(endpoint=sys.argv[1])())
";

fn main() -> ExitCode {
    fleet_test_harness::run()
}

/// Runs a command, which must succeed, and returns its output and its log.
fn done(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let [output_text, log] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{command:?}: {output_text}{log}");
    (output_text, log)
}

/// Returns a folder with a virtual environment and, in `nvrx`, `NVRx`.
fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvrx-0.7.0");
    let ready = folder.join("ready");
    if !ready.is_file() {
        done(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
        );
        let pip = || {
            let mut pip = Command::new(folder.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet"]);
            pip
        };
        done(pip().args(IMPORTED));
        done(pip().arg("--target").arg(folder.join("nvrx")).args(NVRX));
        std::fs::write(ready, "").unwrap();
    }
    folder
}

/// Asks as the launcher does; returns whether it takes the host for healthy, and what it logs.
async fn ask(python: &Path, socket: &Path) -> (bool, String) {
    let mut command = Command::new(python.join("bin/python"));
    command
        .args(["-c", CHECK])
        .arg(socket)
        .env("PYTHONPATH", python.join("nvrx"));
    let (answer, log) = spawn_blocking(move || done(&mut command)).await.unwrap();
    (answer.trim() == "True", log)
}

fn statement(culprits: Vec<Culprit>) -> Statement {
    Statement::new(Some(HostCulprits { culprits }))
}

#[test]
#[needs(NIGHTLY, PYPI)]
async fn nvrx_leaves_out_a_host_with_a_culprit_and_no_other() {
    let python = spawn_blocking(installed).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("health.sock");
    let (statements, receiver) = watch::channel(Some(statement(Vec::new())));
    let listener = UnixListener::bind(&socket).unwrap();
    let mut tasks = JoinSet::new();
    let standings = Standings::new(receiver, "node-3");
    tasks.spawn(serve(UnixListenerStream::new(listener), standings));

    // A check that fails takes the host for healthy as well, and logs that.
    let healthy = (true, String::new());
    assert_eq!(ask(&python, &socket).await, healthy);
    let culprit = Culprit {
        node_id: "node-3".to_owned(),
        rank: 17,
        ..Culprit::default()
    };
    statements.send_replace(Some(statement(vec![culprit])));
    let (is_healthy, log) = ask(&python, &socket).await;
    assert!(!is_healthy && log.contains("rank 17 is "), "{log}");
    statements.send_replace(Some(statement(Vec::new())));
    assert_eq!(ask(&python, &socket).await, healthy);
}
