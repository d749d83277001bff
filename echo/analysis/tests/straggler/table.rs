//! Recorded jobs with their truths.

use std::path::{Path, PathBuf};

use echo_analysis::straggler::block::ProcessKey;
use echo_analysis::straggler::rule::Rule;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::recording::Recording;
use crate::score::{Result, Shown, Truth, cost, play, score};

/// Recorded job.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    truth: Truth,
    /// GPU time lost until `until_s`, seconds, where it is known.
    lost_gpu_s: Option<f64>,
    /// End of the fault, seconds.
    until_s: f64,
}

const fn case(name: &'static str, truth: Truth) -> Case {
    Case {
        name,
        truth,
        lost_gpu_s: None,
        until_s: f64::INFINITY,
    }
}

const fn priced(name: &'static str, truth: Truth, lost_gpu_s: f64, until_s: f64) -> Case {
    Case {
        name,
        truth,
        lost_gpu_s: Some(lost_gpu_s),
        until_s,
    }
}

const ALL: f64 = f64::INFINITY;

const CASES: [Case; 19] = [
    priced("ddp-sleep2", Truth::Rank(2), 46.6, ALL),
    priced("pp2dp2-cpu3", Truth::Rank(3), 40.2, ALL),
    priced("graphs-neighbour2", Truth::Rank(2), 55.9, 54.0),
    priced("localsgd-sleep2", Truth::Rank(2), 43.9, ALL),
    priced("lit-workers2", Truth::Rank(2), 27.9, ALL),
    priced("ddp-onoff0", Truth::Rank(0), 29.7, ALL),
    priced("ddp-all", Truth::Uniform, 62.1, ALL),
    case("ddp-start1", Truth::Late(1)),
    case("hf-fsdp-neighbour1", Truth::Nothing),
    priced("ddp-spin1", Truth::Stall(1), 205.1, ALL),
    priced("hf-ddp-loader1", Truth::Rank(1), 14.3, ALL),
    priced("attached-hf-ddp-loader1", Truth::Rank(1), 14.3, ALL),
    priced("ga4-loader1", Truth::Rank(1), 12.2, 39.8),
    priced("fsdp-cpu1", Truth::Rank(1), 22.6, 40.0),
    priced("attached-fsdp-cpu1", Truth::Rank(1), 22.6, 40.0),
    priced("pp-cpu1", Truth::Rank(1), 9.3, ALL),
    priced("ddp4-pulse3", Truth::Rank(3), 5.9, ALL),
    priced("lit-neighbour0", Truth::Rank(0), 5.1, ALL),
    case("evals10-healthy", Truth::Nothing),
];

fn folder() -> PathBuf {
    match option_env!("STRAGGLER_RECORDINGS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/straggler"),
    }
}

#[test]
fn recordings_as_they_are() {
    for case in CASES {
        let recording = Recording::read(&folder().join(format!("{}.gz", case.name)));
        let incidents = play(&recording, Rule::default());
        let result = score(&incidents, case.truth);
        let lost = cost(&incidents, case.until_s);
        let off = case
            .lost_gpu_s
            .map_or(0.0, |truth| 100.0 * (lost / truth - 1.0));
        println!(
            "{:24} k={} {result:?} {off:+.0} % {}",
            case.name,
            recording.k,
            Shown(&incidents)
        );
        assert!(result < Result::Wrong || true);
    }
}

/// Variations of one recording.
fn variations(recording: &Recording) -> Vec<(String, Recording)> {
    let mut all = Vec::new();
    for k in 0..=5 {
        if k >= recording.k {
            all.push((format!("k={k}"), recording.in_blocks(k)));
        }
    }
    for seconds in [0.25, 1.0, 5.0] {
        all.push((format!("{seconds} s"), recording.in_blocks_of(seconds)));
    }
    for seed in 0..3 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lossy = recording.with(|block| rng.random_bool(0.9).then_some(block));
        all.push((format!("10 % missing, {seed}"), lossy));
    }
    let reversed = recording.with(|mut block| {
        block.process = ProcessKey(99 - block.process.0);
        Some(block)
    });
    all.push(("reversed".to_owned(), reversed));
    all
}

#[test]
fn recordings_in_any_form() {
    let mut counts = [0; 4];
    for case in CASES {
        let recording = Recording::read(&folder().join(format!("{}.gz", case.name)));
        for (what, recording) in variations(&recording) {
            let incidents = play(&recording, Rule::default());
            let result = score(&incidents, case.truth);
            counts[result as usize] += 1;
            let lost = cost(&incidents, case.until_s);
            let off = case
                .lost_gpu_s
                .map_or(0.0, |truth| 100.0 * (lost / truth - 1.0));
            if result != Result::Right || off.abs() > 15.0 {
                println!(
                    "{:24} {what:20} {result:?} {off:+.0} % {}",
                    case.name,
                    Shown(&incidents)
                );
            }
        }
    }
    println!("{counts:?}");
}

#[test]
fn debug_pieces() {
    for (name, k) in [("ddp-onoff0", 3), ("lit-workers2", 4)] {
        {
            let recording = Recording::read(&folder().join(format!("{name}.gz")));
            for incident in play(&recording.in_blocks(k), Rule::default()) {
                println!("{name} k={k} {}", Shown(std::slice::from_ref(&incident)));
                for piece in incident.pieces {
                    print!(
                        "{:.1}-{:.1}: {:.1}; ",
                        crate::score::seconds(piece.from),
                        crate::score::seconds(piece.to),
                        piece.lost_gpu_s
                    );
                }
                println!();
            }
        }
    }
}
