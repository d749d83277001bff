//! Ages of incidents, and the commands that are printed to be run next.

use std::sync::Arc;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::BatchKey;
use echo_tools::fixture;

use super::terminal::straggler_and_hang;
use super::{ContextFuture, Server, default_context};

/// A job with a straggler, and another one with the same ranks.
fn two_jobs() -> ContextFuture {
    Box::pin(async {
        let context = default_context().await;
        let mut events = fixture::batch(0..4, 0..=600);
        for event in &mut events.events {
            let mut origin = (*event.origin).clone();
            origin.job = Some("other".parse().unwrap());
            event.origin = Arc::new(origin);
        }
        events.key = BatchKey::Content(78);
        context.store.append(events).await.unwrap();
        let output = DetectorOutput {
            incidents: vec![fixture::culprit()],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        context
    })
}

#[test]
fn the_next_command_runs_where_several_jobs_have_the_rank() {
    let server = Server::with_context(two_jobs);
    let ambiguous = server.output("explain -c prod --rank 2").unwrap_err();
    let expected = "--job: rank 2 reported in several jobs; set --job to one of: llama, other";
    assert_eq!(ambiguous.to_string(), expected);
    let printed = server.output("status --from now-10m").unwrap();
    let (_, next) = printed.split_once("next      fleet-echo ").unwrap();
    let next = next.lines().next().unwrap();
    // The tests add the address of the server to each command.
    let (next, _) = next.split_once(" --server ").unwrap();
    assert_eq!(next, "explain -c prod --rank 2 --job llama --from now-10m");
    let explained = server.output(next).unwrap();
    assert!(explained.contains("job llama"), "{explained}");
}

#[test]
fn an_open_incident_has_the_same_age_in_every_window_and_command() {
    let server = Server::with_context(straggler_and_hang);
    for line in [
        "status",
        "status --from now-10m",
        "status --window all",
        "status -c prod -w all",
        "outliers",
        "outliers --window all",
    ] {
        let printed = server.output(line).unwrap();
        let age = if line.starts_with("status") {
            "open 5m10s, since 00:04:50"
        } else {
            "  5m10s  GPU-3f2a1b2c"
        };
        assert!(printed.contains(age), "{line}: {printed}");
        let of_cleared = "    50s  an iteration takes";
        assert!(
            line.starts_with("status") || printed.contains(of_cleared),
            "{printed}"
        );
    }
}
