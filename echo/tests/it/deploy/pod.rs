//! Echo as the pod of the quick start: the same arguments, files, user and rights, its root folder read-only.

use std::path::Path;
use std::process::{Command, Stdio};

use super::container::{Image, is_possible, probe};
use super::rendered::{backup_job, container, objects};
use super::site::Site;
use crate::testbed::{ECHO, agent, summary, wait_for};

#[test]
fn the_pod_starts_without_rights_and_answers_its_probes() {
    if !is_possible() {
        return;
    }
    let quick = Site::new("quickstart");
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
fn load(quick: &Site) -> Command {
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
    let quick = Site::new("quickstart");
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
    let quick = Site::new("quickstart");
    let first = quick.echo("first.log");
    quick.wait_until_ready();
    let elsewhere = quick.on_another_node();
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

#[test]
fn the_backup_job_copies_the_database_of_a_pod_that_was_scaled_away() {
    if !is_possible() {
        return;
    }
    let quick = Site::new("quickstart");
    let echo = quick.echo("echo.log");
    quick.wait_until_ready();
    echo.ask_to_stop();
    assert_eq!(echo.wait(), Some(0));
    let objects = objects(&backup_job());
    let job = objects
        .iter()
        .find(|object| object["kind"] == "Job")
        .unwrap();
    let pod = &job["spec"]["template"]["spec"];
    let claim = &pod["volumes"][0]["persistentVolumeClaim"]["claimName"];
    let set = quick.overlay.object("StatefulSet", "fleet-echo");
    let template = &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
    assert_eq!(
        claim,
        &format!("{}-fleet-echo-0", template.as_str().unwrap())
    );
    std::fs::create_dir(quick.path("backup")).unwrap();
    quick.belongs_to_group("backup", 0o2770);
    let volumes = ["data", "backup"].map(|name| (name, quick.path(name)));
    let image = Image::for_program(Path::new(ECHO));
    let backup = quick.start(pod, &image, &volumes, "backup.log");
    assert_eq!(backup.wait(), Some(0), "{}", quick.said("backup.log"));
    let of = |folder: &str| std::fs::metadata(quick.path(folder).join("fleet.duckdb")).unwrap();
    assert!(of("backup").len() > 0);
    let image = container(pod)["image"].as_str();
    assert_eq!(image, container(quick.overlay.echo())["image"].as_str());
}

/// The moment at which the pod was asked to stop.
#[expect(clippy::disallowed_methods, reason = "the grace is the manifest's")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
