//! schemathesis, which sends requests that the OpenAPI document allows or forbids, and checks the
//! responses.

use fleet_test_harness::{NIGHTLY, PYPI};

use super::{Lab, client, done, python};

#[test]
#[needs(NIGHTLY, PYPI)]
fn responses_conform_to_the_served_openapi_document() {
    let lab = Lab::new();
    let mut schemathesis = python("schemathesis");
    schemathesis
        .arg("--config-file")
        .arg(client("schemathesis.toml"))
        .args(["run", &lab.url("/api/v1/openapi.json")])
        .args(["--checks", "all", "--max-examples", "100", "--no-color"])
        // Sends the same requests in each run; other findings need separate tests.
        .arg("--generation-deterministic")
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", client(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(lab.folder.path());
    done(&mut schemathesis, "schemathesis finds faults");
}
