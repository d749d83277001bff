use std::collections::BTreeSet;
use std::sync::Arc;

use echo_core::ids::RankInJob;
use echo_core::model::event::Origin;
use echo_core::model::event::{Event, Reading};

use super::Kind;
use super::series::{Series, series_id};
use super::{Dictionary, Entries, origin_id};
use crate::ExceededLimit;
use crate::contract::sample::{bare_origin, gauge, origin};
use crate::limits::EntryLimits;

#[test]
fn every_field_of_an_origin_changes_its_id() {
    let base = Origin::clone(&bare_origin("ab", "c"));
    let with = |change: fn(&mut Origin)| {
        let mut origin = base.clone();
        change(&mut origin);
        origin
    };
    let all = [
        base.clone(),
        Origin::clone(&bare_origin("a", "bc")),
        with(|origin| origin.job = Some("x".parse().unwrap())),
        with(|origin| origin.gpu_model = Some(Arc::from("x"))),
        with(|origin| origin.gpu_uuid = Some(Arc::from("x"))),
        with(|origin| origin.gpu_uuid = Some(Arc::from(""))),
        with(|origin| origin.namespace = Some(Arc::from("x"))),
        with(|origin| origin.pod = Some(Arc::from("x"))),
        with(|origin| origin.rank = RankInJob::new(0, None).ok()),
        with(|origin| origin.rank = RankInJob::new(0, Some(1)).ok()),
    ];
    let ids: BTreeSet<_> = all.iter().map(origin_id).collect();
    assert_eq!(ids.len(), all.len());
}

#[test]
fn an_id_is_the_same_on_every_machine() {
    assert_eq!(
        origin_id(&origin("prod", "node-1", 0)),
        18_304_359_056_072_534_627,
        "it is in the databases that exist"
    );
}

fn metric(name: &str) -> Event {
    gauge(&bare_origin("prod", "n-1"), name, 0, Reading::Int(1))
}

fn series(metrics: &[&str]) -> Entries {
    let events = metrics.iter().map(|name| metric(name));
    Entries {
        series: events
            .map(|event| (series_id(&event), Arc::new(Series::from_event(&event))))
            .collect(),
        ..Entries::default()
    }
}

#[test]
fn a_deleted_series_stays_until_earlier_readers_have_finished() {
    let dictionary = Dictionary::default();
    let mut stored = series(&["kept", "gone"]);
    let [kept, gone] = ["kept", "gone"].map(|name| series_id(&metric(name)));
    dictionary.extend(&stored);
    let reader = dictionary.lease();
    stored.forget(Kind::Series, &[gone]);
    dictionary.retire();
    let later = dictionary.lease();
    dictionary.settle(&stored);
    assert!(dictionary.series(gone).is_some());
    drop(reader);
    dictionary.settle(&stored);
    assert!(dictionary.series(gone).is_none());
    assert!(dictionary.series(kept).is_some());
    drop(later);
}

#[test]
fn a_full_dictionary_refuses_only_events_with_new_entries() {
    let dictionary = Dictionary::new(EntryLimits {
        series: 2,
        origins: 2,
        clusters: 2,
    });
    let node = |name| bare_origin("prod", name);
    let event = |node_name, metric| gauge(&node(node_name), metric, 0, Reading::Int(1));
    let events = |of: &[(&'static str, &'static str)]| -> Vec<Event> {
        of.iter()
            .map(|(node, metric)| event(node, metric))
            .collect()
    };
    let mut known = series(&["a"]);
    let first = node("n-1");
    known.origins.insert(origin_id(&first), first);
    dictionary.extend(&known);
    let batch = events(&[("n-1", "a"), ("n-1", "b"), ("n-1", "c"), ("n-1", "b")]);
    assert_eq!(
        dictionary.over_entry_limits(&batch, None),
        [(2, ExceededLimit::Series)]
    );
    let batch = events(&[("n-3", "c"), ("n-3", "a"), ("n-4", "a"), ("n-1", "a")]);
    assert_eq!(
        dictionary.over_entry_limits(&batch, None),
        [(2, ExceededLimit::Origin)]
    );
    // An event that is refused for its series adds no origin.
    let batch = events(&[("n-1", "b"), ("n-2", "c"), ("n-3", "a")]);
    assert_eq!(
        dictionary.over_entry_limits(&batch, None),
        [(1, ExceededLimit::Series)]
    );
}

/// Events of one node in each of these clusters.
fn of_clusters(clusters: std::ops::Range<usize>) -> Vec<Event> {
    let event = |n| {
        let origin = bare_origin(Box::leak(format!("c-{n}").into_boxed_str()), "n");
        gauge(&origin, "m", 0, Reading::Int(1))
    };
    clusters.map(event).collect()
}

fn stored(events: &[Event]) -> Entries {
    let origins = events.iter().map(|event| &event.origin);
    Entries {
        origins: origins
            .map(|one| (origin_id(one), Arc::clone(one)))
            .collect(),
        ..series(&["m"])
    }
}

#[test]
fn at_least_as_much_capacity_as_one_token_uses_stays_free() {
    let dictionary = Dictionary::new(EntryLimits {
        series: 1_000,
        origins: 100,
        clusters: 1_000,
    });
    let take = |events: Vec<Event>, token| {
        let refused = dictionary.over_entry_limits(&events, token);
        let is_accepted = |index: &usize| refused.iter().all(|(refused, _)| refused != index);
        let accepted: Vec<Event> = (0..events.len())
            .filter(is_accepted)
            .map(|index| events[index].clone())
            .collect();
        dictionary.extend(&stored(&accepted));
        accepted.len()
    };
    // A quarter is not attributed; of the rest one token gets half, and the next one half of the
    // remainder.
    assert_eq!(take(of_clusters(0..20), Some("greedy")), 20);
    assert_eq!(take(of_clusters(20..120), Some("greedy")), 40);
    assert_eq!(take(of_clusters(120..220), Some("greedy")), 0);
    assert_eq!(take(of_clusters(220..320), Some("modest")), 20);
    assert_eq!(take(of_clusters(320..420), None), 20, "the rest");
}

#[test]
fn at_least_as_many_origins_as_one_cluster_has_stay_free() {
    let dictionary = Dictionary::new(EntryLimits {
        series: 1_000,
        origins: 8,
        clusters: 8,
    });
    let nodes = ["a", "b", "c", "d", "e"];
    let of_one = nodes.map(|node| gauge(&bare_origin("one", node), "m", 0, Reading::Int(1)));
    dictionary.extend(&stored(&of_one[..3]));
    let fourth = dictionary.over_entry_limits(&of_one[3..], Some("agents"));
    assert_eq!(fourth, [(1, ExceededLimit::Origin)]);
}

#[test]
fn clusters_are_limited_and_recounted_when_origins_are_deleted() {
    let dictionary = Dictionary::new(EntryLimits {
        clusters: 2,
        ..EntryLimits::default()
    });
    let all = of_clusters(0..3);
    dictionary.extend(&stored(&all[..2]));
    assert_eq!(
        dictionary.over_entry_limits(&all, None),
        [(2, ExceededLimit::Cluster)]
    );
    dictionary.retire();
    dictionary.settle(&stored(&all[..1]));
    assert_eq!(dictionary.clusters().len(), 1);
    assert_eq!(dictionary.over_entry_limits(&all[2..], None), []);
}
