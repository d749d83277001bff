//! Contract tests of the events of one job.

use std::sync::Arc;

use echo_core::ids::{CommId, Rank, RoleId};
use echo_core::model::event::{Event, Origin, Reading, SeqRange, Source, Summary};

use crate::contract::sample::{
    batch, device_wait, evidence, gauge, origin, wait, window, with_seqs,
};
use crate::duckdb::DuckDbStore;
use crate::{EventStore, EvidenceQuery, JobQuery};

fn with_role(mut event: Event, role: Option<RoleId>) -> Event {
    if let Some(block) = &mut event.block {
        block.role = role;
    }
    event
}

fn evidence_query() -> EvidenceQuery {
    EvidenceQuery {
        cluster: "prod".parse().unwrap(),
        job: Some("llama".parse().unwrap()),
        rank: Rank::new(0),
        span: window(0, 30),
        window: window(0, 100),
    }
}

#[tokio::test]
async fn operations_that_gpus_measure_are_counted_with_those_that_have_times() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 0);
    let measured = |op: &str, source, timed| {
        let summary = Summary {
            count: timed,
            sum: 8.0,
            min: None,
            max: None,
        };
        let duration = "nccl.operation.duration_ms";
        let mut event = evidence(&rank, duration, 20, Reading::Histogram(summary));
        let block = event.block.as_mut().unwrap();
        (block.op, block.source) = (Some(op.parse().unwrap()), source);
        event
    };
    let events = vec![
        measured("AllReduce", Source::Device, 32),
        measured("AllGather", Source::Device, 8),
        measured("Send", Source::Device, 1),
        measured("AllReduce", Source::Host, 1),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = |cluster: &str, to| {
        let cluster = cluster.parse().unwrap();
        let store = &store;
        async move {
            store
                .timed_operations(Some(&cluster), window(0, to))
                .await
                .unwrap()
        }
    };
    let [one] = found("prod", 100).await.try_into().unwrap();
    assert_eq!(
        (one.origin, one.operations, one.timed),
        (Arc::clone(&rank), 64.0, 40.0)
    );
    assert!(found("prod", 20).await.is_empty());
    assert!(found("other", 100).await.is_empty());
}

