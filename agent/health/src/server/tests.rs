use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use fleet_agent_export::statement::Statement;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Endpoint;

use super::*;
use crate::check::{Finding, check};
use crate::protocol::nvhcd::health_check_service_client::HealthCheckServiceClient;
use crate::sample::{culprit, standings, statement};

/// Names the socket that a child process serves.
const CHILD_SOCKET: &str = "FLEET_TEST_HEALTH_SOCKET";

struct Served {
    folder: TempDir,
    statements: watch::Sender<Option<Statement>>,
    _tasks: JoinSet<()>,
}

impl Served {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (statements, standings) = standings(None);
        let listener = UnixListener::bind(folder.path().join("health.sock")).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async {
            serve(UnixListenerStream::new(listener), standings)
                .await
                .unwrap();
        });
        Self {
            folder,
            statements,
            _tasks: tasks,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("health.sock")
    }

    async fn exit_code(&self) -> u8 {
        check(&self.socket()).await.exit_code()
    }

    /// Asks with the arguments of a launcher.
    async fn ask(&self) -> HealthCheckResponse {
        let address = format!("unix://{}", self.socket().display());
        let channel = Endpoint::try_from(address)
            .unwrap()
            .connect()
            .await
            .unwrap();
        let args = ["--no-slurm", "--group", "prolog"].map(str::to_owned);
        let answer = HealthCheckServiceClient::new(channel)
            .run_health_check(HealthCheckRequest { args: args.into() })
            .await;
        answer.unwrap().into_inner()
    }
}

#[tokio::test]
async fn a_launcher_leaves_out_a_host_with_a_culprit_and_no_other() {
    let served = Served::start();
    let unhealthy = statement(&[culprit("GPU-1")]);
    for (statement, fail_count) in [(None, 0), (Some(statement(&[])), 0), (Some(unhealthy), 1)] {
        served.statements.send_replace(statement);
        let answer = served.ask().await;
        assert_eq!(answer.success, fail_count == 0);
        assert_eq!(answer.exit_code, fail_count);
        assert_eq!(answer.error.is_empty(), fail_count == 0);
        let output: Value = serde_json::from_str(&answer.output).unwrap();
        assert_eq!(output["fail_count"], fail_count);
    }
}

#[tokio::test]
async fn a_check_has_the_exit_codes_of_a_plugin() {
    let served = Served::start();
    assert_eq!(served.exit_code().await, 2);
    served.statements.send_replace(Some(statement(&[])));
    assert_eq!(served.exit_code().await, 0);
    let unhealthy = statement(&[culprit("GPU-1"), culprit("GPU-2")]);
    served.statements.send_replace(Some(unhealthy));
    let Finding { state, message } = check(&served.socket()).await;
    assert_eq!(state, State::Straggler);
    assert!(message.starts_with("rank 17 is 26.8 ms late"), "{message}");
}

#[tokio::test]
async fn a_check_without_an_agent_is_unknown() {
    let folder = TempDir::new().unwrap();
    let found = check(&folder.path().join("none.sock")).await;
    assert_eq!(found.exit_code(), 2);
    assert_eq!(found.message, "fleet-agent does not answer: no connection");
}

#[tokio::test(start_paused = true)]
async fn a_check_of_an_agent_that_hangs_is_unknown_before_the_plugin_times_out() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("health.sock");
    let _never_accepts = UnixListener::bind(&socket).unwrap();
    let found = check(&socket).await;
    assert_eq!(found.exit_code(), 2);
    assert_eq!(found.message, "fleet-agent has not answered within 3 s");
}

/// Sends what gRPC for Python has sent, and returns the answers to its three requests.
async fn answers_to_grpcio(socket: &Path) -> Vec<String> {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(&grpcio()).await.unwrap();
    let mut answers = Vec::new();
    while answers.len() < 3 {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let [high, middle, low, kind, ..] = header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        // RST_STREAM and GOAWAY.
        assert!(![3, 7].contains(&kind), "{kind}: {payload:?}");
        if kind == 0 && !payload.is_empty() {
            answers.push(String::from_utf8_lossy(&payload).into_owned());
        }
    }
    answers
}

/// Bytes of a connection of gRPC for Python, which names the path of the socket as authority.
pub(super) fn grpcio() -> Vec<u8> {
    let path = "../../testdata/clients/grpcio-1.76.0.bin";
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[tokio::test]
async fn grpc_for_python_is_answered_although_its_authority_is_a_path() {
    let served = Served::start();
    served
        .statements
        .send_replace(Some(statement(&[culprit("GPU-1")])));
    for answer in answers_to_grpcio(&served.socket()).await {
        assert!(answer.contains(r#""fail_count":1"#), "{answer}");
    }
}

/// Serves a straggler until it is killed, in a child process.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the parent names the socket")]
async fn child_with_a_straggler() {
    if let Some(socket) = std::env::var_os(CHILD_SOCKET) {
        let (_statements, standings) = standings(Some(statement(&[culprit("GPU-1")])));
        let listener = UnixListener::bind(socket).unwrap();
        serve(UnixListenerStream::new(listener), standings)
            .await
            .unwrap();
    }
}

fn start_child(socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "server::tests::child_with_a_straggler"])
        .env(CHILD_SOCKET, socket);
    command.spawn().unwrap()
}

#[tokio::test]
async fn a_killed_agent_is_unknown_and_not_a_healthy_host() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("health.sock");
    let mut child = start_child(&socket);
    while check(&socket).await.state != State::Straggler {
        assert!(child.try_wait().unwrap().is_none());
        tokio::task::yield_now().await;
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(socket.exists(), "a killed process leaves its socket");
    assert_eq!(check(&socket).await.exit_code(), 2);
}
