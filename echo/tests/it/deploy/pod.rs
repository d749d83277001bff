//! Echo as the pod of the quick start: the same arguments, files, user and rights, its root folder read-only.

use std::process::{Command, Stdio};

use super::container::{is_possible, probe};
use super::rendered::container;
use super::site::QuickStart;
use crate::testbed::{agent, summary, wait_for};

#[test]
fn the_pod_starts_without_rights_and_answers_its_probes() {
    if !is_possible() {
        return;
    }
    let quick = QuickStart::new("probes");
    let echo = quick.echo("echo.log");
    quick.wait_until_ready();
    let spec = container(quick.overlay.echo());
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(probe(&quick.network, spec, name), Some(200), "{name}");
    }
    assert_eq!(echo.status("Uid"), "65532\t65532\t65532\t65532");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(echo.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(echo.status("NoNewPrivs"), "1");
    let root = echo.root_options();
    assert!(root.starts_with("ro"), "{root}");
    assert_eq!(quick.count("events"), 0);
    echo.ask_to_stop();
    assert_eq!(echo.wait(), Some(0), "{}", quick.said("echo.log"));
}

/// Agents that send for ten seconds, however often Echo goes away.
fn load(quick: &QuickStart) -> Command {
    let mut command = quick.network.run(agent());
    command
        .args(["simulate", "--json", "--cluster", "drill", "--nodes", "16"])
        .args(["--duration", "40s", "--interval", "1s", "--step", "100ms"])
        .args(["--endpoint", "https://localhost:4317", "--speed", "4"])
        .arg("--tls-ca")
        .arg(quick.path("secrets/ca.pem"))
        .arg("--token-file")
        .arg(quick.path("secrets/agent.token"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn a_pod_that_is_replaced_under_load_loses_nothing_and_ends_within_its_grace() {
    if !is_possible() {
        return;
    }
    let quick = QuickStart::new("drain");
    let first = quick.echo("first.log");
    quick.wait_until_ready();
    let agents = load(&quick).spawn().unwrap();
    wait_for("the agents to send", || quick.count("events") > 100);
    first.ask_to_stop();
    let grace = quick.overlay.echo()["terminationGracePeriodSeconds"].as_u64();
    let asked = now();
    assert_eq!(first.wait(), Some(0), "{}", quick.said("first.log"));
    assert!(asked.elapsed().as_secs() < grace.unwrap());
    let second = quick.echo("second.log");
    let sent = summary(&agents.wait_with_output().unwrap());
    assert!(sent["retries"].as_u64().unwrap() > 0, "it went on: {sent}");
    assert_eq!(sent["points_made"], sent["points_acknowledged"], "{sent}");
    let acknowledged = sent["points_acknowledged"].as_u64().unwrap();
    assert_eq!(quick.count("events"), acknowledged, "{sent}");
    drop(second);
}

#[test]
fn a_second_pod_on_the_same_volume_says_who_holds_it_and_ends() {
    if !is_possible() {
        return;
    }
    let quick = QuickStart::new("volume");
    let first = quick.echo("first.log");
    quick.wait_until_ready();
    let elsewhere = quick.on_another_node("volume-2");
    let second = elsewhere.echo("second.log");
    let said = || elsewhere.said("second.log");
    assert_eq!(second.wait(), Some(75), "{}", said());
    // What Kubernetes shows as the reason: the last line.
    let said = said();
    assert!(
        said.lines().last().unwrap().contains("/data/fleet.duckdb"),
        "{said}"
    );
    drop(first);
}

/// The moment at which the pod was asked to stop.
#[expect(clippy::disallowed_methods, reason = "the grace is the manifest's")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
