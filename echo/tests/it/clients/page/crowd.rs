//! Ten thousand ranks on one page.

use std::path::Path;
use std::sync::Arc;

use echo_core::clock::ManualClock;
use echo_core::ids::{CommId, IncidentId, Rank, RankInJob, RoleId};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Culprit, DetectorOutput, Finding, Incident, IncidentState, Severity,
    Signal,
};
use echo_core::model::event::{
    BatchKey, Block, Event, EventBatch, Origin, Reading, SeqRange, Source, Summary,
};
use echo_core::units::Nanos;
use echo_store::EventStore;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use fleet_proto::metric;
use fleet_test_harness::NIGHTLY;

use super::{CHROMIUM, browse, expect, expect_text, go, pictures};
use crate::load::mixed;
use crate::testbed::{Echo, wait_for};

const RANKS: u32 = 10_240;

/// The rank that holds back the others in the second half.
const LATE: u32 = 7_777;

/// Number of blocks per rank, one every five seconds.
const BLOCKS: i64 = 24;

/// 2026-11-01T12:00:00Z.
const START: i64 = 1_793_534_400_000_000_000;

fn at(seconds: i64) -> Nanos {
    Nanos::new(START).offset(seconds * 1_000_000_000)
}

fn origin(rank: u32) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: "crowd".parse().unwrap(),
        node: format!("gpu-{:04}", rank / 8).parse().unwrap(),
        rank: Some(RankInJob::new(i64::from(rank), Some(i64::from(RANKS))).unwrap()),
        job: Some("llama".parse().unwrap()),
        gpu_model: Some(Arc::from("NVIDIA H200")),
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

/// Returns the events of a rank for one block of ten iterations: its host gap and its arrival.
fn reported(origin: &Arc<Origin>, block: i64, gap_ms: f64) -> [Event; 2] {
    let first = u64::try_from(block * 32).unwrap();
    let event = |name: &str, sum| Event {
        timestamp: at((block + 1) * 5),
        start: Some(at(block * 5)),
        origin: Arc::clone(origin),
        metric: name.parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Histogram(Summary {
            count: 10,
            sum,
            min: None,
            max: None,
        }),
        block: Some(Block {
            comm: CommId::new(1),
            op: Some("AllReduce".parse().unwrap()),
            seqs: SeqRange::new(first, first + 31),
            role: Some(RoleId::new(7)),
            iterations: Some(10.0),
            anchor: None,
            source: Source::Host,
        }),
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    };
    [
        event(metric::HOST_GAP, gap_ms * 10.0),
        event(metric::ARRIVAL, 0.0),
    ]
}

fn batch(block: i64, origins: &[Arc<Origin>]) -> EventBatch {
    let late = block >= BLOCKS / 2;
    let events = origins.iter().zip(0..).flat_map(|(origin, rank)| {
        let number = u64::from(rank) * 1_000 + u64::try_from(block).unwrap();
        let noise = f64::from(u32::try_from(mixed(number) % 1_000).unwrap()) / 2_000.0;
        let gap_ms = match (rank == LATE, late) {
            (true, true) => 40.0,
            _ => 0.3 + noise,
        };
        reported(origin, block, gap_ms)
    });
    EventBatch {
        key: BatchKey::Content(u128::from(block.unsigned_abs())),
        received: at((block + 1) * 5),
        events: events.collect(),
    }
}

fn incident() -> Incident {
    Incident {
        id: IncidentId::new(0x7777),
        cluster: "crowd".parse().unwrap(),
        job: Some("llama".parse().unwrap()),
        cohort: Arc::from("llama/0000000000000007"),
        finding: Finding::Culprit(Culprit {
            rank: Rank::new(LATE),
            node: format!("gpu-{:04}", LATE / 8).parse().unwrap(),
            gpu_uuid: None,
            class: CauseClass::Host,
            signal: Signal::HostGap,
            lag_ms: 39.9,
            z: 90.0,
            source: Source::Host,
        }),
        state: IncidentState::Open,
        first_seen: at(BLOCKS / 2 * 5),
        last_seen: at(BLOCKS * 5),
        raised_at: at(BLOCKS / 2 * 5 + 10),
        first_iteration: 120.0,
        raised_iteration: 130.0,
        cleared_iteration: None,
        occurrences: 1,
        effect_ratio: 0.38,
        period_ms: 138.0,
        baseline: Baseline::History { period_ms: 100.0 },
        confidence: 0.97,
        reason: "an iteration takes 138.0 ms instead of 100.0 ms".to_owned(),
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Critical,
        stability: 1.0,
        inputs: None,
    }
}

#[expect(
    clippy::significant_drop_tightening,
    reason = "the store lives until all events are stored"
)]
async fn filled(db: &Path) {
    let clock = ManualClock::at(at(BLOCKS * 5));
    let store = DuckDbStore::open(&DuckDbConfig::new(db.to_owned()), Arc::new(clock)).unwrap();
    let origins: Vec<Arc<Origin>> = (0..RANKS).map(origin).collect();
    for block in 0..BLOCKS {
        store.append(batch(block, &origins)).await.unwrap();
    }
    let output = DetectorOutput {
        incidents: vec![incident()],
        judged: Some(*store.committed().borrow()),
        ..DetectorOutput::default()
    };
    store.store_verdicts(output).await.unwrap();
    store.close().await.unwrap();
}

#[test]
#[needs(NIGHTLY, CHROMIUM)]
async fn a_browser_shows_the_most_important_of_ten_thousand_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    filled(&db).await;
    // A debug build computes the map slowly.
    let echo = Echo::serve_with(&db, &["--query-deadline", "60s"]);
    let page = format!("http://{}/clusters/crowd?window=all&open=ranks", echo.http);
    // The first viewer sees the page without the map, which is being made.
    wait_for("the map", || {
        let page = ureq::get(&page).call().unwrap().body_mut().read_to_string();
        !page.unwrap().contains("It is being made")
    });
    let mut plan = vec![
        go(&page),
        expect_text("rank 7777"),
        expect_text("10239 other ranks, never more than"),
        expect_text("10176 ranks with smaller lags are omitted"),
        expect("document.querySelectorAll('.map tbody tr').length === 64"),
        expect("document.querySelectorAll('.map .s5').length === 1"),
        expect("document.querySelector('.map .s5').closest('tr').innerText.startsWith('7777')"),
        expect("document.querySelector('.map tbody').children.length === 1"),
        expect("document.documentElement.outerHTML.length < 300000"),
    ];
    plan.extend(pictures("crowd"));
    browse(&plan);
}
