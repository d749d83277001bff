//! The MCP conformance suite, and the MCP SDK for Python.

use fleet_test_harness::{NIGHTLY, NPM, PYPI};
use serde_json::Value;

use super::{Lab, client, done, node, python};
use crate::host::report_process;
use crate::testbed::ECHO;

/// Runs the suite against both endpoints, except for the expected failures listed in a file.
fn assert_conforms(which: [&str; 2]) {
    let lab = Lab::new();
    for path in ["/mcp", "/mcp/compat"] {
        let mut suite = node("@modelcontextprotocol/conformance/dist/index.js");
        suite
            .args(["server", "--url", &lab.url(path)])
            .args(which)
            .arg("--expected-failures")
            .arg(client(&format!("conformance-{}.yml", which[1])))
            .arg("--output-dir")
            .arg(lab.folder.path().join("conformance"));
        done(&mut suite, "the conformance suite finds faults");
    }
}

#[test]
#[needs(NIGHTLY, NPM)]
fn the_stateless_protocol_conforms() {
    assert_conforms(["--requirements", "2026-07-28"]);
}

#[test]
#[needs(NIGHTLY, NPM)]
fn the_previous_protocol_conforms() {
    assert_conforms(["--spec-version", "2025-11-25"]);
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn the_sdk_for_python_works_in_all_modes_over_http() {
    let lab = Lab::new();
    for path in ["/mcp", "/mcp/compat"] {
        let mut sdk = python("python");
        sdk.arg(client("mcp_client.py"))
            .args(["http", &lab.url(path)]);
        done(&mut sdk, "the SDK for Python fails");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn the_sdk_for_python_works_in_all_modes_over_standard_input() {
    let lab = Lab::new();
    for flags in [[].as_slice(), &["--compat"]] {
        let mut sdk = python("python");
        sdk.arg(client("mcp_client.py"))
            .args(["stdio", ECHO, "mcp", "--stdio", "--server", &lab.url("")])
            .args(flags);
        done(&mut sdk, "the SDK for Python fails");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn every_tool_accepts_each_argument_that_it_lists() {
    let lab = Lab::new();
    report_process(&lab.echo);
    for path in ["/mcp", "/mcp/compat"] {
        let mut sdk = python("python");
        sdk.arg(client("mcp_tools.py")).arg(lab.url(path));
        let output = done(&mut sdk, "a listed argument is refused");
        let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counts["tools"], 10, "{counts}");
        assert!(counts["calls"].as_u64() > Some(70), "{counts}");
    }
}
