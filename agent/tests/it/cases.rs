//! Traces of the shapes that public reports have, in `testdata/cases`: who is late, from when on, and what it costs.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_import::report::Report;
use serde_json::Value;

/// What is right about the folders of one case.
struct Truth {
    case: &'static str,
    folders: &'static [&'static str],
    ranks: &'static [u32],
    /// Number of operations before the first late one.
    n_before: usize,
    /// Loss of all GPUs, GPU-seconds: number of delays, length of each in seconds and number of GPUs.
    loss: [f64; 3],
}

/// Rank 2 computes 8 ms longer in each of 30 steps of four ranks.
const USUAL: Truth = Truth {
    case: "",
    folders: &[],
    ranks: &[2],
    n_before: 0,
    loss: [30.0, 0.008, 4.0],
};

const TRUTHS: [Truth; 12] = [
    Truth {
        case: "late-rank",
        folders: &["."],
        ..USUAL
    },
    Truth {
        case: "damaged-event",
        folders: &[
            "bad-escape",
            "bad-utf8",
            "control-char",
            "inf",
            "info-unescaped",
            "na",
            "nan",
            "neg-elems",
            "null-dur",
            "null-name",
            "odd-args",
            "string-rank",
        ],
        ..USUAL
    },
    Truth {
        case: "cut-off",
        folders: &["all-ranks", "one-rank"],
        loss: [26.0, 0.008, 4.0],
        ..USUAL
    },
    Truth {
        case: "rank-from-a-name",
        folders: &["iterations", "model-with-a-dot", "sglang"],
        ..USUAL
    },
    Truth {
        case: "rank-from-a-name",
        folders: &["pids", "same-pid-two-hosts"],
        ranks: &[1],
        loss: [30.0, 0.008, 2.0],
        ..USUAL
    },
    Truth {
        case: "kernels-without-an-operation",
        folders: &[
            "alltoall-by-sendrecv",
            "rccl-generic-alone",
            "rccl-generic-annotated",
        ],
        ..USUAL
    },
    Truth {
        case: "symmetric-kernels",
        folders: &["symdev", "symk"],
        ..USUAL
    },
    Truth {
        case: "other-kernels",
        folders: &[
            "category-Kernel",
            "lower-case",
            "multimem-all-reduce",
            "vllm-cross-device-reduce",
        ],
        ..USUAL
    },
    Truth {
        case: "several-windows",
        folders: &["folder-per-iteration", "two-windows"],
        ..USUAL
    },
    Truth {
        case: "inspector-dialects",
        folders: &[
            "accl-without-id",
            "control-v4.0",
            "flat",
            "time-with-a-fraction",
            "v4.3-header-in-the-marker",
        ],
        loss: [40.0, 0.008, 4.0],
        ..USUAL
    },
    Truth {
        case: "pauses",
        folders: &["each-tenth-from-step-60"],
        ranks: &[0],
        n_before: 69,
        loss: [14.0, 0.4, 8.0],
    },
    Truth {
        case: "half-late",
        folders: &["two-nodes-of-8-20ms"],
        ranks: &[8, 9, 10, 11, 12, 13, 14, 15],
        n_before: 20,
        loss: [40.0, 0.02, 16.0],
    },
];

fn case(path: &str) -> PathBuf {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/cases");
    cases.join(path)
}

/// What the agent reports about a folder or a file.
fn report(path: &Path) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_fleet-agent"))
        .args(["import", "--endpoint", "none", "--cluster", "lab", "--json"])
        .arg(path)
        .output()
        .unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(summary["report"].clone()).unwrap()
}

/// Ranks that are late, and the number of operations before the first late one.
fn late(report: &Report) -> (Vec<u32>, usize) {
    if let Some(all) = &report.late_together {
        return (all.ranks.clone(), all.n_before);
    }
    let ranks = report.late.iter().map(|one| one.rank);
    (ranks.collect(), report.late[0].n_before)
}

fn assert_true(truth: &Truth, folder: &str) {
    let path = case(truth.case).join(folder);
    let report = report(&path);
    let why = path.display();
    assert_eq!(
        late(&report),
        (truth.ranks.to_vec(), truth.n_before),
        "{why}"
    );
    let expected: f64 = truth.loss.iter().product();
    let found = report.loss().unwrap().gpu_s;
    assert!(
        (found / expected - 1.0).abs() < 0.02,
        "{why}: {found} instead of {expected}"
    );
}

#[test]
fn late_ranks_are_named_and_priced_in_traces_of_every_shape() {
    for truth in &TRUTHS {
        for folder in truth.folders {
            assert_true(truth, folder);
        }
    }
}

#[test]
fn exports_of_nsight_systems_with_kernels_that_name_no_operation_name_the_late_gpu() {
    for folder in [
        "kernels-without-an-operation/nsys-rccl-generic",
        "symmetric-kernels/nsys",
    ] {
        let report = report(&case(folder));
        assert_eq!(late(&report), (vec![1], 0), "{folder}");
        assert!((report.late[0].lag_ms - 8.0).abs() < 0.1, "{folder}");
    }
}

#[test]
fn what_was_assumed_about_a_kernel_without_an_operation_is_said() {
    let report = report(&case("kernels-without-an-operation/rccl-generic-alone"));
    let assumed = "120 kernels of RCCL that do not name their operation: assumed to be all-reduces";
    assert!(
        report.notes.iter().any(|note| note.starts_with(assumed))
            || report
                .cannot_show
                .iter()
                .any(|limit| limit.starts_with(assumed)),
        "{report:?}"
    );
}
