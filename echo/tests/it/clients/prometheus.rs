//! Prometheus, from its Debian package: checks and tests the rules, scrapes an instance, and fires
//! an alert.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fleet_test_harness::{DEBIAN, NIGHTLY};
use serde_json::Value;

use super::{done, installed};
use crate::monitoring::lab::Lab;
use crate::testbed::{free_port, repository, wait_for};

/// A running Prometheus, killed on drop.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Prometheus {
    /// Starts Prometheus, which scrapes and evaluates the rules each second.
    fn start(program: &Path, lab: &Lab) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        std::fs::write(lab.path("rules.yml"), rules_without_delay()).unwrap();
        std::fs::write(lab.path("prometheus.yml"), config(lab)).unwrap();
        let child = Command::new(program)
            .arg(format!(
                "--config.file={}",
                lab.path("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                lab.path("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(lab.path("prometheus.log")).unwrap())
            .spawn();
        Self {
            child: child.unwrap(),
            address,
        }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let answer = ureq::get(format!("http://{}/api/v1/{path}", self.address)).call();
        answer.ok()?.body_mut().read_json().ok()
    }

    /// Returns the value of an expression, if it has one.
    fn value(&self, expression: &str) -> Option<f64> {
        let answer = self.get(&format!("query?query={expression}"))?;
        answer
            .pointer("/data/result/0/value/1")?
            .as_str()?
            .parse()
            .ok()
    }

    fn is_firing(&self, alert: &str) -> bool {
        let Some(answer) = self.get("alerts") else {
            return false;
        };
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        alerts.iter().any(|one| {
            one["labels"]["alertname"] == alert
                && one["labels"]["cluster"] == "lab"
                && one["state"] == "firing"
        })
    }
}

/// Returns the shipped example configuration, edited for this instance, with a shorter interval.
fn config(lab: &Lab) -> String {
    let shipped = std::fs::read_to_string(repository("deploy/prometheus/prometheus.yml")).unwrap();
    let path = |name: &str| lab.path(name).display().to_string();
    let edited = shipped
        .replace("15s", "1s")
        .replace("/etc/prometheus/echo.token", &path("scraper"))
        .replace("/etc/prometheus/echo-ca.pem", &path("tls/ca.pem"))
        .replace("fleet-echo.fleet-echo.svc:8081", &lab.echo.http);
    assert!(
        edited.contains(&lab.echo.http) && edited.contains("scraper"),
        "{edited}"
    );
    edited
}

/// Returns the shipped rules without their `for` durations.
fn rules_without_delay() -> String {
    let shipped = std::fs::read_to_string(repository("deploy/prometheus/rules.yml")).unwrap();
    let lasting = |line: &&str| !line.trim().starts_with("for: ");
    let lines: Vec<&str> = shipped.lines().filter(lasting).collect();
    assert!(lines.len() < shipped.lines().count());
    lines.join("\n")
}

/// Returns a program of the Debian package, unpacked in the target folder.
fn debian(package: &str, program: &str) -> PathBuf {
    let folder = installed("debian", &[package], |folder| {
        let mut download = Command::new("apt-get");
        download.args(["download", package]).current_dir(folder);
        done(
            &mut download,
            "apt-get could not download a package: try apt-get update",
        );
        let mut unpack = Command::new("sh");
        unpack
            .args(["-c", "dpkg-deb --extract *.deb ."])
            .current_dir(folder);
        done(&mut unpack, "dpkg-deb could not unpack a package");
    });
    folder.join("usr/bin").join(program)
}

#[test]
#[needs(NIGHTLY, DEBIAN)]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let promtool = debian("prometheus", "promtool");
    for arguments in [
        ["check", "rules", "deploy/prometheus/rules.yml"],
        ["test", "rules", "deploy/prometheus/rules.test.yml"],
    ] {
        let mut promtool = Command::new(&promtool);
        promtool.args(arguments).current_dir(repository(""));
        done(&mut promtool, "promtool finds faults");
    }
}

#[test]
#[needs(NIGHTLY, DEBIAN)]
fn prometheus_scrapes_echo_and_fires_the_straggler_alert() {
    let program = debian("prometheus", "prometheus");
    let lab = Lab::new();
    let prometheus = Prometheus::start(&program, &lab);
    wait_for("the alert", || prometheus.is_firing("EchoStraggler"));
    wait_for("the cost", || {
        prometheus
            .value("cluster_currency:echo_straggler_cost:per_hour")
            .is_some()
    });
    let cost = prometheus
        .value("cluster_currency:echo_straggler_cost:per_hour")
        .unwrap();
    let (_, body) = lab.curl(
        "/api/v1/tools/fleet.cluster.get_cost",
        Some(r#"{"cluster":"lab"}"#),
    );
    let answer: Value = serde_json::from_str(&body).unwrap();
    let expected = answer["run_rate_per_hour"].as_f64().unwrap();
    assert!(
        cost > 0.0 && (cost - expected).abs() < 1e-5,
        "{cost}, but get_cost returns {expected}"
    );
    let targets = prometheus.get("targets").unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!(
        (&target["health"], &target["lastError"]),
        (&"up".into(), &"".into()),
        "{target}"
    );
    let log = std::fs::read_to_string(lab.path("prometheus.log")).unwrap();
    assert!(log.is_empty(), "{log}");
    assert!(!prometheus.is_firing("EchoCoverageLow"));
}
