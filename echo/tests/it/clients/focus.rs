//! The FOCUS validator of the FinOps Foundation, run on a cost report.

use std::collections::BTreeSet;

use fleet_test_harness::{NIGHTLY, PYPI};

use super::{client, python_with};
use crate::report::{printed, with_a_closed_day};

/// The validator, and the last version of a dependency with an interface that it still uses.
const PACKAGES: [&str; 2] = ["focus-validator==1.0.0", "multimethod<2"];

/// Two nodes with prices of different classes and currencies; the other two have none.
const RATES: &str = "locations: [{ node: node-0, provider: example, region: north }]
rates:
  - { node: node-0, rate_class: spot, rate: 2, currency: EUR, provider: example, region: north }
  - { node: node-1, rate_class: reserved, rate: 2.345678, currency: USD }
";

/// Returns the names of the rules that are expected to fail.
fn expected_failures() -> BTreeSet<String> {
    let text = std::fs::read_to_string(client("focus-validator.yml")).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("  - "));
    names.map(str::to_owned).collect()
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn the_focus_validator_reports_only_its_known_defects() {
    let folder = tempfile::tempdir().unwrap();
    let rates = folder.path().join("rates.yaml");
    std::fs::write(&rates, RATES).unwrap();
    let rates = rates.display().to_string();
    let db = folder.path().join("fleet.duckdb");
    let echo = with_a_closed_day(&db, &["--rates", &rates]);
    let report = folder.path().join("costs.csv");
    let csv = format!(
        "--day 2026-11-01 --format focus-csv --out {}",
        report.display()
    );
    printed(&echo, &csv);
    let output = python_with(&PACKAGES, "focus-validator")
        .args(["--validate-version", "1.0", "--column-namespace", "x_Echo"])
        .arg("--data-file")
        .arg(report)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let failed = stdout
        .lines()
        .filter_map(|line| line.strip_suffix(" failed:"));
    let failed: BTreeSet<String> = failed.map(str::to_owned).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(failed, expected_failures(), "{stdout}\n{error}");
}
