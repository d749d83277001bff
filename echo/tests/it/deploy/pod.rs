//! Echo in the pod of the quick start: with its arguments, files, user and privileges, and a
//! read-only root folder.

use std::path::Path;
use std::process::{Command, Stdio};

use fleet_test_harness::CONTAINERS;

use super::container::{Image, probe};
use super::rendered::{backup_job, container, objects};
use super::site::Site;
use crate::testbed::{ECHO, agent, summary, wait_for};

#[test]
#[needs(CONTAINERS)]
fn the_pod_starts_without_privileges_and_responds_to_probes() {
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
    echo.send_sigterm();
    assert_eq!(echo.wait(), Some(0), "{}", quick.log("echo.log"));
}

/// Returns the command of agents that send for twelve seconds and retry while Echo is unavailable. In that
/// time their queues do not fill, however long a busy machine takes to start Echo.
fn load(quick: &Site) -> Command {
    let mut command = quick.network.run(agent());
    command
        .args(["simulate", "--json", "--cluster", "drill", "--nodes", "16"])
        .args(["--duration", "12s", "--interval", "1s", "--step", "100ms"])
        .args(["--endpoint", "https://localhost:4317", "--speed", "1"])
        .arg("--tls-ca")
        .arg(quick.path("secrets/ca.pem"))
        .arg("--token-file")
        .arg(quick.path("secrets/agent.token"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
#[needs(CONTAINERS)]
fn a_pod_replaced_under_load_loses_nothing_and_stops_within_its_grace_period() {
    let quick = Site::new("quickstart");
    let first = quick.echo("first.log");
    quick.wait_until_ready();
    let agents = load(&quick).spawn().unwrap();
    wait_for("the agents to send", || quick.count("events") > 100);
    first.send_sigterm();
    let grace = quick.overlay.echo()["terminationGracePeriodSeconds"].as_u64();
    let stopped_at = now();
    assert_eq!(first.wait(), Some(0), "{}", quick.log("first.log"));
    assert!(stopped_at.elapsed().as_secs() < grace.unwrap());
    let second = quick.echo("second.log");
    let sent = summary(&agents.wait_with_output().unwrap());
    assert!(sent["retries"].as_u64().unwrap() > 0, "no retries: {sent}");
    assert_eq!(
        sent["points_created"], sent["points_acknowledged"],
        "{sent}"
    );
    let acknowledged = sent["points_acknowledged"].as_u64().unwrap();
    assert_eq!(quick.count("events"), acknowledged, "{sent}");
    drop(second);
}

#[test]
#[needs(CONTAINERS)]
fn a_second_pod_on_the_same_volume_exits_and_names_the_database() {
    let quick = Site::new("quickstart");
    let first = quick.echo("first.log");
    quick.wait_until_ready();
    let elsewhere = quick.on_another_node();
    let second = elsewhere.echo("second.log");
    let log = || elsewhere.log("second.log");
    assert_eq!(second.wait(), Some(75), "{}", log());
    // Kubernetes shows the last line as the reason.
    let log = log();
    assert!(
        log.lines().last().unwrap().contains("/data/fleet.duckdb"),
        "{log}"
    );
    drop(first);
}

#[test]
#[needs(CONTAINERS)]
fn the_backup_job_copies_the_database_of_a_stopped_pod() {
    let quick = Site::new("quickstart");
    let echo = quick.echo("echo.log");
    quick.wait_until_ready();
    echo.send_sigterm();
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
    quick.set_group("backup", 0o2770);
    let volumes = ["data", "backup"].map(|name| (name, quick.path(name)));
    let image = Image::for_program(Path::new(ECHO));
    let backup = quick.start(pod, &image, &volumes, "backup.log");
    assert_eq!(backup.wait(), Some(0), "{}", quick.log("backup.log"));
    let of = |folder: &str| std::fs::metadata(quick.path(folder).join("fleet.duckdb")).unwrap();
    assert!(of("backup").len() > 0);
    let image = container(pod)["image"].as_str();
    assert_eq!(image, container(quick.overlay.echo())["image"].as_str());
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "the grace period is real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
