//! Output of `fleet-echo host`.

use echo_tools::fixture;

use super::{ContextFuture, Server, default_context};

fn with_reports() -> ContextFuture {
    Box::pin(async {
        let context = default_context().await;
        let reports = fixture::process_reports();
        context.store.append(reports).await.unwrap();
        context
    })
}

#[test]
fn processes_are_printed_for_people_and_fit_a_terminal() {
    let server = Server::with_context(with_reports);
    for command in ["chains", "calls", "stacks", "graphs", "check"] {
        for (variant, width) in [("pipe", None), ("80", Some(80)), ("200", Some(200))] {
            let line = format!("host {command} -c prod --from now-10m");
            let (printed, outcome) = server.run_on(&line, width, false);
            outcome.unwrap();
            let longest = printed.lines().map(|line| line.chars().count()).max();
            let width = width.map_or(usize::MAX, usize::from);
            assert!(
                longest.unwrap() <= width,
                "{command} at {variant}\n{printed}"
            );
            insta::assert_snapshot!(format!("{command}_{variant}"), printed);
        }
    }
}

#[test]
fn csv_has_one_row_per_chain_call_stack_process_and_node() {
    let server = Server::with_context(with_reports);
    for (command, n_rows) in [
        ("chains", 3),
        ("calls", 9),
        ("stacks", 2),
        ("graphs", 0),
        ("check", 2),
    ] {
        let printed = server.output(&format!("host {command} -o csv")).unwrap();
        assert_eq!(printed.lines().count(), n_rows + 1, "{command}\n{printed}");
    }
}

#[test]
fn an_unknown_node_or_process_is_reported_with_the_known_ones() {
    let server = Server::with_context(with_reports);
    let refused = server.output("host chains --node node-9").unwrap_err();
    assert_eq!(refused.exit_code(), 64);
    assert!(
        refused.to_string().contains("known: node-0, node-1"),
        "{refused}"
    );
    let refused = server.output("host stacks --pid 1").unwrap_err();
    assert!(refused.to_string().contains("4002 on node-1"), "{refused}");
}

#[test]
fn without_processes_the_next_step_is_named() {
    let printed = Server::start().output("host calls").unwrap();
    assert!(
        printed.contains("fleet-echo host check lists what each node reports"),
        "{printed}"
    );
}
