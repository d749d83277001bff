//! The architecture as data, and tests that the sources follow it.
//!
//! `rules` implements the rules; `planted` tests that each violation is found. The sources are read
//! as text, which works because a rule restricts the form of imports.

#![expect(
    clippy::string_slice,
    reason = "offsets come from searches in the same text"
)]

mod circles;
mod planted;
mod rules;
mod source;

use std::path::Path;

use circles::circles;
use rules::{Architecture, sizes_and_names, violations};
use source::{Source, read_folder};

/// The program of Echo. A module imports from lower layers only.
const ECHO: Architecture = Architecture {
    layers: &[
        ("feedback", 0),
        ("config", 1),
        ("progress", 1),
        ("telemetry", 1),
        ("app", 2),
        ("cli", 3),
        ("demo", 3),
        ("import", 4),
        ("failure", 5),
        ("main", 6),
    ],
    pure: &["feedback::health"],
    restricted: &[
        ("aws_lc_rs", &["app::jwks", "cli"]),
        ("axum", &["app", "cli", "demo"]),
        ("clap", &["config", "cli", "demo", "import", "main"]),
        // Other modules may use the names of attributes and metrics, but no messages and headers.
        ("fleet_proto::metadata", &["feedback", "demo"]),
        ("fleet_proto::policy", &["feedback", "demo"]),
        ("indicatif", &["demo", "main", "progress"]),
        ("opentelemetry", &["telemetry"]),
        ("opentelemetry_otlp", &["telemetry"]),
        ("opentelemetry_sdk", &["telemetry"]),
        ("prost", &["feedback", "demo"]),
        ("quick_junit", &["cli"]),
        ("serde", &["cli", "config", "demo", "import"]),
        ("tracing_opentelemetry", &["telemetry"]),
        ("ureq", &["app::jwks", "cli", "demo"]),
    ],
};

/// Libraries of Echo, by the names of their folders. A module of the library `store` is called
/// `store::...` here. Cargo enforces their order.
const LIBRARIES: [&str; 12] = [
    "core",
    "http-client",
    "sql-guard",
    "access",
    "analysis",
    "store",
    "ingest",
    "lake",
    "actions",
    "tools",
    "serve",
    "bench",
];

/// Rules for the libraries of Echo that cargo does not enforce.
const LIBRARY_RULES: Architecture = Architecture {
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
        "actions::agents",
        "actions::breaker",
        "actions::notice",
        "actions::planner",
        "actions::queue",
        "actions::selection",
        "actions::state",
        "analysis",
        "ingest::decode",
        "serve::pages::bars",
        "serve::pages::status",
        "serve::pages::format",
        "tools::explain_rank::plot",
        "tools::lag_map::lags",
        "tools::picture",
    ],
    restricted: &[
        ("arrow", &["store::duckdb"]),
        ("axum", &["ingest::otlp", "serve"]),
        ("cookie", &["serve::session"]),
        ("backon", &["actions::dispatcher", "lake::committer"]),
        (
            "duckdb",
            &[
                "store::duckdb",
                "lake::destination",
                "lake::overview",
                "lake::session",
            ],
        ),
        // Other modules may use the names of attributes and metrics, but no messages and headers.
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
            &[
                "access",
                "actions",
                "ingest",
                "lake::overview",
                "serve",
                "store::duckdb",
                // The process of a statement exchanges them with its store.
                "store::sql",
                "tools",
            ],
        ),
        ("ureq", &["actions::consumers", "http_client"]),
        // The service uses gRPC, and `respond` builds its statuses.
        ("tonic", &["ingest::otlp", "ingest::respond", "serve"]),
    ],
};

