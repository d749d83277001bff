use std::fs;
use std::os::unix::fs::PermissionsExt;

use fleet_agent_core::batch::{Resource, ResourceVerdicts};
use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId};
use fleet_agent_core::verdict::{Measure, Mode, SelfVerdict, State};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::sync::oneshot;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn batch(pid: u32, state: State) -> VerdictBatch {
    let block = Block {
        comm: CommId::new(1),
        comm_rank: 0,
        comm_nranks: 4,
        source: fleet_agent_core::signal::Source::Host,
        op: Op::AllReduce,
        seq_first: 0,
        seq_last: 31,
        iterations: None,
        role: None,
    };
    let verdict = SelfVerdict {
        time_ns: 1_700_000_000 * SECOND,
        block,
        state,
        mode: Mode::Fleet,
        measure: Some(Measure {
            lag_ms: 12.5,
            z: 6.0,
            effect_ratio: 0.25,
        }),
        policy_version: Some(9),
    };
    let resource = Resource {
        cluster: "lab".to_owned(),
        node: "node-3".to_owned(),
        job: Some("llama".to_owned()),
        gpu_model: None,
        gpu_uuid: Some("GPU-1".to_owned()),
        pod: Some("llama-worker-1".to_owned()),
        namespace: None,
        rank: Some(3),
        world_size: Some(8),
        pid,
    };
    VerdictBatch {
        number: 1,
        resources: vec![ResourceVerdicts {
            resource,
            verdicts: vec![verdict],
        }],
    }
}

fn expected(pid: u32) -> Value {
    json!({
        "event": "straggler_state", "time": "2023-11-14T22:13:20Z", "cluster": "lab", "node": "node-3",
        "job": "llama", "rank": 3, "pid": pid, "pod": "llama-worker-1", "namespace": null,
        "gpu_uuid": "GPU-1", "state": "raised", "mode": "fleet", "lag_ms": 12.5, "z": 6.0,
        "effect_ratio": 0.25, "policy_version": 9,
    })
}

/// Served socket in its own directory.
struct Served {
    folder: TempDir,
    hooks: Hooks,
    stop: oneshot::Sender<()>,
    server: JoinSet<()>,
}

async fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let bound = HookServer::bind(&folder.path().join("hooks"))
        .await
        .unwrap();
    let hooks = bound.hooks();
    let (stop, stopped) = oneshot::channel();
    let mut server = JoinSet::new();
    server.spawn(bound.serve(async { drop(stopped.await) }));
    Served {
        folder,
        hooks,
        stop,
        server,
    }
}

impl Served {
    async fn connect(&self) -> UnixStream {
        let before = self.hooks.counts().connected;
        let stream = UnixStream::connect(self.folder.path().join("hooks"))
            .await
            .unwrap();
        self.until(|counts| counts.connected > before).await;
        stream
    }

    async fn until(&self, condition: impl Fn(HookCounts) -> bool) {
        while !condition(self.hooks.counts()) {
            tokio::task::yield_now().await;
        }
    }
}

fn lines(stream: UnixStream) -> Lines<BufReader<UnixStream>> {
    BufReader::new(stream).lines()
}

async fn next(lines: &mut Lines<BufReader<UnixStream>>) -> Option<Value> {
    let line = lines.next_line().await.unwrap()?;
    Some(serde_json::from_str(&line).unwrap())
}

#[tokio::test]
async fn every_client_gets_every_event() {
    let served = serve().await;
    let (mut first, mut second) = (lines(served.connect().await), lines(served.connect().await));
    // A client is subscribed once it has received the active events.
    while served.hooks.0.lines.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    served.hooks.publish(&batch(7, State::Raised));
    served.hooks.publish(&batch(7, State::Cleared));
    for client in [&mut first, &mut second] {
        assert_eq!(next(client).await.unwrap(), expected(7));
        let resolved = next(client).await.unwrap();
        assert_eq!(resolved["event"], "straggler_resolved");
        assert_eq!(resolved["state"], "cleared");
    }
}

