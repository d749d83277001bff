//! schemathesis, which asks what the OpenAPI document allows and what it forbids, and compares the answers with it.

use super::{Lab, client, done, python};

#[test]
#[ignore = "installs packages from PyPI: make clients"]
fn schemathesis_finds_nothing_against_the_served_document() {
    let lab = Lab::new();
    let mut schemathesis = python("schemathesis");
    schemathesis
        .args(["run", &lab.url("/api/v1/openapi.json")])
        .args(["--checks", "all", "--max-examples", "100", "--no-color"])
        // The same questions each time: what others find belongs into a test of its own.
        .arg("--generation-deterministic")
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", client(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(lab.folder.path());
    done(&mut schemathesis, "schemathesis finds faults");
}
