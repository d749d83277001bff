//! The architecture, as data, and the proof that the sources keep it.
//!
//! The rules are in `rules`; `planted` shows that each of them fails when it is broken. The sources are read as text,
//! which works because the form of imports is a rule, too.

#![expect(
    clippy::string_slice,
    reason = "places in a text come from searches in the same text"
)]

mod circles;
mod planted;
mod rules;
mod source;

use std::path::Path;

use circles::circles;
use rules::{Architecture, sizes_and_names, violations};
use source::{Source, read_folder};

/// The program. A module imports from lower layers only, so modules of one layer do not know each other.
const ECHO: Architecture = Architecture {
    layers: &[
        ("feedback", 0),
        ("config", 1),
        ("telemetry", 1),
        ("app", 2),
        ("cli", 3),
        ("demo", 3),
        ("main", 4),
    ],
    pure: &["feedback::health"],
    stops: &[
        ("aws_lc_rs", &["app::key_sets", "cli"]),
        ("axum", &["app", "cli", "demo"]),
        ("clap", &["config", "cli", "demo", "main"]),
        // The names of attributes and metrics are vocabulary; messages and headers are transport.
        ("fleet_proto::metadata", &["feedback", "demo"]),
        ("fleet_proto::policy", &["feedback", "demo"]),
        ("indicatif", &["cli", "demo", "main"]),
        ("opentelemetry", &["telemetry"]),
        ("opentelemetry_otlp", &["telemetry"]),
        ("opentelemetry_sdk", &["telemetry"]),
        ("prost", &["feedback", "demo"]),
        ("quick_junit", &["cli"]),
        ("serde", &["cli", "config", "demo"]),
        ("tracing_opentelemetry", &["telemetry"]),
        ("ureq", &["app::key_sets", "cli", "demo"]),
    ],
};

/// The libraries of Echo, each with its folder; a module of the library `store` is called `store::...` here. Cargo keeps
/// their order.
const LIBRARIES: [&str; 9] = [
    "core",
    "sql-guard",
    "access",
    "analysis",
    "store",
    "ingest",
    "tools",
    "serve",
    "bench",
];

/// What cargo does not know of the libraries.
const OF_LIBRARIES: Architecture = Architecture {
    layers: &[],
    pure: &[
        "core::ids",
        "core::units",
        "core::stats",
        "core::model",
        "core::pattern",
        "core::policy_table",
        "core::shard",
        "sql_guard",
        "analysis",
        "ingest::decode",
        "serve::pages::answers",
        "serve::pages::bars",
        "serve::pages::standing",
        "serve::pages::words",
        "tools::explain_rank::plot",
        "tools::lag_map::lags",
        "tools::picture",
    ],
    stops: &[
        ("arrow", &["store::duckdb"]),
        ("axum", &["ingest::otlp", "serve"]),
        ("cookie", &["serve::session"]),
        ("duckdb", &["store::duckdb", "bench::bytedance"]),
        // The names of attributes and metrics are vocabulary; messages and headers are transport.
        ("fleet_proto::metadata", &["ingest", "serve"]),
        ("fleet_proto::policy", &["ingest", "serve"]),
        ("fs2", &["store::duckdb"]),
        ("libduckdb_sys", &["store::duckdb"]),
        ("maud", &["serve::pages"]),
        ("opentelemetry_proto", &["ingest"]),
        ("plotters", &["tools::picture"]),
        ("png", &["tools::picture"]),
        ("prost", &["ingest"]),
        ("rmcp", &["serve"]),
        (
            "serde",
            &["access", "ingest", "serve", "store::duckdb", "tools"],
        ),
        // The service speaks gRPC, and `respond` builds its statuses.
        ("tonic", &["ingest::otlp", "ingest::respond", "serve"]),
    ],
};

