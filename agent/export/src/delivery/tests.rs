use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use fleet_agent_core::batch::{Resource, ResourcePoints, ResourceVerdicts, VerdictBatch};
use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId, Point, Value};
use fleet_agent_core::verdict::{Mode, SelfVerdict, State};
use fleet_proto::policy::{HostCulprits, PolicySet};

use super::*;
use crate::Ack;

/// Returns scripted responses, then success, and records the batch numbers it receives.
#[derive(Debug, Clone, Default)]
struct Scripted {
    results: Arc<Mutex<VecDeque<Result<Ack, ExportError>>>>,
    sent: Arc<Mutex<Vec<u64>>>,
    verdict_results: Arc<Mutex<VecDeque<Result<Ack, ExportError>>>>,
    verdicts: Arc<Mutex<Vec<u64>>>,
}

impl Scripted {
    fn new(results: impl IntoIterator<Item = Result<Ack, ExportError>>) -> Self {
        Self {
            results: Arc::new(Mutex::new(results.into_iter().collect())),
            ..Self::default()
        }
    }

    fn sent(&self) -> Vec<u64> {
        self.sent.lock().unwrap().clone()
    }
}

impl Export for Scripted {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        self.sent.lock().unwrap().push(batch.number);
        self.results
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_else(|| Ok(Ack::default()))
    }

    async fn export_verdicts(&self, batch: &VerdictBatch) -> Result<Ack, ExportError> {
        self.verdicts.lock().unwrap().push(batch.number);
        self.verdict_results
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_else(|| Ok(Ack::default()))
    }
}

fn later(after: Option<Duration>) -> Result<Ack, ExportError> {
    Err(ExportError::Later {
        after,
        reason: "busy".to_owned(),
    })
}

fn batch(number: u64, n_points: usize) -> Batch {
    let block = Block {
        comm: CommId::new(1),
        comm_rank: 0,
        comm_nranks: 2,
        source: fleet_agent_core::signal::Source::Host,
        op: Op::AllReduce,
        seq_first: 0,
        seq_last: 0,
        iterations: None,
        role: None,
    };
    let metric = fleet_proto::metric::PERIOD;
    let point = Point {
        metric,
        start_ns: 0,
        time_ns: 0,
        block,
        value: Value::Gauge(1.0),
    };
    let resource = Resource {
        cluster: "c".to_owned(),
        node: "n".to_owned(),
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
            points: vec![point; n_points],
        }],
        reports: Vec::new(),
        agent_counters: None,
    }
}

const MINUTE: Duration = Duration::from_mins(1);

fn delivery(exporter: &Scripted) -> (Outbox, Delivery<Scripted>) {
    Delivery::new(exporter.clone(), 100, WhenFull::Wait, MINUTE)
}

#[tokio::test(start_paused = true)]
async fn batches_are_retried_in_order_under_the_same_number() {
    let exporter = Scripted::new([later(None), later(None)]);
    let (mut outbox, delivery) = delivery(&exporter);
    for number in 1..=3 {
        assert!(outbox.send(batch(number, 2)).await);
    }
    drop(outbox);
    let (report, unreachable) = delivery.run().await;
    assert_eq!(exporter.sent(), [1, 1, 1, 2, 3]);
    assert_eq!(
        (report.batches_acked, report.points_sent, report.retries),
        (3, 6, 2)
    );
    assert_eq!(unreachable, None);
}

#[tokio::test(start_paused = true)]
async fn the_delay_requested_by_the_receiver_is_honored() {
    let retry_delay = Duration::from_secs(7);
    let exporter = Scripted::new([later(Some(retry_delay))]);
    let (mut outbox, delivery) = delivery(&exporter);
    let began = tokio::time::sleep(Duration::ZERO).deadline();
    outbox.send(batch(1, 1)).await;
    drop(outbox);
    delivery.run().await;
    assert!(tokio::time::sleep(Duration::ZERO).deadline() - began >= retry_delay);
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_not_retried() {
    let refused = ExportError::Refused {
        reason: "malformed".to_owned(),
    };
    let exporter = Scripted::new([Err(refused)]);
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 3)).await;
    outbox.send(batch(2, 1)).await;
    drop(outbox);
    let (report, unreachable) = delivery.run().await;
    assert_eq!((exporter.sent(), unreachable), (vec![1, 2], None));
    assert_eq!((report.points_dropped, report.points_sent), (3, 1));
    assert_eq!(
        report.reasons,
        BTreeMap::from([("malformed".to_owned(), 3)])
    );
    assert_eq!(report.refusal.as_deref(), Some("malformed"));
}

