//! Tests of the rules: each violation is found, and similar valid code is accepted.

use super::rules::{Architecture, sizes_and_names, violations};
use super::source::Source;

const SMALL: Architecture = Architecture {
    layers: &[
        ("ids", 0),
        ("units", 0),
        ("store", 1),
        ("serve", 2),
        ("main", 3),
    ],
    pure: &["ids", "store::rows"],
    restricted: &[("duckdb", &["store::duckdb"]), ("tonic", &["serve"])],
};

fn violations_in(path: &str, content: &str) -> Vec<String> {
    violations(&SMALL, &[Source::new(path, content)])
}

#[track_caller]
fn assert_broken(path: &str, content: &str, expected: &[&str]) {
    let found = violations_in(path, content);
    assert_eq!(found.len(), 1, "{found:?}");
    for part in expected {
        assert!(found[0].contains(part), "{found:?} lacks {part:?}");
    }
}

#[track_caller]
fn assert_kept(path: &str, content: &str) {
    assert_eq!(violations_in(path, content), [""; 0]);
}

#[test]
fn modules_of_libraries_have_the_library_as_prefix() {
    for (path, module) in [
        ("echo/src/serve/http.rs", "serve::http"),
        ("echo/sql-guard/src/lib.rs", "sql_guard"),
        ("echo/store/src/duckdb/rows.rs", "store::duckdb::rows"),
        ("agent/src/replay.rs", "replay"),
        ("agent/core/src/rollup.rs", "agent_core::rollup"),
    ] {
        assert_eq!(Source::new(path, "").module, module);
    }
}

#[test]
fn importing_a_higher_layer_is_found() {
    let rule = [
        "echo/src/store.rs",
        "`store`",
        "`serve`",
        "only lower layers",
    ];
    assert_broken("echo/src/store.rs", "use crate::serve::Listener;", &rule);
    assert_broken(
        "echo/src/store/rows.rs",
        "fn f() { crate::serve::run(); }",
        &rule[1..],
    );
}

#[test]
fn importing_a_neighbour_is_found() {
    assert_broken(
        "echo/src/ids.rs",
        "use crate::units::Nanos;",
        &["`ids`", "`units`"],
    );
}

#[test]
fn importing_lower_layers_and_the_own_tree_is_allowed() {
    assert_kept(
        "echo/src/store/duckdb.rs",
        "use crate::ids::{NodeId, Rank};\nuse crate::store::EventStore;\nuse super::StoreError;",
    );
    assert_kept("echo/src/main.rs", "fn main() { fleet_echo::serve::run() }");
}

#[test]
fn a_module_without_a_layer_is_found() {
    assert_broken("echo/src/extra.rs", "", &["`extra` has no layer"]);
    assert_broken(
        "echo/src/store.rs",
        "use crate::extra::X;",
        &["`extra`", "no layer"],
    );
}

#[test]
fn imports_of_several_modules_at_once_are_found() {
    let found = violations_in("echo/src/store.rs", "use crate::{ids::Rank, units::Nanos};");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .any(|one| one.contains("crate::ids and crate::units"))
    );
    assert!(found.iter().any(|one| one.contains("`use crate::{`")));
    let nested = "use crate::ids::{a::X, b::Y};";
    assert_broken(
        "echo/src/store.rs",
        nested,
        &["crate::ids::a and crate::ids::b"],
    );
}

#[test]
fn importing_a_module_twice_is_found() {
    let twice = "use crate::ids::Rank;\nuse crate::ids::NodeId;";
    assert_broken("echo/src/store.rs", twice, &["imports crate::ids twice"]);
}

#[test]
fn a_re_export_at_the_root_is_found() {
    assert_broken(
        "echo/src/lib.rs",
        "pub mod ids;\npub use ids::Rank;",
        &["re-exports"],
    );
    assert_kept("echo/src/lib.rs", "pub mod ids;\npub mod units;");
}

#[test]
fn reaching_past_the_parent_is_found() {
    let rule = ["past the module's own parent"];
    assert_broken("echo/src/store.rs", "use super::ids::Rank;", &rule);
    assert_broken("echo/src/store/rows.rs", "use super::super::units;", &rule);
}

