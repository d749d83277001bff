//! Output on terminals of 80 and 200 columns, with and without colours, in a pipe and as CSV.

use std::sync::Arc;

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Condition, ConditionKind, DetectorOutput, Finding, IncidentState,
};
use echo_tools::fixture;

use super::{ContextFuture, Server, default_context};

/// A job with a straggler whose GPU is known, and one in another cluster that hangs because rank 3
/// did not enter a collective.
pub(super) fn straggler_and_hang() -> ContextFuture {
    Box::pin(async {
        let context = default_context().await;
        let mut events = fixture::batch(0..4, 0..=600);
        for event in &mut events.events {
            let mut origin = (*event.origin).clone();
            origin.cluster = "prod64".parse().unwrap();
            event.origin = Arc::new(origin);
        }
        events.key = echo_core::model::event::BatchKey::Content(77);
        context.store.append(events).await.unwrap();
        let mut straggler = fixture::culprit();
        if let Finding::Culprit(culprit) = &mut straggler.finding {
            culprit.gpu_uuid = Some(Arc::from("GPU-3f2a1b2c-0000-1111-2222-333344445555"));
        }
        let mut incidents = vec![straggler];
        let reason = "3 of 4 ranks entered operation 1204 of communicator 0000000000000001 and it does not end: missing rank 3".to_owned();
        let mut hang = fixture::uniform();
        hang.id = IncidentId::new(1);
        hang.cluster = "prod64".parse().unwrap();
        hang.state = IncidentState::Open;
        (hang.cleared_at, hang.cleared_iteration) = (None, None);
        hang.first_seen = fixture::at(400);
        hang.last_seen = fixture::at(600);
        hang.raised_at = fixture::at(430);
        (hang.effect_ratio, hang.period_ms) = (0.0, 0.0);
        hang.finding = Finding::Condition(Condition {
            ranks: vec![Rank::new(3)],
            detail: reason.clone(),
            ..Condition::new(ConditionKind::Hang)
        });
        hang.reason = reason;
        incidents.push(hang);
        let lost = vec![fixture::lost(
            &incidents[1],
            "node-1",
            Some("NVIDIA H200"),
            500,
        )];
        let output = DetectorOutput {
            incidents,
            lost: lost
                .into_iter()
                .map(|mut row| {
                    row.cluster = "prod64".parse().unwrap();
                    row
                })
                .collect(),
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        context
    })
}

/// Commands that print a table.
const COMMANDS: [&str; 8] = [
    "status --from now-10m",
    "status -c prod64 --from now-10m",
    "clusters",
    "outliers --from now-10m",
    "cost --from now-10m",
    "explain -c prod --rank 2 --from now-10m",
    "history --limit 2 --from now-10m",
    "sql SELECT/**/rank,node_id,gpu_model/**/FROM/**/ranks/**/ORDER/**/BY/**/ALL",
];

/// Name of the snapshot of a command.
fn name(command: &str, variant: &str) -> String {
    let words: String = command
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    format!("{words}_{variant}")
}

#[test]
fn tables_fit_a_terminal_and_are_one_line_per_row_in_a_pipe() {
    let server = Server::with_context(straggler_and_hang);
    for command in COMMANDS {
        // The address of the server is another one in every run.
        let port = format!(" --server http://{}", server.address);
        for (variant, width) in [("pipe", None), ("80", Some(80)), ("200", Some(200))] {
            let (printed, outcome) = server.run_on(command, width, false);
            outcome.unwrap();
            let printed = printed.replace(&port, "");
            assert!(!printed.contains('\x1b'), "{command}: {printed}");
            let is_copied = |line: &&str| line.contains(" next ");
            let longest = printed.lines().filter(|line| !is_copied(line));
            let longest = longest.map(|line| line.chars().count()).max().unwrap();
            let width = width.map_or(usize::MAX, usize::from);
            assert!(
                longest <= width,
                "{command} at {variant}: {longest}\n{printed}"
            );
            insta::assert_snapshot!(name(command, variant), printed);
        }
    }
}

#[test]
fn open_incidents_are_coloured_by_severity_where_the_terminal_has_colours() {
    let server = Server::with_context(straggler_and_hang);
    for command in ["outliers --from now-10m", "status --from now-10m"] {
        let (printed, outcome) = server.run_on(command, Some(200), true);
        outcome.unwrap();
        assert!(printed.contains("\x1b["), "{printed:?}");
    }
}

#[test]
fn a_hang_is_one_row_with_the_node_of_the_missing_rank_and_no_slowdown() {
    let server = Server::with_context(straggler_and_hang);
    let printed = server.output("outliers -c prod64 --from now-10m").unwrap();
    let rows: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("hang"))
        .collect();
    let [row] = rows.as_slice() else {
        panic!("{printed}")
    };
    let expected = "rank 3 on node-1 did not enter a collective";
    assert!(row.contains(expected), "{printed}");
    assert!(!printed.contains(" 0.0 %"), "{printed}");
    assert_eq!(printed.matches("missing rank 3").count(), 1, "{printed}");
}

