//! Live sender with a spool on disk, and a collector that is unreachable at times.

use std::fs;
use std::io::{Write, stdin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::{Batch, Resource, ResourcePoints};
use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId, Point, Value};
use fleet_agent_export::delivery::Outbox;
use fleet_agent_export::delivery::report::Report;
use fleet_agent_export::otlp::{Link, Otlp, Security};
use fleet_agent_export::sender::{Sender, Settings, ShutdownHandle};
use fleet_agent_export::spool::Spool;
use fleet_agent_export::vitals::Vitals;
use fleet_proto::metric;
use tokio::net::TcpListener;

use crate::collector::{Collector, listen};

const LIMIT_BYTES: u64 = 64 << 20;

/// A batch of one point.
pub(crate) fn batch(number: u64) -> Batch {
    let block = Block {
        comm: CommId::new(1),
        comm_rank: 0,
        comm_nranks: 2,
        source: fleet_agent_core::signal::Source::Host,
        op: Op::AllReduce,
        seq_first: number,
        seq_last: number,
        iterations: None,
        role: None,
    };
    let point = Point {
        metric: metric::PERIOD,
        start_ns: 0,
        time_ns: number,
        block,
        value: Value::Gauge(1.0),
    };
    let resource = Resource {
        cluster: "lab".to_owned(),
        node: "node-0".to_owned(),
        job: None,
        gpu_model: None,
        gpu_uuid: None,
        pod: None,
        namespace: None,
        rank: Some(0),
        world_size: Some(2),
        pid: 1,
    };
    Batch {
        number,
        resources: vec![ResourcePoints {
            resource,
            points: vec![point],
        }],
        reports: Vec::new(),
        agent_counters: None,
    }
}

/// Waits for a condition that is met soon.
pub(crate) async fn until(condition: impl Fn() -> bool + Send + Sync) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let met = async {
        while !condition() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met)
        .await
        .expect("the condition is met");
}

/// Agent that spools at once.
fn agent(endpoint: &str, instance: u64, dir: &Path) -> (Outbox, ShutdownHandle, Sender<Otlp>) {
    let link = Link::new(endpoint, &Security::default()).unwrap();
    let otlp = Otlp::with_link(&link, instance, &Arc::default());
    let settings = Settings {
        queue_points: 10_000,
        spool_after: Duration::ZERO,
    };
    let spool = Spool::open(dir, LIMIT_BYTES).unwrap();
    Sender::new(otlp, settings, Some(spool))
}

/// Runs an agent whose source does `work`, then shuts it down.
async fn run(
    (mut outbox, shutdown, sender): (Outbox, ShutdownHandle, Sender<Otlp>),
    work: impl AsyncFnOnce(&mut Outbox, &Vitals),
) -> Report {
    let vitals = sender.vitals();
    let source = async move {
        work(&mut outbox, &vitals).await;
        shutdown.stop_within(Duration::ZERO);
    };
    tokio::join!(sender.run(), Box::pin(source)).0
}

/// Runs `client` while a collector listens.
async fn with_collector(collector: &Collector, listener: TcpListener, client: impl Future) {
    tokio::select! {
        () = Box::pin(listen(collector, None, listener)) => unreachable!("the server never ends"),
        _ = Box::pin(client) => {}
    }
}

fn n_files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Returns the number of complete files.
fn n_complete(dir: &Path) -> usize {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|kind| kind == "batch"))
        .count()
}

#[test]
#[ignore = "the process that the test below kills"]
fn an_agent_that_spools_until_it_is_killed() {
    let mut request = String::new();
    stdin().read_line(&mut request).unwrap();
    let (instance, dir) = request.trim().split_once(' ').unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let unconnected = agent("127.0.0.1:1", instance.parse().unwrap(), Path::new(dir));
        run(unconnected, async |outbox, _: &Vitals| {
            for number in 1..=5000 {
                outbox.send(batch(number)).await;
            }
            std::future::pending::<()>().await;
        })
        .await;
    });
}

#[tokio::test]
async fn the_spool_of_an_agent_killed_at_any_moment_is_sent_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    // Number of files at the kill; the agent keeps writing meanwhile.
    for (instance, more) in [(1, 1), (2, 2), (3, 25), (4, 100)] {
        let enough = n_complete(dir.path()) + more;
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg("spool::an_agent_that_spools_until_it_is_killed")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let request = format!("{instance} {}\n", dir.path().display());
        let mut to_victim = victim.stdin.take().unwrap();
        to_victim.write_all(request.as_bytes()).unwrap();
        until(|| n_complete(dir.path()) >= enough).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    let left = n_files(dir.path()) as u64;
    let collector = Collector::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let sent = run(agent(&endpoint, 5, dir.path()), async |_, vitals| {
        // Files that were being written at a kill are not counted yet.
        until(|| vitals.read().spooled_batches == 0).await;
        let snapshot = vitals.read();
        assert_eq!(snapshot.sent.batches + snapshot.damaged_files, left);
        assert!(snapshot.damaged_files <= 1, "{snapshot:?}");
    });
    with_collector(&collector, listener, sent).await;
    let stored = collector.stored.lock().unwrap().clone();
    assert_eq!(stored.len(), collector.attempts.lock().unwrap().len());
    for instance in 1..=4 {
        let instance = format!("{instance:016x}");
        let own = stored.keys().filter(|(of, _)| *of == instance);
        let mut numbers: Vec<u64> = own.map(|(_, number)| number.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(!numbers.is_empty());
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }
}