#[test]
fn impurity_is_found_in_every_form() {
    for (code, what) in [
        ("async fn f() {}", "async"),
        ("use std::{fmt, fs::{self, File}};", "std::fs"),
        ("fn f() { std::thread::yield_now() }", "std::thread"),
        ("use std::time::SystemTime;", "SystemTime"),
        ("fn f() { let _ = Instant::now(); }", "Instant"),
        ("fn f() { tracing::info!(\"x\"); }", "tracing"),
        ("use tokio::sync::watch;", "tokio"),
        ("fn f() { println!(\"x\"); }", "println"),
    ] {
        assert_broken("echo/src/store/rows.rs", code, &["`store::rows`", what]);
        assert_kept("echo/src/store/timeseries.rs", code);
    }
}

#[test]
fn a_crate_outside_of_its_modules_is_found() {
    let rule = [
        "`store::timeseries` names `duckdb`",
        "allowed only in store::duckdb",
    ];
    assert_broken(
        "echo/src/store/timeseries.rs",
        "use duckdb::Connection;",
        &rule,
    );
    assert_broken(
        "echo/src/store/timeseries.rs",
        "fn f(c: &duckdb::Connection) {}",
        &rule,
    );
    assert_broken(
        "echo/src/store.rs",
        "use tonic::{Code, Status};",
        &["`tonic`", "allowed only in serve"],
    );
    assert_kept("echo/src/store/duckdb/writer.rs", "use duckdb::Connection;");
    assert_kept("echo/src/serve.rs", "use crate::store::duckdb::DuckDb;");
    assert_kept(
        "echo/src/store.rs",
        "mod duckdb;\nfn f() { duckdb::open() }",
    );
}

#[test]
fn comments_literals_and_tests_are_not_code() {
    assert_kept(
        "echo/src/ids.rs",
        r##"// use crate::serve::X;
/* async */ const A: &str = "use tokio::x; \" // ";
const B: &str = r#"use crate::serve::Y; " }"#;
const C: [char; 3] = ['"', '\'', '{'];
fn f<'a>(x: &'a str) -> &'a str { x }
#[cfg(test)]
mod tests { use crate::serve::Z; fn f() { std::thread::yield_now() } }
"##,
    );
    assert_kept("echo/src/ids/tests.rs", "use crate::serve::Z;");
    assert_kept("echo/src/ids/tests/peer.rs", "use crate::serve::Z;");
    let after = "#[cfg(test)]\nmod tests { mod a {} }\nuse crate::serve::Z;";
    assert_broken("echo/src/ids.rs", after, &["`serve`"]);
    let child = "#[cfg(test)]\nmod tests;\nuse crate::serve::Z;";
    assert_broken("echo/src/ids.rs", child, &["`serve`"]);
}

#[test]
fn a_long_file_is_found() {
    let found = sizes_and_names(&[Source::new("agent/core/src/event.rs", &"//\n".repeat(401))]);
    assert_eq!(found, ["agent/core/src/event.rs: 401 lines, at most 400"]);
    assert_eq!(
        sizes_and_names(&[Source::new("agent/core/src/event.rs", &"//\n".repeat(400))]),
        [""; 0]
    );
}

#[test]
fn a_long_function_is_found() {
    let function = |lines| {
        let body = "    call(\"}\");\n    // }\n\n".repeat(lines);
        format!(
            "impl X {{\nfn short() {{}}\nfn long(a: [u8; 2]) {{\n{body}}}\n}}\ntrait T {{ fn f(); }}\n"
        )
    };
    let found = sizes_and_names(&[Source::new("proto/src/lib.rs", &function(61))]);
    assert_eq!(
        found,
        ["proto/src/lib.rs: fn long has 61 lines, at most 60"]
    );
    assert_eq!(
        sizes_and_names(&[Source::new("proto/src/lib.rs", &function(60))]),
        [""; 0]
    );
}

#[test]
fn generic_names_are_found() {
    let utils = Source::new("echo/src/store/utils.rs", "");
    let types = Source::new("echo/src/store.rs", "mod types {}");
    let found = sizes_and_names(&[utils, types]);
    assert_eq!(
        found,
        [
            "echo/src/store/utils.rs: `utils` is too generic",
            "echo/src/store.rs: `types` is too generic"
        ]
    );
}