#[test]
fn rows_of_all_clusters_name_their_cluster() {
    let server = Server::with_context(straggler_and_hang);
    for command in ["outliers", "cost"] {
        let all = server.output(&format!("{command} --from now-10m")).unwrap();
        assert!(all.contains("CLUSTER") && all.contains("prod64"), "{all}");
        let one = server
            .output(&format!("{command} -c prod --from now-10m"))
            .unwrap();
        assert!(!one.contains("CLUSTER"), "{one}");
    }
}

/// A job with a straggler, whose ranks report their Kubernetes namespace.
fn straggler_in_a_namespace() -> ContextFuture {
    Box::pin(async {
        let context = fixture::empty();
        let mut batch = fixture::batch(0..4, 0..=600);
        for event in &mut batch.events {
            let mut origin = (*event.origin).clone();
            origin.namespace = Some(Arc::from("research"));
            event.origin = Arc::new(origin);
        }
        context.store.append(batch).await.unwrap();
        let output = fixture::detector_output();
        context.store.store_verdicts(output).await.unwrap();
        context
    })
}

#[test]
fn costs_have_a_table_of_jobs_if_there_are_several_or_a_namespace_is_known() {
    let several = Server::with_context(straggler_and_hang);
    let table = |printed: &str| {
        let (_, below) = printed.split_once("\nBY JOB\n")?;
        Some(below.split("\n\n").next().unwrap().to_owned())
    };
    let all = several.output("cost --from now-10m").unwrap();
    let jobs = table(&all).unwrap();
    assert!(jobs.contains("CLUSTER") && jobs.contains("llama"), "{all}");
    assert!(!jobs.contains("NAMESPACE"), "{all}");
    let one = several.output("cost -c prod --from now-10m").unwrap();
    assert_eq!(table(&one), None, "{one}");
    let known = Server::with_context(straggler_in_a_namespace);
    let printed = known.output("cost -c prod --from now-10m").unwrap();
    let jobs = table(&printed).unwrap();
    let words = jobs.lines().map(|line| line.split_whitespace().collect());
    let words: Vec<Vec<&str>> = words.collect();
    let expected = [
        vec!["COST", "GPU-HOURS", "NAMESPACE", "JOB"],
        vec!["0.130889", "USD", "0.0344", "research", "llama"],
        vec!["-", "-", "0.0028", "research", "llama"],
    ];
    assert_eq!(words, expected, "{printed}");
    let bare = "cost -c prod --from now-10m --no-headers";
    let bare = known.output(bare).unwrap();
    assert!(!bare.contains("BY JOB") && !bare.contains("NAMESPACE"));
    assert!(bare.contains("research"), "{bare}");
}