#[tokio::test(start_paused = true)]
async fn rejected_points_are_counted_by_reason() {
    let ack = Ack {
        rejected: 2,
        reason: "no node".to_owned(),
        ..Ack::default()
    };
    let exporter = Scripted::new([Ok(ack.clone()), Ok(ack)]);
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 5)).await;
    outbox.send(batch(2, 5)).await;
    drop(outbox);
    let (report, _) = delivery.run().await;
    assert_eq!((report.points_rejected, report.points_sent), (4, 10));
    assert_eq!(report.reasons, BTreeMap::from([("no node".to_owned(), 4)]));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_receiver_is_given_up_and_all_losses_are_counted() {
    let exporter = Scripted::new(std::iter::repeat_n(later(None), 1000));
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 5)).await;
    outbox.send(batch(2, 5)).await;
    let (report, unreachable) = delivery.run().await;
    assert!(unreachable.is_some_and(|gave_up| gave_up.retries > 3));
    assert_eq!((report.points_sent, report.points_dropped), (0, 10));
    assert!(!outbox.send(batch(3, 5)).await);
    assert_eq!(outbox.dropped(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_reason_that_tells_what_to_do_is_kept_when_later_attempts_fail_without_one() {
    let failed = |reason: &str| {
        Err(ExportError::Later {
            after: None,
            reason: reason.to_owned(),
        })
    };
    let advised = "Internal: frame with invalid size (it speaks TLS: use https://)";
    let silent = std::iter::repeat_n((), 1000).map(|()| failed("Unknown: broken pipe"));
    let exporter = Scripted::new(std::iter::once(failed(advised)).chain(silent));
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 5)).await;
    drop(outbox);
    let gave_up = delivery.run().await.1.unwrap();
    assert_eq!(gave_up.reason, advised);
}

/// Takes its time to respond that it is busy.
#[derive(Debug)]
struct Slow(Duration);

impl Export for Slow {
    async fn export(&self, _: &Batch) -> Result<Ack, ExportError> {
        tokio::time::sleep(self.0).await;
        later(None)
    }

