//! Published views, and names that are private.

/// View that every caller may read. The meaning and units of its columns are in the comments of the
/// database, which the migrations create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedView {
    /// Its name.
    pub name: &'static str,
    /// Purpose.
    pub purpose: &'static str,
}

const fn view(name: &'static str, purpose: &'static str) -> PublishedView {
    PublishedView { name, purpose }
}

/// Published views, most used first.
pub const PUBLISHED: [PublishedView; 16] = [
    view("verdicts", "stragglers and other findings"),
    view("ranks", "ranks with their nodes, jobs and GPUs"),
    view(
        "collectives",
        "waiting times of ranks in blocks of collectives",
    ),
    view("events", "every data point"),
    view(
        "operation_classes",
        "operations by class: data type, bytes, communicator size",
    ),
    view(
        "tcp_retransmits",
        "TCP retransmissions of hosts per block of their ranks",
    ),
    view("op_waits", "single operations, sampled"),
    view("process_chains", "causal chains of processes"),
    view(
        "process_calls",
        "calls of GPU libraries by process and function",
    ),
    view("process_stacks", "stack samples of processes"),
    view(
        "cost_hours",
        "GPU-hours allocated and lost per hour, node and GPU model",
    ),
    view("lost_time", "GPU time lost to each incident"),
    view("verdict_history", "earlier states of incidents"),
    view("cost_hour_history", "earlier revisions of hourly costs"),
    view("dropped_slices", "time slices deleted by retention"),
    view("judged", "progress of the detector"),
];

/// Hint for the name of a view that does not exist here.
pub(crate) fn instead(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "nccl_events" => {
            Some("single operations are in op_waits, and counts by class in operation_classes")
        }
        "tcp_events" => Some("retransmissions are in tcp_retransmits"),
        _ => None,
    }
}

/// Other objects in the database. WITH must not define these names, so that no ambiguity exposes
/// them.
pub const PRIVATE: [&str; 15] = [
    "cost_hour_rows",
    "database_identity",
    "dropped_rows",
    "due_hour_rows",
    "event_rows",
    "ingested_batches",
    "judged_rows",
    "lost_rows",
    "origins",
    "policies",
    "policy_rows",
    "sample_rows",
    "schema_version",
    "series",
    "verdict_rows",
];

/// Prefixes of the engine's own views, and one name without a common prefix.
const ENGINE_PREFIXES: [&str; 5] = ["duckdb_", "pg_", "pragma_", "sqlite_", "information_schema"];

/// Returns true if the view is published.
pub fn is_published(name: &str) -> bool {
    PUBLISHED
        .iter()
        .any(|view| view.name.eq_ignore_ascii_case(name))
}

/// Returns true if the name is that of a private object.
pub fn is_private(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PRIVATE.contains(&name.as_str()) || ENGINE_PREFIXES.iter().any(|start| name.starts_with(start))
}

/// Names of the published views, for a hint.
pub(super) fn names() -> String {
    let names: Vec<&str> = PUBLISHED.iter().map(|view| view.name).collect();
    names.join(", ")
}
