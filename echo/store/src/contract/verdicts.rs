//! Contract tests of detector output.

use std::sync::Arc;

use echo_core::ids::{ClusterId, Rank};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Condition, ConditionKind, Finding, Incident, IncidentState, Severity,
    Signal,
};
use echo_core::model::event::Source;
use echo_core::model::inputs::Inputs;

use crate::EventStore;
use crate::contract::sample::{at, incident, incidents, inputs, losses, lost, window};
use crate::duckdb::DuckDbStore;

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

#[tokio::test]
async fn the_latest_revision_is_returned() {
    let store = DuckDbStore::scratch();
    let open = incident(1, "prod", 0, 10);
    store
        .store_verdicts(incidents([open.clone()]))
        .await
        .unwrap();
    let mut cleared = incident(1, "prod", 0, 20);
    cleared.state = IncidentState::Cleared;
    cleared.cleared_iteration = Some(200.25);
    cleared.baseline = Baseline::None { period_ms: 99.0 };
    cleared.job = None;
    cleared.finding = Finding::Condition(Condition {
        detail: "coverage is 40 %".to_owned(),
        ..Condition::new(ConditionKind::UniformSlowdown)
    });
    let between = incident(1, "prod", 0, 15);
    let both = incidents([between, cleared.clone()]);
    store.store_verdicts(both).await.unwrap();
    let found = store.incidents(None, window(0, 100)).await.unwrap();
    assert_eq!(found, [cleared]);

    let first = lost(1, "prod", "node-1", (0, 10));
    let mut better = first.clone();
    better.lost_gpu_ms = -3.5;
    let mut unknown_model = first.clone();
    unknown_model.gpu_model = None;
    let before = losses([first, unknown_model.clone()]);
    store.store_verdicts(before).await.unwrap();
    store
        .store_verdicts(losses([better.clone()]))
        .await
        .unwrap();
    let found = store.lost_time(None, window(0, 100)).await.unwrap();
    assert_eq!(found, [unknown_model, better]);
}

#[tokio::test]
async fn an_incident_is_read_as_it_was_stored() {
    let store = DuckDbStore::scratch();
    let with = |id, change: &dyn Fn(&mut Incident)| {
        let mut incident = incident(id, "prod", 0, 10);
        change(&mut incident);
        incident
    };
    let mut all = vec![
        with(1, &|incident| {
            incident.state = IncidentState::Cleared;
            incident.cleared_at = Some(at(20));
            incident.is_provisional = true;
            incident.severity = Severity::Critical;
            incident.stability = 0.75;
            incident.inputs = Some(Arc::new(inputs()));
        }),
        with(2, &|incident| {
            incident.inputs = Some(Arc::new(Inputs {
                sigma: None,
                ranks: Vec::new(),
                ..inputs()
            }));
        }),
    ];
    all.extend((3..).zip(CauseClass::ALL).map(|(id, class)| {
        with(id, &|incident| {
            if let Finding::Culprit(culprit) = &mut incident.finding {
                culprit.class = class;
                culprit.source = Source::Device;
            }
        })
    }));
    all.extend((10..).zip(Signal::ALL).map(|(id, signal)| {
        with(id, &|incident| {
            if let Finding::Culprit(culprit) = &mut incident.finding {
                culprit.signal = signal;
            }
        })
    }));
    all.extend((20..).zip(ConditionKind::ALL).map(|(id, kind)| {
        with(id, &|incident| {
            incident.severity = Severity::Warn;
            incident.finding = Finding::Condition(Condition {
                kind,
                node: (kind == ConditionKind::UnhealthyNode).then(|| "node-3".parse().unwrap()),
                ranks: [0, 9, 4_000_000_000].map(Rank::new).to_vec(),
                is_standstill: kind == ConditionKind::Hang,
                is_explained: kind == ConditionKind::Stall,
                detail: "stage 3".to_owned(),
            });
        })
    }));
    store.store_verdicts(incidents(all.clone())).await.unwrap();
    let found = store.incidents(None, window(0, 100)).await.unwrap();
    assert_eq!(found, all);
}

#[tokio::test]
async fn incidents_are_listed_while_they_were_open() {
    let store = DuckDbStore::scratch();
    let mut cleared = incident(1, "prod", 10, 20);
    cleared.state = IncidentState::Cleared;
    let mut known_end = incident(4, "prod", 11, 20);
    known_end.state = IncidentState::Cleared;
    known_end.cleared_at = Some(at(25));
    let mut open = incident(2, "prod", 5, 12);
    open.finding = Finding::Condition(Condition::new(ConditionKind::UniformSlowdown));
    let mut elsewhere = incident(3, "test", 10, 20);
    if let Finding::Culprit(culprit) = &mut elsewhere.finding {
        culprit.signal = Signal::Arrival;
        culprit.gpu_uuid = None;
    }
    let all = incidents([
        cleared.clone(),
        open.clone(),
        elsewhere.clone(),
        known_end.clone(),
    ]);
    store.store_verdicts(all).await.unwrap();

    let all = store.incidents(None, window(0, 100)).await.unwrap();
    let expected = [
        open.clone(),
        cleared.clone(),
        elsewhere.clone(),
        known_end.clone(),
    ];
    assert_eq!(all, expected);
    let prod = cluster("prod");
    for ((from, to), expected) in [
        ((0, 5), vec![]),
        ((0, 6), vec![open.clone()]),
        ((20, 21), vec![open.clone(), cleared, known_end.clone()]),
        ((25, 26), vec![open.clone(), known_end]),
        ((26, 27), vec![open.clone()]),
    ] {
        let found = store.incidents(Some(&prod), window(from, to)).await;
        assert_eq!(found.unwrap(), expected, "{from} to {to}");
    }
    let test = cluster("test");
    let found = store.incidents(Some(&test), window(0, 100)).await.unwrap();
    assert_eq!(found, [elsewhere]);
}

#[tokio::test]
async fn lost_time_belongs_to_the_window_it_begins_in() {
    let store = DuckDbStore::scratch();
    let rows = [
        lost(2, "prod", "node-1", (10, 20)),
        lost(1, "prod", "node-2", (0, 10)),
        lost(1, "test", "node-1", (0, 10)),
        lost(1, "prod", "node-1", (20, 30)),
    ];
    store.store_verdicts(losses(rows.clone())).await.unwrap();
    let prod = cluster("prod");
    let found = store.lost_time(Some(&prod), window(0, 20)).await.unwrap();
    assert_eq!(found, [rows[1].clone(), rows[0].clone()]);
    let found = store.lost_time(None, window(0, 1)).await.unwrap();
    assert_eq!(found, [rows[2].clone(), rows[1].clone()]);
}
