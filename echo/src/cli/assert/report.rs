//! Text and JSON output of a check.

use std::io::{self, Write};

use echo_core::text::visible;
use serde_json::{Value, json};

use crate::cli::assert::case::{Case, Outcome};

/// Prints a line per cluster.
pub(super) fn text(cases: &[Case], out: &mut dyn Write) -> io::Result<()> {
    for case in cases {
        writeln!(out, "{}", line(case))?;
    }
    out.flush()
}

/// Formats the line of a cluster.
pub(super) fn line(case: &Case) -> String {
    let line = format!(
        "{} {}: {}",
        case.outcome().word(),
        case.cluster,
        case.summary()
    );
    visible(&line).into_owned()
}

/// Prints everything as one JSON document.
pub(super) fn json(
    name: &str,
    cases: &[Case],
    outcome: Outcome,
    out: &mut dyn Write,
) -> io::Result<()> {
    let clusters: Vec<Value> = cases.iter().map(cluster).collect();
    let answer = json!({
        "assert": name,
        "outcome": outcome.name(),
        "exit_code": outcome.exit_code(),
        "clusters": clusters,
    });
    writeln!(out, "{answer}")?;
    out.flush()
}

fn cluster(case: &Case) -> Value {
    let checks = case.checks.iter().map(|check| {
        json!({
            "name": check.name,
            "value": check.value,
            "limit": check.limit,
            "within": check.within,
            "message": check.message,
        })
    });
    json!({
        "cluster": case.cluster,
        "outcome": case.outcome().name(),
        "window": case.window,
        "checks": checks.collect::<Vec<_>>(),
        "missing": case.missing,
        "error": case.failure.as_ref().map(|failure| &failure.message),
        "data_quality": case.quality,
    })
}