/// The program of the agent.
const AGENT: Architecture = Architecture {
    layers: &[
        ("gpu", 0),
        ("job", 0),
        ("log", 0),
        ("ras", 0),
        ("rdma", 0),
        ("stack_sampling", 0),
        ("capture", 1),
        // Flags create the components that they configure.
        ("config", 1),
        ("host_conditions", 1),
        ("measurements", 1),
        ("socket", 1),
        ("endpoint", 2),
        ("health", 2),
        ("hooks", 2),
        ("metrics", 2),
        ("check", 3),
        ("explain", 3),
        ("import", 3),
        ("install", 3),
        ("record", 3),
        ("replay", 3),
        ("run", 3),
        ("simulate", 3),
        ("stacks", 3),
        ("trace", 3),
        ("exit_code", 4),
        ("main", 5),
    ],
    pure: &[
        "job",
        "check::findings",
        "gpu::choice",
        "gpu::limits",
        "measurements::device",
        "hooks::events",
    ],
    restricted: &[
        ("anyhow", &["main"]),
        ("axum", &["metrics"]),
        ("clap", &["config", "main"]),
        ("fleet_agent_bpf", &["config", "check"]),
        ("hyper_util", &["metrics"]),
        (
            "indicatif",
            &[
                "explain", "import", "log", "main", "record", "replay", "simulate",
            ],
        ),
        ("nvml_wrapper", &["gpu"]),
        ("procfs_core", &["capture", "measurements"]),
        ("prometheus_client", &["metrics"]),
        ("rusqlite", &["import"]),
    ],
};

/// Libraries of the agent, by the names of their folders. A module of the library `core` is called
/// `agent_core::...` here.
const AGENT_LIBRARIES: [&str; 7] = [
    "core", "export", "hang", "health", "import", "sources", "stacks",
];

/// Rules for the libraries of the agent that cargo does not enforce. Modules that make decisions
/// are pure.
const AGENT_LIBRARY_RULES: Architecture = Architecture {
    layers: &[],
    pure: &[
        "agent_core",
        "agent_hang",
        "agent_import",
        "agent_sources::comm_fields",
        "agent_sources::functions",
        "agent_sources::instruction",
        "agent_sources::live::assemble",
        "agent_sources::live::evidence",
        "agent_sources::live::plugin_records",
        "agent_sources::placement",
        "agent_sources::recorder::header",
        "agent_sources::recorder::line",
        "agent_sources::recorder::windows",
        "agent_sources::recording::device",
        "agent_sources::recording::line",
        "agent_sources::watch::mapping",
        "agent_stacks::budget",
        "agent_stacks::mixed",
        "agent_stacks::sums",
    ],
    restricted: &[
        (
            "fleet_agent_bpf",
            &[
                "agent_sources::functions",
                "agent_sources::live",
                "agent_sources::recorder",
                "agent_sources::watch",
            ],
        ),
        (
            "object",
            &["agent_sources::symbols", "agent_stacks::unwind"],
        ),
        ("blazesym", &["agent_stacks::symbols"]),
        ("framehop", &["agent_stacks::unwind"]),
        ("parquet", &["agent_import::bytedance"]),
        ("perf_event", &["agent_stacks::registers"]),
        ("py_spy", &["agent_stacks::python"]),
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
fn the_libraries_of_echo_keep_their_architecture() {
    for library in LIBRARIES {
        let sources = sources_of(&format!("echo/{library}/src"));
        assert!(!sources.is_empty(), "{library}");
        assert_none(&violations(&LIBRARY_RULES, &sources));
    }
}

#[test]
fn modules_of_one_folder_name_each_other_in_one_direction() {
    let libraries = LIBRARIES.map(|library| format!("echo/{library}/src"));
    let of_agent = AGENT_LIBRARIES.map(|library| format!("agent/{library}/src"));
    let programs = [
        "agent-bpf",
        "agent",
        "agent/nccl-profiler",
        "echo",
        "metrics-text",
        "proto",
    ];
    let programs = programs.map(|program| format!("{program}/src"));
    for folder in libraries.iter().chain(&of_agent).chain(&programs) {
        let sources = sources_of(folder);
        assert!(!sources.is_empty(), "{folder}");
        assert_none(&circles(&sources));
    }
}

#[test]
fn the_agent_keeps_its_architecture() {
    assert_none(&violations(&AGENT, &sources_of("agent/src")));
    for library in AGENT_LIBRARIES {
        let sources = sources_of(&format!("agent/{library}/src"));
        assert!(!sources.is_empty(), "{library}");
        assert_none(&violations(&AGENT_LIBRARY_RULES, &sources));
    }
}

#[test]
fn files_and_functions_stay_small_and_well_named() {
    for package in ["agent", "agent-bpf", "echo", "metrics-text", "proto"] {
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
