//! The MCP inspector, which checks tools for incompatibilities with common clients.

use fleet_test_harness::{NIGHTLY, NPM};
use serde_json::Value;

use super::{Lab, done, node};

#[test]
#[needs(NIGHTLY, NPM)]
fn the_inspector_accepts_the_tools() {
    let lab = Lab::new();
    for path in ["/mcp", "/mcp/compat"] {
        for era in ["modern", "legacy", "auto"] {
            let mut inspector =
                node("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
            inspector
                .args([
                    "--cli",
                    "--server-url",
                    &lab.url(path),
                    "--transport",
                    "http",
                ])
                .args(["--protocol-era", era, "--format", "json"])
                .args(["--method", "tools/list", "--strict"]);
            let output = done(&mut inspector, "the inspector finds faults");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.trim().is_empty(), "{path} {era}: {stderr}");
            let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(listed["result"]["tools"].is_array(), "{listed}");
        }
    }
}
