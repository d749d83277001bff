//! JUnit XML output for build pipelines: one test suite with a test case per cluster.

use std::fs;
use std::io;
use std::path::Path;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::cli::assert::case::{Case, Outcome};
use crate::cli::assert::report::line;

/// Writes the file.
pub(super) fn write(name: &str, cases: &[Case], file: &Path) -> io::Result<()> {
    let name = format!("fleet-echo assert {name}");
    let mut suite = TestSuite::new(name.as_str());
    for case in cases {
        let mut test = TestCase::new(case.cluster.as_str(), status(case));
        test.set_classname(name.as_str());
        test.set_system_out(line(case));
        for check in &case.checks {
            let value = check
                .value
                .map_or_else(|| "unknown".to_owned(), |value| value.to_string());
            test.add_property((check.name, value.as_str()));
        }
        suite.add_test_case(test);
    }
    let mut report = Report::new(name);
    report.add_test_suite(suite);
    let text = report.to_string().map_err(io::Error::other)?;
    fs::write(file, text)
}

fn status(case: &Case) -> TestCaseStatus {
    let outcome = case.outcome();
    let mut status = match outcome {
        Outcome::Passed => return TestCaseStatus::success(),
        Outcome::Skipped => TestCaseStatus::skipped(),
        Outcome::Exceeded => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::InvalidRequest | Outcome::Failed | Outcome::Missing => {
            TestCaseStatus::non_success(NonSuccessKind::Error)
        }
    };
    status.set_type(outcome.name());
    status.set_message(case.summary());
    status
}
