//! Tests of the dispatcher: bad consumers, restarts, and the kill switch, with real files and
//! sockets.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use echo_core::clock::{Clock, ManualClock};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Dispatcher, Surroundings, delay};
use crate::agents::AgentNotices;
use crate::counts::ActionCounts;
use crate::journal::Journal;
use crate::notice::Candidate;
use crate::policy::Policy;
use crate::record::Outcome;
use crate::sample::{START, candidate, snapshot};
use crate::stand_in::{Reply, Server};

/// A folder with the state, a clock, and what was recorded.
struct Lab {
    folder: TempDir,
    clock: ManualClock,
    records: Arc<Mutex<Vec<Outcome>>>,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "secret").unwrap();
        Self {
            folder,
            clock: ManualClock::at(START),
            records: Arc::default(),
        }
    }

    /// Starts with a webhook for each server.
    fn start(&self, servers: &[&Server]) -> Dispatcher {
        let names: Vec<String> = (0..servers.len()).map(|n| format!("hook-{n}")).collect();
        let consumers = names.iter().zip(servers).map(|(name, server)| {
            let url = &server.url;
            format!("  {name}: {{ mode: act, webhook: {{ url: '{url}', secret_file: key }} }}\n")
        });
        let text = format!(
            "limits: {{ max_nodes: 3 }}\nconsumers:\n{}rules: [{{ consumers: [{}], open_for: 0s }}]",
            consumers.collect::<String>(),
            names.join(", ")
        );
        self.start_with(&text)
    }

    /// Starts with this policy.
    fn start_with(&self, policy: &str) -> Dispatcher {
        let policy = Policy::parse(policy, self.folder.path()).unwrap();
        let records = Arc::clone(&self.records);
        Dispatcher::load(Surroundings {
            policy: watch::channel(Arc::new(policy)).1,
            journal: Journal::beside(&self.folder.path().join("db")),
            kill_switch_file: self.kill_switch(),
            clock: Arc::new(self.clock.clone()),
            recorder: Box::new(move |record, _| records.lock().unwrap().push(record.outcome)),
            counts: ActionCounts::default(),
        })
        .unwrap()
    }

    fn kill_switch(&self) -> PathBuf {
        self.folder.path().join("stop")
    }

    /// Lets the longest pause pass.
    fn later(&self) {
        self.clock
            .set(self.clock.now().after(Duration::from_mins(20)));
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.records.lock().unwrap().clone()
    }
}

fn late() -> Vec<Candidate> {
    vec![candidate("node-1", 1)]
}