#[test]
fn a_shortened_table_of_jobs_names_the_gpu_hours_in_other_rows() {
    let known = Server::with_context(straggler_in_a_namespace);
    let printed = known.output("cost --from now-10m --limit 1").unwrap();
    let expected = "0.0028 GPU-hours in other rows: raise --limit\n";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn wide_output_has_instants_and_the_uuid_of_the_gpu() {
    let server = Server::with_context(straggler_and_hang);
    let narrow = server.output("outliers --from now-10m").unwrap();
    assert!(
        narrow.contains("5m10s") && narrow.contains("GPU-3f2a1b2c "),
        "{narrow}"
    );
    let wide = server.output("outliers --from now-10m -o wide").unwrap();
    for part in [
        "GPU-3f2a1b2c-0000-1111-2222-333344445555",
        "2026-06-01T00:04:50.000Z",
        "  JOB ",
        "  INCIDENT ",
        "0000000000000017",
    ] {
        assert!(
            wide.contains(part) && !narrow.contains(part),
            "{part}\n{wide}"
        );
    }
}

#[test]
fn csv_has_exact_numbers_under_the_names_of_the_json_fields() {
    let server = Server::with_context(straggler_and_hang);
    for (command, fields) in [
        (
            "outliers",
            vec!["cluster", "gpu_uuid", "effect_ratio", "kind"],
        ),
        ("status", vec!["cluster", "cost", "run_rate_per_hour"]),
        ("cost", vec!["cost", "incident_id", "reason"]),
        ("history --limit 3", vec!["timestamp", "value_double"]),
        ("explain -c prod --rank 2", vec!["time", "lag_ms"]),
        ("clusters", vec!["cluster", "n_gpus"]),
        ("sql SELECT(1)AS/**/one", vec!["one"]),
    ] {
        let window = if command.starts_with("sql") || command == "clusters" {
            ""
        } else {
            "--from now-10m"
        };
        let printed = server
            .output(&format!("{command} {window} -o csv"))
            .unwrap();
        let mut reader = csv::Reader::from_reader(printed.as_bytes());
        let headers = reader.headers().unwrap().clone();
        for field in fields {
            assert!(
                headers.iter().any(|name| name == field),
                "{field}: {headers:?}"
            );
        }
        for record in reader.records() {
            record.unwrap();
        }
        let bare = server
            .output(&format!("{command} {window} -o csv --no-headers"))
            .unwrap();
        assert_eq!(
            printed.lines().count(),
            bare.lines().count() + 1,
            "{command}"
        );
    }
}

#[test]
fn status_as_json_has_the_answers_of_both_tools() {
    let server = Server::start();
    let printed = server.output("status -o json").unwrap();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(answer["outliers"]["outliers"].is_array(), "{answer}");
    assert!(answer["cost"]["contributors"].is_array(), "{answer}");
}

#[test]
fn a_missing_or_misspelt_cluster_is_answered_with_those_there_are() {
    let server = Server::with_context(straggler_and_hang);
    for (line, advice) in [
        (
            "explain --rank 2",
            "--cluster is required: one of prod, prod64",
        ),
        ("status -c pord64", "did you mean \"prod64\"?"),
    ] {
        let error = server.output(line).unwrap_err();
        assert_eq!(error.exit_code(), 64, "{line}");
        assert!(error.to_string().contains(advice), "{line}: {error}");
    }
}

/// A job with a straggler, and a node that reports bad health.
fn straggler_and_unhealthy_node() -> ContextFuture {
    Box::pin(async {
        let context = default_context().await;
        let output = DetectorOutput {
            incidents: vec![fixture::unhealthy_node()],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        context
    })
}

#[test]
fn an_unhealthy_node_is_a_row_without_rank_and_an_open_incident_without_cost() {
    let server = Server::with_context(straggler_and_unhealthy_node);
    let printed = server.output("outliers -c prod --from now-5m").unwrap();
    let row = printed
        .lines()
        .find(|line| line.contains("node-7"))
        .unwrap();
    assert!(row.contains("unhealthy_node"), "{printed}");
    let printed = server.output("status -c prod --from now-5m").unwrap();
    let (_, block) = printed.split_once("UNHEALTHY NODE: node-7").unwrap();
    let block = block.split("\n\n").next().unwrap();
    assert!(block.contains("health score 0.41"), "{printed}");
    assert!(
        !block.contains("cost") && !block.contains("slower"),
        "{printed}"
    );
}
