//! Growth of the database caused by an open incident.

use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::detector_output::Incident;
use echo_core::model::inputs::{Inputs, RankWaiting};

use super::{config, open};
use crate::EventStore;
use crate::contract::sample::{at, incident, incidents, inputs};

/// Non-repeating numbers between 0 and 1, so that only equal values are compressed.
#[expect(clippy::cast_precision_loss, reason = "31 bits are exact")]
fn noise(n: u64) -> f64 {
    (n.wrapping_mul(6_364_136_223_846_793_005) >> 33) as f64 / f64::from(1_u32 << 31)
}

/// Inputs of typical size, which differ with `n`.
fn judged(n: u64) -> Inputs {
    let waiting = |rank: u32| {
        let n = n * 100 + u64::from(rank);
        RankWaiting {
            rank: Rank::new(rank),
            caused: 5.0 + noise(n),
            usual: Some(noise(n + 71)),
            z: Some(20.0 + noise(n + 37)),
        }
    };
    Inputs {
        center: 4.0 + noise(n),
        sigma: Some(noise(n + 1)),
        ranks: (0..16).map(waiting).collect(),
        ..inputs()
    }
}

/// State of an open incident after `n` judgements. Inputs are replaced when the evidence is
/// stronger than ever before, which becomes rarer the longer it is open.
fn state(n: u64) -> Incident {
    let period_ms = 131.0 + noise(n);
    Incident {
        inputs: Some(Arc::new(judged(n.next_power_of_two()))),
        last_seen: at(i64::try_from(n).unwrap() * 1_000),
        period_ms,
        effect_ratio: 0.3 + noise(n + 5) / 100.0,
        reason: format!("rank 17 is late, and an iteration takes {period_ms:.1} ms"),
        ..incident(1, "prod", 0, 0)
    }
}

/// Size of a database with `n_judgements` of one open incident, bytes.
async fn grown(n_judgements: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&config(&folder));
    let all: Vec<u64> = (0..n_judgements).collect();
    for some in all.chunks(100) {
        let states = some.iter().map(|n| state(*n));
        store.store_verdicts(incidents(states)).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let file = std::fs::metadata(folder.path().join("echo.db")).unwrap();
    file.len()
}

#[tokio::test]
async fn an_incident_open_for_an_hour_adds_less_than_a_megabyte() {
    // One judgement per block, and blocks last a second.
    let added = grown(3_600).await - grown(0).await;
    assert!(added < 1_000_000, "{added}");
}