/// The agent. What decides is pure and below; what reads and sends is above.
const AGENT: Architecture = Architecture {
    layers: &[
        ("event", 0),
        ("iteration", 0),
        ("vitals", 0),
        ("activity", 1),
        ("job", 1),
        ("order", 1),
        ("signal", 1),
        ("verdict", 2),
        ("discover", 2),
        ("exemplar", 2),
        ("correlate", 3),
        ("place", 3),
        ("process", 4),
        ("policy", 3),
        ("printable", 2),
        ("functions", 3),
        ("comm_fields", 3),
        ("symbols", 3),
        ("instruction", 4),
        ("classify", 4),
        ("progress", 4),
        ("block_size", 4),
        ("rhythm", 4),
        ("rollup", 5),
        ("pipeline", 6),
        ("gpu", 7),
        ("rdma", 7),
        ("watch", 7),
        ("export", 7),
        ("source", 8),
        // Flags make the parts that they describe.
        ("config", 8),
        ("hooks", 9),
        ("host", 9),
        ("metrics", 9),
        ("check", 10),
        ("install", 10),
        ("record", 10),
        ("replay", 10),
        ("run", 10),
        ("simulate", 10),
        ("main", 11),
    ],
    pure: &[
        "event",
        "iteration",
        "vitals",
        "activity",
        "job",
        "order",
        "signal",
        "verdict",
        "discover",
        "exemplar",
        "correlate",
        "place",
        "policy",
        "printable",
        "classify",
        "progress",
        "block_size",
        "rhythm",
        "rollup",
        "pipeline",
        "functions",
        "comm_fields",
        "instruction",
        "watch::mapping",
        "source::live::assemble",
        "source::live::evidence",
        "source::live::ran",
        "source::recording::device",
        "source::recording::line",
        "record::header",
        "record::line",
        "record::windows",
        "check::findings",
        "gpu::choice",
        "gpu::limits",
        "hooks::board",
    ],
    stops: &[
        ("anyhow", &["main"]),
        ("clap", &["config", "main"]),
        ("nvml_wrapper", &["gpu"]),
        (
            "fleet_agent_bpf",
            &["functions", "watch", "source", "config", "record", "check"],
        ),
        ("object", &["symbols"]),
        ("indicatif", &["main", "record", "replay", "simulate"]),
        ("opentelemetry_proto", &["export"]),
        ("tonic", &["export"]),
        ("hyper_util", &["export", "metrics"]),
        ("axum", &["metrics"]),
        ("prometheus_client", &["metrics"]),
        ("tonic_prost", &["export"]),
        ("tower", &["export"]),
    ],
};

fn sources_of(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    read_folder(&root, folder)
}

#[track_caller]
fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn echo_keeps_its_architecture() {
    assert_none(&violations(&ECHO, &sources_of("echo/src")));
}

#[test]
fn the_libraries_keep_theirs() {
    for library in LIBRARIES {
        let sources = sources_of(&format!("echo/{library}/src"));
        assert!(!sources.is_empty(), "{library}");
        assert_none(&violations(&OF_LIBRARIES, &sources));
    }
}

#[test]
fn modules_of_one_folder_name_each_other_in_one_direction() {
    let libraries = LIBRARIES.map(|library| format!("echo/{library}/src"));
    let programs = ["agent-bpf", "agent", "agent/nccl-profiler", "echo", "proto"];
    let programs = programs.map(|program| format!("{program}/src"));
    for folder in libraries.iter().chain(&programs) {
        let sources = sources_of(folder);
        assert!(!sources.is_empty(), "{folder}");
        assert_none(&circles(&sources));
    }
}

#[test]
fn the_agent_keeps_its_architecture() {
    assert_none(&violations(&AGENT, &sources_of("agent/src")));
}

#[test]
fn files_and_functions_stay_small_and_well_named() {
    for package in ["agent", "agent-bpf", "echo", "proto"] {
        assert_none(&sizes_and_names(&sources_of(package)));
    }
}

#[test]
fn the_sources_are_found() {
    let sources = sources_of("echo");
    for path in ["echo/src/lib.rs", "echo/build.rs", "echo/tests/it/main.rs"] {
        assert!(sources.iter().any(|source| source.path == path), "{path}");
    }
}