#[tokio::test]
async fn a_new_client_first_gets_the_active_events() {
    let served = serve().await;
    served.hooks.publish(&batch(7, State::Raised));
    served.hooks.publish(&batch(8, State::Raised));
    served.hooks.publish(&batch(9, State::Raised));
    served.hooks.publish(&batch(8, State::Cleared));
    let mut client = lines(served.connect().await);
    assert_eq!(next(&mut client).await.unwrap(), expected(7));
    assert_eq!(next(&mut client).await.unwrap(), expected(9));
    served.hooks.publish(&batch(9, State::Cleared));
    assert_eq!(next(&mut client).await.unwrap()["pid"], 9);
}

#[tokio::test]
async fn the_event_of_a_process_that_ends_is_resolved() {
    let served = serve().await;
    served.hooks.publish(&batch(7, State::Raised));
    let mut client = lines(served.connect().await);
    next(&mut client).await.unwrap();
    served.hooks.process_ended(8, 0);
    served.hooks.process_ended(7, 1_700_000_060 * SECOND);
    let resolved = next(&mut client).await.unwrap();
    assert_eq!(resolved["event"], "straggler_resolved");
    assert_eq!(resolved["time"], "2023-11-14T22:14:20Z");
    assert_eq!(resolved["lag_ms"], Value::Null);
    assert_eq!(resolved["pod"], "llama-worker-1");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected_and_others_are_served() {
    let served = serve().await;
    let _sleeper = served.connect().await;
    let mut reader = lines(served.connect().await);
    while served.hooks.0.lines.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    let mut sent = 0;
    while served.hooks.0.lines.len() < QUEUE && served.hooks.counts().dropped == 0 {
        served.hooks.publish(&batch(sent, State::Raised));
        assert_eq!(next(&mut reader).await.unwrap()["pid"], sent);
        sent += 1;
    }
    tokio::time::advance(2 * WRITE_TIMEOUT).await;
    served.until(|counts| counts.dropped == 1).await;
    served.hooks.publish(&batch(7, State::Cleared));
    assert_eq!(next(&mut reader).await.unwrap()["state"], "cleared");
}

#[tokio::test]
async fn clients_can_disconnect_and_their_number_is_limited() {
    let served = serve().await;
    let mut clients = vec![served.connect().await];
    while clients.len() < MAX_CLIENTS {
        clients.push(served.connect().await);
    }
    let path = served.folder.path().join("hooks");
    let mut one_too_many = lines(UnixStream::connect(&path).await.unwrap());
    assert_eq!(next(&mut one_too_many).await, None);
    assert_eq!(served.hooks.counts().refused, 1);
    drop(clients);
    served.until(|counts| counts.connected == 0).await;
    assert_eq!(served.hooks.counts().dropped, 0);
}

#[tokio::test]
async fn queued_events_arrive_at_shutdown_and_the_file_is_removed() {
    let mut served = serve().await;
    let mut client = lines(served.connect().await);
    served.hooks.publish(&batch(7, State::Raised));
    served.stop.send(()).unwrap();
    assert_eq!(next(&mut client).await.unwrap()["pid"], 7);
    assert_eq!(next(&mut client).await, None);
    served.server.join_next().await.unwrap().unwrap();
    assert!(!served.folder.path().join("hooks").exists());
}

#[tokio::test]
async fn the_socket_is_accessible_to_owner_and_group() {
    let served = serve().await;
    let file = fs::metadata(served.folder.path().join("hooks")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hooks");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let living = HookServer::bind(&path).await.unwrap();
    let error = HookServer::bind(&path).await.unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }));
    assert!(!error.to_string().contains('\n'));
    drop(living);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hooks");
    fs::write(&path, "notes").unwrap();
    let error = HookServer::bind(&path).await.unwrap_err();
    assert!(matches!(error, SocketError::NotASocket { .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
    let error = HookServer::bind(&folder.path().join("no/hooks"))
        .await
        .unwrap_err();
    assert!(matches!(error, SocketError::Io { .. }));
}

#[tokio::test]
async fn the_socket_of_a_successor_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hooks");
    let first = HookServer::bind(&path).await.unwrap();
    fs::remove_file(&path).unwrap();
    let _second = HookServer::bind(&path).await.unwrap();
    drop(first);
    assert!(path.exists());
}
