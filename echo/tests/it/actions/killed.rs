//! Deliveries that wait when the process is killed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::{Receiver, metrics, pager_policy, replay};
use crate::testbed::{Echo, serve_command, wait_for};

#[test]
fn deliveries_that_wait_when_the_process_is_killed_are_made_once_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    receiver.is_refusing.store(true, Ordering::SeqCst);
    let policy = pager_policy(folder.path(), &receiver);
    let serve = || {
        let mut command = serve_command(&folder.path().join("fleet.duckdb"));
        command.arg("--actions").arg(&policy);
        Echo::spawn(command).0
    };

    let echo = serve();
    replay("host-sleep-rank2", &echo);
    let queued = |echo: &Echo, least: f64| {
        let metrics = metrics(echo);
        let name = r#"echo_actions_queued{consumer="pager"} "#;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.is_some_and(|count| count.parse::<f64>().unwrap() >= least)
    };
    wait_for("the beginning and the end to wait", || {
        queued(&echo, 2.0) && !receiver.requests().is_empty()
    });
    echo.kill();
    let before: BTreeSet<String> = receiver.requests().into_iter().map(|one| one.key).collect();

    receiver.is_refusing.store(false, Ordering::SeqCst);
    let echo = serve();
    wait_for("the deliveries", || {
        receiver
            .bodies()
            .last()
            .is_some_and(|body| body["event"] == "cleared")
    });
    wait_for("the queue to be empty", || {
        metrics(&echo).contains(r#"echo_actions_queued{consumer="pager"} 0.0"#)
    });
    let accepted = receiver
        .requests()
        .into_iter()
        .filter(|one| one.is_accepted);
    let accepted: Vec<_> = accepted.collect();
    let keys: BTreeSet<String> = accepted.iter().map(|one| one.key.clone()).collect();
    assert_eq!(keys.len(), accepted.len(), "{accepted:#?}");
    assert!(before.is_subset(&keys), "{before:?} {accepted:#?}");
    assert_eq!(accepted[0].body["event"], "raised");
    assert_eq!(echo.terminate(), 0);
}