    async fn export_verdicts(&self, _: &VerdictBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}

#[tokio::test(start_paused = true)]
async fn the_duration_of_attempts_counts_toward_the_retry_limit() {
    let slow = Slow(Duration::from_secs(20));
    let (mut outbox, delivery) = Delivery::new(slow, 100, WhenFull::Wait, MINUTE);
    outbox.send(batch(1, 1)).await;
    drop(outbox);
    // The first failure, then failures about 20, 40 and 60 seconds later.
    let gave_up = delivery.run().await.1.unwrap();
    assert_eq!(gave_up.retries, 3);
}

#[tokio::test(start_paused = true)]
async fn the_retry_limit_applies_to_each_batch() {
    let busy = || later(Some(Duration::from_secs(25)));
    let exporter = Scripted::new([busy(), busy(), Ok(Ack::default()), busy(), busy()]);
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 1)).await;
    outbox.send(batch(2, 1)).await;
    drop(outbox);
    let (report, unreachable) = delivery.run().await;
    assert_eq!((report.points_sent, unreachable), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_recording_waits_for_capacity_in_the_queue() {
    let exporter = Scripted::default();
    let (mut outbox, delivery) = Delivery::new(exporter.clone(), 10, WhenFull::Wait, MINUTE);
    let send = async move {
        for number in 1..=20 {
            assert!(outbox.send(batch(number, 8)).await);
        }
        outbox.dropped()
    };
    let (dropped, (report, _)) = tokio::join!(send, delivery.run());
    assert_eq!((dropped, report.points_sent), (0, 160));
    assert_eq!(exporter.sent(), (1..=20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn each_response_renews_or_withdraws_the_statement_about_the_host() {
    let stated = Ack {
        culprits: Some(HostCulprits::default()),
        ..Ack::default()
    };
    let (mut outbox, delivery) = delivery(&Scripted::new([Ok(stated), Ok(Ack::default())]));
    let mut statements = outbox.statements();
    assert_eq!(*statements.borrow_and_update(), None);
    let mut run = Box::pin(delivery.run());
    let mut received = Vec::new();
    for number in 1..=2 {
        outbox.send(batch(number, 1)).await;
        while !statements.has_changed().unwrap() {
            assert!(futures_poll(&mut run).await.is_none());
        }
        let statement = statements.borrow_and_update().clone().unwrap();
        received.push(statement.culprits.is_some());
    }
    assert_eq!(received, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn the_newest_policy_reaches_the_source_once() {
    let set = PolicySet {
        version: 3,
        ..PolicySet::default()
    };
    let ack = Ack {
        policy: Some(set.clone()),
        ..Ack::default()
    };
    let (mut outbox, delivery) = delivery(&Scripted::new([Ok(ack)]));
    outbox.send(batch(1, 1)).await;
    let mut run = Box::pin(delivery.run());
    let policy = loop {
        assert!(futures_poll(&mut run).await.is_none());
        if let Some(policy) = outbox.new_policy() {
            break policy;
        }
    };
    assert_eq!(*policy, set);
    assert!(outbox.new_policy().is_none());
    drop(outbox);
    assert_eq!(run.await.0.policy_version, Some(3));
}

/// Runs a task as far as it can go.
async fn futures_poll<F: Future + Unpin>(task: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        done = task => Some(done),
        () = tokio::task::yield_now() => None,
    }
}

fn verdicts(number: u64) -> VerdictBatch {
    let Batch { resources, .. } = batch(1, 1);
    let block = resources[0].points[0].block.clone();
    let verdict = SelfVerdict {
        time_ns: 0,
        block,
        state: State::Raised,
        mode: Mode::Local,
        measure: None,
        policy_version: None,
    };
    VerdictBatch {
        number,
        resources: vec![ResourceVerdicts {
            resource: resources[0].resource.clone(),
            verdicts: vec![verdict],
        }],
    }
}

#[tokio::test(start_paused = true)]
async fn verdicts_that_are_not_accepted_do_not_delay_points() {
    let exporter = Scripted::default();
    let results = std::iter::repeat_with(|| later(None)).take(1000);
    exporter.verdict_results.lock().unwrap().extend(results);
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send_verdicts(verdicts(1));
    let mut run = Box::pin(delivery.run());
    for number in 2..=40 {
        outbox.send(batch(number, 5)).await;
        assert!(futures_poll(&mut run).await.is_none());
    }
    assert_eq!(exporter.sent(), (2..=40).collect::<Vec<_>>());
    drop(outbox);
    let (report, unreachable) = run.await;
    assert_eq!((report.points_sent, unreachable), (195, None));
    assert_eq!((report.verdicts.sent, report.verdicts.dropped), (0, 1));
    assert!(report.verdicts.retries > 3 && report.retries == 0);
}

#[tokio::test(start_paused = true)]
async fn after_giving_up_verdicts_get_one_attempt_each_until_one_is_accepted() {
    let exporter = Scripted::default();
    let busy = || later(Some(Duration::from_secs(50)));
    let results = [busy(), busy(), busy(), busy(), Ok(Ack::default()), busy()];
    exporter.verdict_results.lock().unwrap().extend(results);
    let (mut outbox, delivery) = delivery(&exporter);
    for number in 1..=4 {
        outbox.send_verdicts(verdicts(number));
    }
    drop(outbox);
    let (report, _) = delivery.run().await;
    assert_eq!(*exporter.verdicts.lock().unwrap(), [1, 1, 1, 2, 3, 4, 4]);
    assert_eq!((report.verdicts.sent, report.verdicts.dropped), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn verdicts_are_not_retried_once_the_receiver_is_given_up() {
    let results = || std::iter::repeat_with(|| later(None)).take(1000);
    let exporter = Scripted::new(results());
    exporter.verdict_results.lock().unwrap().extend(results());
    let (mut outbox, delivery) = delivery(&exporter);
    outbox.send(batch(1, 5)).await;
    let mut run = Box::pin(delivery.run());
    assert!(futures_poll(&mut run).await.is_none());
    tokio::time::sleep(Duration::from_secs(50)).await;
    outbox.send_verdicts(verdicts(2));
    outbox.send_verdicts(verdicts(3));
    let (report, unreachable) = run.await;
    assert!(unreachable.is_some());
    assert_eq!(report.verdicts.dropped, 2);
}
