//! A hang at the consumers of actions.

use std::process::Command;

use super::{Receiver, pager_policy};
use crate::testbed::{Echo, agent, serve_command, wait_for};

#[test]
fn a_hang_is_reported_with_the_rank_that_did_not_join_and_ends_when_it_joins() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let policy = pager_policy(folder.path(), &receiver);
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    command.arg("--actions").arg(policy);
    command.args(["--hang-after", "5s"]);
    let (echo, _log) = Echo::spawn(command);
    let mut command = Command::new(agent());
    command.arg("simulate");
    command.args(["--endpoint", &format!("http://{}", echo.otlp)]);
    command.args(["--cluster", "lab", "--nodes", "4", "--ranks-per-node", "1"]);
    command.args(["--step", "200ms", "--interval", "1s", "--speed", "4"]);
    command.args([
        "--duration",
        "90s",
        "--fault",
        "hang:rank=3,after=20s,for=60s",
    ]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    wait_for("the hang to be reported, and its end", || {
        receiver.bodies().len() >= 2
    });

    let bodies = receiver.bodies();
    assert_eq!(bodies[bodies.len() - 1]["event"], "cleared", "{bodies:#?}");
    let incident = &bodies[0]["incident"];
    assert_eq!(bodies[0]["event"], "raised", "{bodies:#?}");
    assert_eq!(
        (&incident["class"], &incident["rank"], &incident["node"]),
        (&"hang".into(), &3.into(), &"node-3".into()),
        "{bodies:#?}"
    );
    assert!(incident["advice"][0].is_string(), "{bodies:#?}");
    assert_eq!(echo.terminate(), 0);
}
