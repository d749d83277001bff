//! A week of a fleet of 100 clusters on three instances, in closed hours: the report of the fleet is
//! the sum of those of its clusters, to the microsecond.

use std::path::Path;

use fleet_test_harness::NIGHTLY;
use serde_json::{Value, json};

use super::postgres::{POSTGRES, Postgres};
use crate::lake::reader::Reader;
use crate::lake::{EXTENSIONS, Lake, copied};
use crate::testbed::Echo;

const CLUSTERS: u64 = 100;

const INSTANCES: u64 = 3;

const HOURS: u64 = 7 * 24;

/// Nodes of a cluster, of eight ranks each.
const NODES: u64 = 125;

/// Beginning of the week, hours since 1970: 2 November 2026.
const FIRST_HOUR: u64 = 498_216;

/// GPU time in microseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Usage {
    allocated: u64,
    lost: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, rhs: Self) -> Self {
        Self {
            allocated: self.allocated + rhs.allocated,
            lost: self.lost + rhs.lost,
        }
    }
}

fn name(cluster: u64) -> String {
    format!("cluster-{cluster:02}")
}

/// Returns the usage of a cluster in the week, by the formula of [`close`].
fn usage(cluster: u64) -> Usage {
    let nodes = (0..HOURS).flat_map(|hour| (0..NODES).map(move |node| (hour, node)));
    let usages = nodes.map(|(hour, node)| {
        let n = (hour * 7_919 + cluster * 104_729 + node * 1_299_709) * 2_654_435_761;
        Usage {
            allocated: 8 * 3_600_000_000 - n % 1_000_003,
            lost: n % 360_000_007,
        }
    });
    usages.fold(Usage::default(), |sum, one| sum + one)
}

/// Stores the closed hours of the clusters of an instance, which is stopped.
#[expect(clippy::disallowed_methods, reason = "the instance is stopped")]
fn close(db: &Path, instance: u64) {
    let connection = duckdb::Connection::open(db).unwrap();
    let ranks = NODES * 8;
    let insert = format!(
        "INSERT INTO cost_hour_rows
         SELECT ({FIRST_HOUR} + hour) * 3600000000000, format('cluster-{{:02d}}', cluster), 'node-' || node,
                'NVIDIA H200', 1, ({FIRST_HOUR} + hour + 2) * 3600000000000, 8,
                8 * 3600000000 - n % 1000003, n % 360000007, {ranks}, {ranks}
         FROM (
            SELECT hour, cluster, node, (hour * 7919 + cluster * 104729 + node * 1299709) * 2654435761 AS n
            FROM range({HOURS}) h(hour), range({CLUSTERS}) c(cluster), range({NODES}) d(node)
            WHERE cluster % {INSTANCES} = {instance})",
    );
    assert!(connection.execute(&insert, []).unwrap() > 0);
}

/// Returns the sums of a report of the week, of one cluster or of all.
fn reported(reader: &Reader, cluster: Option<&str>) -> Usage {
    let time = |hour: u64| (FIRST_HOUR + hour) * 3_600_000;
    let mut path = format!(
        "/api/v1/cost.json?rows=false&from={}&to={}",
        time(0),
        time(HOURS)
    );
    if let Some(cluster) = cluster {
        path = format!("{path}&cluster={cluster}");
    }
    let (status, report) = reader.get(&path);
    assert_eq!(status, 200, "{report}");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["metadata"]["is_closed"], true);
    let micros = |sum: &Value, field: &str| {
        let exact = sum[field].as_f64().unwrap() * 3.6e9;
        format!("{exact:.0}").parse::<u64>().unwrap()
    };
    let summary = report["summary"].as_array().unwrap().iter();
    let usages = summary.map(|sum| Usage {
        allocated: micros(sum, "gpu_hours"),
        lost: micros(sum, "straggler_gpu_hours"),
    });
    usages.fold(Usage::default(), |sum, one| sum + one)
}

/// Stores GPU time that was lost in the first hour of a cluster, which is not closed.
#[expect(clippy::disallowed_methods, reason = "the instance is stopped")]
fn lose(db: &Path, cluster: u64, micros: u64) {
    let connection = duckdb::Connection::open(db).unwrap();
    let begin = FIRST_HOUR * 3_600_000_000_000;
    let insert = format!(
        "INSERT INTO lost_rows
         SELECT 1, 1, '{}', 'node-0', 'NVIDIA H200', {begin}, {begin} + 60000000000, 8, 60, {micros} / 1000, 0, 0",
        name(cluster)
    );
    assert_eq!(connection.execute(&insert, []).unwrap(), 1);
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn an_hour_that_another_instance_has_closed_shows_the_losses_of_one_that_has_not() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    for instance in 0..2 {
        let db = folder.path().join(format!("{instance}.duckdb"));
        assert_eq!(Echo::serve(&db).terminate(), 0);
        if instance == 0 {
            close(&db, instance);
        } else {
            lose(&db, 1, 5_000_000);
        }
        let echo = lake.serve(&db);
        copied(&echo);
        assert_eq!(echo.terminate(), 0);
    }
    let reader = Reader::start(&lake);
    let open = "SELECT lost_us, revision FROM cost_hours WHERE cluster_id = 'cluster-01'";
    assert_eq!(reader.rows(open), json!([[5_000_000, null]]));
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn the_report_of_a_fleet_is_the_sum_of_its_clusters_to_the_microsecond() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    for instance in 0..INSTANCES {
        let db = folder.path().join(format!("{instance}.duckdb"));
        assert_eq!(Echo::serve(&db).terminate(), 0);
        close(&db, instance);
        let echo = lake.serve(&db);
        copied(&echo);
        assert_eq!(echo.terminate(), 0);
    }
    let reader = Reader::start(&lake);
    let clusters = (0..CLUSTERS).map(|cluster| {
        let expected = usage(cluster);
        let found = reported(&reader, Some(&name(cluster)));
        assert_eq!(found, expected, "{}", name(cluster));
        expected
    });
    let sum = clusters.fold(Usage::default(), |sum, one| sum + one);
    let fleet = reported(&reader, None);
    assert_eq!(fleet, sum);
    // As text: numbers beyond 2^53 are strings in JSON.
    let sql = "SELECT sum(allocated_us)::VARCHAR, sum(lost_us)::VARCHAR FROM cost_hours";
    let total = [fleet.allocated, fleet.lost].map(|micros| micros.to_string());
    assert_eq!(reader.rows(sql), json!([total]));
    println!(
        "{CLUSTERS} clusters of {} ranks in {HOURS} hours: {} us allocated, {} us lost",
        NODES * 8,
        fleet.allocated,
        fleet.lost
    );
}