/// Waits for one result.
async fn one(dispatcher: &mut Dispatcher) {
    let result = timeout(Duration::from_secs(30), dispatcher.attempted()).await;
    result.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_refused_survives_a_restart_and_arrives_once_with_the_same_key() {
    let lab = Lab::new();
    let refusing = Reply::Status(503, String::new());
    let server = Server::start(&[refusing.clone(), Reply::Close, refusing, Reply::ok()]);
    let mut dispatcher = lab.start(&[&server]);
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    for _ in 0..3 {
        dispatcher.stop().await.unwrap();
        lab.later();
        dispatcher = lab.start(&[&server]);
        dispatcher.observe(snapshot(late())).unwrap();
        one(&mut dispatcher).await;
    }
    lab.later();
    dispatcher.observe(snapshot(late())).unwrap();
    dispatcher.stop().await.unwrap();
    let received = server.received();
    assert_eq!(received.len(), 4);
    let keys: BTreeSet<&str> = received
        .iter()
        .map(|one| one.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    let outcomes = [
        Outcome::Retried,
        Outcome::Retried,
        Outcome::Retried,
        Outcome::Sent,
    ];
    assert_eq!(lab.outcomes(), outcomes);
}

#[tokio::test]
async fn an_attempt_that_a_crash_interrupts_is_made_again_with_the_same_key() {
    let lab = Lab::new();
    let server = Server::start(&[Reply::Hold, Reply::ok()]);
    let mut dispatcher = lab.start(&[&server]);
    dispatcher.observe(snapshot(late())).unwrap();
    while server.received().is_empty() {
        tokio::task::yield_now().await;
    }
    // As SIGKILL does: no result is ever recorded.
    drop(dispatcher);
    let mut dispatcher = lab.start(&[&server]);
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    server.release();
    let received = server.received();
    let keys: Vec<&str> = received
        .iter()
        .map(|one| one.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_slow_consumer_does_not_delay_another() {
    let lab = Lab::new();
    let (slow, quick) = (Server::start(&[Reply::Hold]), Server::start(&[Reply::ok()]));
    let mut dispatcher = lab.start(&[&slow, &quick]);
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    dispatcher.observe(snapshot(vec![])).unwrap();
    one(&mut dispatcher).await;
    let events: Vec<_> = quick
        .received()
        .iter()
        .map(|one| one.json()["event"].clone())
        .collect();
    assert_eq!(events, ["raised", "cleared"]);
    slow.release();
    one(&mut dispatcher).await;
    one(&mut dispatcher).await;
    let events: Vec<_> = slow
        .received()
        .iter()
        .map(|one| one.json()["event"].clone())
        .collect();
    assert_eq!(events, ["raised", "cleared"]);
}

#[tokio::test]
async fn the_file_of_the_kill_switch_works_without_a_restart() {
    let lab = Lab::new();
    let server = Server::start(&[Reply::ok()]);
    let mut dispatcher = lab.start(&[&server]);
    std::fs::write(lab.kill_switch(), "").unwrap();
    dispatcher.observe(snapshot(late())).unwrap();
    lab.later();
    dispatcher.observe(snapshot(late())).unwrap();
    assert_eq!(lab.outcomes().len(), 1);
    assert!(server.received().is_empty());
    std::fs::remove_file(lab.kill_switch()).unwrap();
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn without_a_place_for_the_state_nothing_is_sent() {
    let lab = Lab::new();
    let server = Server::start(&[Reply::ok()]);
    let mut dispatcher = lab.start(&[&server]);
    // A folder in the place of the file: it cannot be replaced.
    let state = Journal::beside(&lab.folder.path().join("db"));
    std::fs::create_dir(state.path()).unwrap();
    assert!(dispatcher.observe(snapshot(late())).is_err());
    std::fs::remove_dir(state.path()).unwrap();
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    assert_eq!(server.received().len(), 1);
}

#[test]
fn pauses_grow_to_minutes_and_vary() {
    let of = |attempts: u32| (0..50).map(|_| delay(attempts)).collect::<BTreeSet<_>>();
    assert!(of(1).iter().all(|one| (1..=2).contains(&one.as_secs())));
    assert!(of(1).len() > 1);
    let long = of(1_000);
    assert!(
        long.iter().all(|one| (300..=600).contains(&one.as_secs())),
        "{long:?}"
    );
}

#[tokio::test]
async fn agents_keep_their_culprits_across_a_restart_and_get_no_statement_under_the_kill_switch() {
    let lab = Lab::new();
    let policy = "consumers: { hosts: { mode: act, agents: {} } }
rules: [{ consumers: [hosts], open_for: 0s }]";
    let nodes = |dispatcher: &Dispatcher| -> Vec<String> {
        let AgentNotices { clusters, notices } = dispatcher.agent_notices();
        assert_eq!(clusters.len(), 1);
        notices.into_iter().map(|one| one.node).collect()
    };
    let mut dispatcher = lab.start_with(policy);
    dispatcher.observe(snapshot(late())).unwrap();
    one(&mut dispatcher).await;
    assert_eq!(nodes(&dispatcher), ["node-1"]);
    drop(dispatcher);

    let mut dispatcher = lab.start_with(policy);
    dispatcher.observe(snapshot(late())).unwrap();
    assert_eq!(nodes(&dispatcher), ["node-1"]);
    std::fs::write(lab.kill_switch(), "").unwrap();
    dispatcher.observe(snapshot(Vec::new())).unwrap();
    assert_eq!(dispatcher.agent_notices(), AgentNotices::default());
    std::fs::remove_file(lab.kill_switch()).unwrap();
    dispatcher.observe(snapshot(Vec::new())).unwrap();
    assert_eq!(nodes(&dispatcher), Vec::<String>::new());
    one(&mut dispatcher).await;
    assert_eq!(lab.outcomes(), [Outcome::Sent; 2]);
}
