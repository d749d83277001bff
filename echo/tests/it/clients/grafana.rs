//! Grafana's own model of a dashboard. (Grafana itself comes from none of the registries.)

use crate::testbed::repository;

use super::{client, done, python};

#[test]
#[ignore = "installs packages from PyPI: make clients"]
fn grafana_reads_the_dashboard_and_drops_nothing_of_it() {
    let mut reader = python("python");
    reader
        .arg(client("grafana_dashboard.py"))
        .arg(repository("deploy/grafana/dashboard.json"));
    done(&mut reader, "Grafana's model does not take the dashboard");
}
