//! Three instances with one lake, while instances are killed, `PostgreSQL` crashes and the object
//! store refuses: what was acknowledged is in the lake once.
//! `FLEET_ECHO_LAKE_KILLS=50` kills 50 times.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fleet_test_harness::{NIGHTLY, PYPI};
use serde_json::json;

use super::in_bucket;
use super::object_store::ObjectStore;
use super::postgres::{POSTGRES, Postgres};
use crate::crash::{Agent, Moment, agents, check, kill_under_load};
use crate::lake::reader::Reader;
use crate::lake::{EXTENSIONS, Lake, copied, metric};
use crate::load::{mixed, stored};
use crate::testbed::{Echo, wait_for};

/// Kills in a run of all clients.
const KILLS: u64 = 10;

/// Kills for each crash of `PostgreSQL`.
const KILLS_A_CRASH: u64 = 5;

/// Clusters, one of each instance.
const CLUSTERS: [&str; 3] = ["alpha", "beta", "gamma"];

/// Agents of an instance.
const AGENTS: u64 = 2;

/// Flags of the instances: files are merged and deleted all the time.
const FLAGS: [&str; 4] = [
    "--lake-maintenance-every",
    "3s",
    "--lake-snapshot-age",
    "1s",
];

/// Flags of the instances that copy the rest.
const NO_MAINTENANCE: [&str; 2] = ["--lake-maintenance-every", "off"];

#[expect(clippy::disallowed_methods, reason = "the only setting of a test")]
fn kills() -> u64 {
    match std::env::var("FLEET_ECHO_LAKE_KILLS") {
        Ok(kills) => kills.parse().unwrap(),
        Err(_unset) => KILLS,
    }
}

/// One instance, through its restarts.
struct Instance {
    db: PathBuf,
    agents: Vec<Agent>,
}

impl Instance {
    /// Starts it and kills it under load until `kills` are left.
    fn be_killed(&mut self, lake: &Lake, left: &AtomicU64, seed: u64) {
        let is_positive = |left: u64| left.checked_sub(1);
        while let Ok(left) = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_positive) {
            let echo = lake.serve_with(&self.db, &FLAGS);
            kill_under_load(echo, &mut self.agents, |echo, acknowledged| {
                at_random(echo, acknowledged, mixed(seed + left));
            });
        }
    }
}

/// Waits for a random moment: after a number of acknowledgements, or while slices are committed.
fn at_random(echo: &Echo, acknowledged: &AtomicU64, chance: u64) {
    let moment = Moment::default();
    let is_due = || match chance % 3 {
        0 => acknowledged.load(Ordering::Acquire) >= chance / 3 % 60,
        n => metric(echo, "echo_lake_slices_total") >= f64::from(u32::try_from(n).unwrap()),
    };
    // The lake may be away.
    for _ in 0..200 {
        if is_due() {
            break;
        }
        moment.wait(50_000);
    }
    moment.wait(chance >> 32 & 0xf_ffff);
}

/// Crashes `PostgreSQL` and refuses files until no kills are left. Returns the number of crashes.
fn fail(postgres: &Postgres, store: &ObjectStore, left: &AtomicU64, all: u64) -> u64 {
    let left = || left.load(Ordering::Acquire);
    let (crashes, moment) = (all / KILLS_A_CRASH, Moment::default());
    for crash in 0..crashes {
        let is_due = || left() < all - crash * KILLS_A_CRASH;
        // Instances that fail do not keep it waiting.
        for _ in 0..6_000 {
            if is_due() {
                break;
            }
            moment.wait(100_000);
        }
        postgres.crash();
        postgres.run();
        if crash == crashes / 2 {
            store.refuse();
            moment.wait(1_200_000 * all);
            store.accept();
        }
    }
    crashes
}

/// Asserts that `lake verify` finds `points` and misses none. Returns the number of slices.
fn verified(lake: &Lake, points: u64) -> u64 {
    let (is_consistent, verification) = lake.command("verify");
    assert!(is_consistent, "{verification}");
    let instances = verification["instances"].as_array().unwrap();
    assert_eq!(instances.len(), CLUSTERS.len(), "{verification}");
    let sum = |field: &str| -> u64 {
        let values = instances.iter().map(|one| one[field].as_u64().unwrap());
        values.sum()
    };
    assert_eq!((sum("events"), sum("missing_events")), (points, 0));
    sum("slices")
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES, PYPI)]
fn what_three_instances_acknowledged_is_once_in_the_lake_through_all_failures() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let store = ObjectStore::start();
    let lake = in_bucket(postgres.catalog(), folder.path(), &store);
    let (all, seed) = (kills(), u64::from(std::process::id()) << 32);
    let left = AtomicU64::new(all);
    let mut instances: Vec<Instance> = CLUSTERS
        .iter()
        .zip(0..)
        .map(|(cluster, index)| Instance {
            db: folder.path().join(cluster).join("fleet.duckdb"),
            agents: agents(cluster, index * AGENTS..(index + 1) * AGENTS),
        })
        .collect();
    let crashes = thread::scope(|scope| {
        for instance in &mut instances {
            std::fs::create_dir(instance.db.parent().unwrap()).unwrap();
            scope.spawn(|| instance.be_killed(&lake, &left, seed));
        }
        fail(&postgres, &store, &left, all)
    });
    for instance in &instances {
        let echo = lake.serve_with(&instance.db, &NO_MAINTENANCE);
        copied(&echo);
        assert_eq!(echo.terminate(), 0);
    }
    let kills = usize::try_from(all).unwrap();
    let counted = lake.counted();
    let mut local = BTreeMap::new();
    for instance in &instances {
        local.append(&mut stored(&instance.db));
    }
    assert_eq!(counted, local, "the lake has what the databases have");
    let agents: Vec<Agent> = instances.into_iter().flat_map(|of| of.agents).collect();
    let unanswered = check(&agents, &counted, kills);
    let points: u64 = counted.values().map(|(all, _)| all).sum();
    let slices = verified(&lake, points);
    let reader = Reader::start(&lake);
    let count = reader.rows("SELECT count(*), count(DISTINCT event_id) FROM events");
    assert_eq!(
        count,
        json!([[points, points]]),
        "read from the object store"
    );
    println!(
        "{all} kills, {crashes} crashes of PostgreSQL, {} refused connections (seed {seed}): {} batches, \
         {unanswered} of them without a response, {points} points in {slices} slices",
        store.refused(),
        counted.len(),
    );
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES, PYPI)]
fn a_slice_of_which_only_some_files_were_stored_is_written_again() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let store = ObjectStore::start();
    let lake = in_bucket(postgres.catalog(), folder.path(), &store);
    let db = folder.path().join("fleet.duckdb");
    let mut agents = agents("load", 0..AGENTS);
    for round in 0..2 {
        let echo = lake.serve(&db);
        kill_under_load(echo, &mut agents, |echo, _| {
            wait_for("a slice", || metric(echo, "echo_lake_slices_total") > 0.0);
            let before = store.refused();
            // The rows are stored, and the row that makes them a slice is not.
            store.refuse_at("/slices/");
            wait_for("the slice to be torn", || store.refused() > before);
        });
        store.accept();
        let echo = lake.serve(&db);
        copied(&echo);
        assert_eq!(echo.terminate(), 0);
        check(&agents, &lake.counted(), round);
    }
    let (is_consistent, verification) = lake.command("verify");
    assert!(is_consistent, "{verification}");
}