#[tokio::test]
async fn host_evidence_is_summed_over_whole_blocks() {
    let store = DuckDbStore::scratch();
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let mut renamed = Origin::clone(&first);
    renamed.pod = None;
    let (preempted, launches) = ("fleet.host.preempted_ms", "fleet.host.kernel_launches");
    let of = |origin, millis| evidence(origin, preempted, millis, Reading::Double(2.25));
    let mut other_job = Origin::clone(&first);
    other_job.job = None;
    let mut endless = of(&first, 20);
    if let Some(block) = &mut endless.block {
        block.iterations = None;
    }
    let events = vec![
        of(&first, 10),
        with_seqs(of(&Arc::new(renamed), 20), 96, 127),
        evidence(&first, launches, 10, Reading::Int(300)),
        of(&second, 99),
        // None of these matches: other operations, half a block, another role, job, cluster, time
        // or kind, no block.
        with_seqs(of(&first, 40), 32, 63),
        with_seqs(of(&first, 40), 96, 128),
        with_role(of(&first, 20), Some(RoleId::new(1))),
        with_role(of(&first, 20), None),
        of(&Arc::new(other_job), 20),
        of(&origin("test", "node-1", 0), 20),
        of(&first, 100),
        endless,
        wait(&first, 20),
        gauge(&first, preempted, 20, Reading::Double(7.0)),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.host_evidence(vec![evidence_query()]).await.unwrap();
    let found: Vec<_> = found[0]
        .iter()
        .map(|sum| {
            (
                sum.rank.value(),
                sum.metric.as_str(),
                sum.sum,
                sum.iterations,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (0, launches, 300.0, 1.5),
            (0, preempted, 4.5, 3.0),
            (1, preempted, 2.25, 1.5),
        ]
    );
}

#[tokio::test]
async fn the_evidence_of_several_ranks_is_found_at_once_and_each_has_its_own() {
    let store = DuckDbStore::scratch();
    let preempted = "fleet.host.preempted_ms";
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let events = vec![
        evidence(&first, preempted, 10, Reading::Double(2.0)),
        evidence(&second, preempted, 60, Reading::Double(5.0)),
    ];
    store.append(batch(1, events)).await.unwrap();
    let later = EvidenceQuery {
        rank: Rank::new(1),
        span: window(50, 70),
        window: window(50, 70),
        ..evidence_query()
    };
    let unknown = EvidenceQuery {
        rank: Rank::new(9),
        ..evidence_query()
    };
    let both = vec![later, unknown, evidence_query()];
    let found = store.host_evidence(both).await.unwrap();
    let found = found.iter().map(|sums| {
        let sums = sums.iter().map(|sum| (sum.rank.value(), sum.sum));
        sums.collect::<Vec<_>>()
    });
    let expected = [vec![(1, 5.0)], vec![], vec![(0, 2.0), (1, 5.0)]];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert!(store.host_evidence(Vec::new()).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_time_of_tasks_is_summed_by_name() {
    let store = DuckDbStore::scratch();
    let first = origin("prod", "node-1", 0);
    let task = |attrs: &str, ms| Event {
        attrs: attrs.into(),
        ..evidence(
            &first,
            "fleet.host.preempted_by_ms",
            10,
            Reading::Double(ms),
        )
    };
    let events = vec![
        task(r#"{"fleet.cpu":12,"fleet.task":"kworker/3:1H"}"#, 4.0),
        task(r#"{"fleet.cpu":12,"fleet.task":"kworker/3:1H","x":1}"#, 2.0),
        task(r#"{"fleet.cpu":3,"fleet.task":"kworker/3:1H"}"#, 9.0),
        task(r#"{"fleet.cpu":3,"fleet.task":"\"quoted\""}"#, 1.0),
        task(r#"{"fleet.task":7}"#, 1.5),
        Event {
            attrs: r#"{"fleet.task":"bench.py (PID 4711)"}"#.into(),
            ..evidence(
                &first,
                "fleet.host.gpu_shared_by_ms",
                10,
                Reading::Double(6.0),
            )
        },
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.host_evidence(vec![evidence_query()]).await.unwrap();
    let found: Vec<_> = found[0]
        .iter()
        .map(|sum| {
            let task = sum.task.as_ref().unwrap();
            (task.name.as_str(), task.cpu, sum.sum)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("bench.py (PID 4711)", None, 6.0),
            ("\"quoted\"", Some(3), 1.0),
            ("(others)", None, 1.5),
            ("kworker/3:1H", Some(3), 15.0),
        ]
    );
}

fn blocks(ranges: &[(u64, u64)]) -> Vec<SeqRange> {
    let ranges = ranges.iter();
    ranges
        .map(|(first, last)| SeqRange::new(*first, *last).unwrap())
        .collect()
}

fn job_query() -> JobQuery {
    JobQuery {
        cluster: "prod".parse().unwrap(),
        job: Some("llama".parse().unwrap()),
        rank: None,
        role: None,
        comm: None,
        metrics: vec!["nccl.collective.wait_ms".parse().unwrap()],
        source: None,
        window: window(0, 100),
        blocks: None,
        limit: 10,
    }
}

#[tokio::test]
async fn the_latest_events_of_a_job_are_returned_in_order() {
    let store = DuckDbStore::scratch();
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let mut other_job = Origin::clone(&first);
    other_job.job = Some("other".parse().unwrap());
    let events = vec![
        wait(&first, 40),
        device_wait(&second, 30),
        with_seqs(wait(&first, 20), 96, 127),
        with_role(wait(&second, 20), Some(RoleId::new(1))),
        evidence(&first, "fleet.host.x", 20, Reading::Double(1.0)),
        wait(&Arc::new(other_job), 20),
        wait(&origin("test", "node-1", 0), 20),
        wait(&first, 100),
        gauge(&first, "nccl.collective.wait_ms", 20, Reading::Int(1)),
    ];
    store.append(batch(1, events)).await.unwrap();
    let comm = wait(&first, 40).block.unwrap().comm;
    let with = |change: &dyn Fn(&mut JobQuery)| {
        let mut query = job_query();
        change(&mut query);
        query
    };
    let in_blocks = |ranges| with(&|query| query.blocks = Some(blocks(ranges)));
    for (query, expected) in [
        (job_query(), vec![1, 2, 3, 4]),
        (with(&|query| query.limit = 3), vec![2, 3, 4]),
        (with(&|query| query.rank = Some(Rank::new(1))), vec![2, 4]),
        (with(&|query| query.role = Some(RoleId::new(1))), vec![4]),
        (with(&|query| query.comm = Some(comm)), vec![1, 2, 3, 4]),
        (with(&|query| query.comm = Some(CommId::new(9))), vec![]),
        (with(&|query| query.window = window(30, 40)), vec![2]),
        (with(&|query| query.source = Some(Source::Device)), vec![2]),
        (
            with(&|query| query.source = Some(Source::Host)),
            vec![1, 3, 4],
        ),
        (with(&|query| query.job = None), vec![]),
        (with(&|query| query.metrics.clear()), vec![]),
        (in_blocks(&[]), vec![]),
        (in_blocks(&[(96, 200), (0, 94)]), vec![3]),
        (in_blocks(&[(90, 95)]), vec![1, 2, 4]),
    ] {
        let found = store.job_events(query.clone()).await.unwrap();
        let found: Vec<_> = found.iter().map(|stored| stored.id).collect();
        assert_eq!(found, expected, "{query:?}");
    }
    let found = store.job_events(job_query()).await.unwrap();
    let bare = |event: Event| Event {
        attrs: Arc::from("{}"),
        ..event
    };
    assert_eq!(found[0].event.samples, []);
    assert_eq!(found[1].event, bare(device_wait(&second, 30)));
}
