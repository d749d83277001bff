//! Alertmanager, from its Debian package: gets an alert while a recorded fault lasts, and its end.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use fleet_test_harness::{NIGHTLY, Need};
use serde_json::Value;

use crate::actions::replay;
use crate::testbed::{Echo, free_port, wait_for};

/// Debian's program, which reads its templates where they are installed.
const PROGRAM: &str = "/usr/bin/prometheus-alertmanager";

/// An installed Alertmanager.
static ALERTMANAGER: Need = Need::new("alertmanager", || {
    let reason = "no Alertmanager (apt-get install prometheus-alertmanager)";
    (!Path::new(PROGRAM).is_file()).then(|| reason.to_owned())
});

/// A running Alertmanager, killed on drop.
struct Alertmanager {
    child: Child,
    url: String,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Alertmanager {
    fn start(folder: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let config = folder.join("alertmanager.yml");
        std::fs::write(
            &config,
            "route: { receiver: none }\nreceivers: [{ name: none }]\n",
        )
        .unwrap();
        let child = Command::new(PROGRAM)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn();
        let started = Self {
            child: child.unwrap(),
            url: format!("http://{address}"),
        };
        wait_for("Alertmanager", || started.alerts().is_some());
        started
    }

    /// Alerts that have not ended.
    fn alerts(&self) -> Option<Vec<Value>> {
        let url = format!("{}/api/v2/alerts", self.url);
        ureq::get(&url).call().ok()?.body_mut().read_json().ok()
    }
}

#[test]
#[needs(NIGHTLY, ALERTMANAGER)]
fn alertmanager_has_an_alert_while_a_fault_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let alertmanager = Alertmanager::start(folder.path());
    let policy = folder.path().join("actions.yaml");
    let text = format!(
        "limits: {{ max_percent: 25 }}
consumers: {{ alerts: {{ mode: act, alertmanager: {{ url: {} }} }} }}
rules: [{{ consumers: [alerts], min_severity: info, open_for: 0s }}]\n",
        alertmanager.url
    );
    std::fs::write(&policy, text).unwrap();
    let policy = policy.display().to_string();
    let echo = Echo::serve_with(&folder.path().join("db"), &["--actions", &policy]);
    std::thread::scope(|scope| {
        scope.spawn(|| replay("host-sleep-rank2", &echo));
        wait_for("the alert", || alertmanager.alerts().unwrap().len() == 1);
        let alert = alertmanager.alerts().unwrap().remove(0);
        let labels = &alert["labels"];
        assert_eq!(labels["alertname"], "GpuStraggler", "{alert}");
        assert_eq!(
            (&labels["node"], &labels["cluster"]),
            (&"node-2".into(), &"lab".into())
        );
        let summary = alert["annotations"]["summary"].as_str().unwrap();
        assert!(summary.starts_with("straggler: rank 2, "), "{summary}");
    });
    wait_for("the end of the alert", || {
        alertmanager.alerts().unwrap().is_empty()
    });
}
