//! The dashboard model of Grafana. (Grafana itself is in none of the registries.)

use fleet_test_harness::{NIGHTLY, PYPI};

use crate::testbed::repository;

use super::{client, done, python};

#[test]
#[needs(NIGHTLY, PYPI)]
fn grafana_reads_the_whole_dashboard() {
    let mut reader = python("python");
    reader
        .arg(client("grafana_dashboard.py"))
        .arg(repository("deploy/grafana/dashboard.json"));
    done(&mut reader, "the model of Grafana rejects the dashboard");
}
