//! Recorded jobs with their truths (testdata/straggler/README.md).

use std::path::{Path, PathBuf};

use echo_analysis::straggler::block::ProcessKey;
use echo_analysis::straggler::incident::Incident;
use echo_analysis::straggler::rule::Rule;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::recording::Recording;
use crate::score::{Score, Shown, Truth, cost, play, score};

/// Recorded job.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    truth: Truth,
    /// Result that is asked for.
    least: Score,
    /// GPU time lost until `until_s`, seconds, where it is known.
    lost_gpu_s: Option<f64>,
    /// End of the fault, seconds.
    until_s: f64,
}

const fn case(name: &'static str, truth: Truth) -> Case {
    Case {
        name,
        truth,
        least: Score::Right,
        lost_gpu_s: None,
        until_s: f64::INFINITY,
    }
}

impl Case {
    const fn lost(self, lost_gpu_s: f64) -> Self {
        Self {
            lost_gpu_s: Some(lost_gpu_s),
            ..self
        }
    }

    /// The job stays slower after the fault, which ends here.
    const fn until(self, until_s: f64) -> Self {
        Self { until_s, ..self }
    }

    /// The reference does not find it either.
    const fn at_least(self, least: Score) -> Self {
        Self { least, ..self }
    }
}

/// All recorded jobs. Those for which less than the right answer is asked are missed by the reference
/// rule as well.
const CASES: [Case; 25] = [
    case("ddp-sleep2", Truth::Rank(2)).lost(46.6),
    case("pp2dp2-cpu3", Truth::Rank(3)).lost(40.2),
    case("graphs-neighbour2", Truth::Rank(2))
        .lost(55.9)
        .until(54.0),
    case("localsgd-sleep2", Truth::Rank(2)).lost(43.9),
    case("lit-workers2", Truth::Rank(2)).lost(27.9),
    case("ddp-onoff0", Truth::Rank(0)).lost(29.7),
    case("decode-cpu1", Truth::Rank(1)).at_least(Score::Unnamed),
    case("ddp-all", Truth::Uniform).lost(62.1),
    case("ddp-start1", Truth::Late(1)),
    case("hf-fsdp-neighbour1", Truth::Nothing),
    case("ddp-spin1", Truth::Stall(1)).lost(205.1),
    case("hf-ddp-loader1", Truth::Rank(1)).lost(14.3),
    case("ga4-loader1", Truth::Rank(1)).lost(12.2).until(39.8),
    case("fsdp-cpu1", Truth::Rank(1)).lost(22.6).until(40.0),
    case("pp-cpu1", Truth::Rank(1)).lost(9.3),
    case("ddp4-pulse3", Truth::Rank(3)).at_least(Score::Silent),
    case("lit-neighbour0", Truth::Rank(0)).at_least(Score::Silent),
    case("evals10-healthy", Truth::Nothing),
    case("pp-neighbour0", Truth::Rank(0)).lost(17.3),
    case("pp2-neighbour0", Truth::Rank(0)).lost(18.3),
    case("ddp4-loader2", Truth::Rank(2)).lost(32.6),
    case("ddp4-stop1", Truth::Stall(1))
        .lost(87.5)
        .at_least(Score::Unnamed),
    case("h200-healthy", Truth::Nothing),
    case("h200-host-sleep-rank2", Truth::Rank(2)).lost(12.8),
    case("h200-gpu-extra-rank1", Truth::Rank(1)).at_least(Score::Silent),
];

/// Largest error of a cost, for recordings as they are and in any form.
const COST_ERROR: f64 = 0.15;
const COST_ERROR_OF_FORMS: f64 = 0.20;

fn folder() -> PathBuf {
    option_env!("STRAGGLER_RECORDINGS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/straggler"),
        PathBuf::from,
    )
}

fn read(case: &Case) -> Recording {
    Recording::read(&folder().join(format!("{}.gz", case.name)))
}

/// Relative error of the cost; 0 where the truth is unknown.
fn cost_error(case: &Case, incidents: &[Incident]) -> f64 {
    let lost = cost(incidents, case.until_s);
    case.lost_gpu_s.map_or(0.0, |truth| lost / truth - 1.0)
}

/// Plays a recording; returns the line of the table and whether it is as good as asked.
fn judge(case: &Case, what: &str, recording: &Recording, rule: Rule) -> (String, bool) {
    let error = if what.is_empty() {
        COST_ERROR
    } else {
        COST_ERROR_OF_FORMS
    };
    let incidents = play(recording, rule);
    let result = score(&incidents, case.truth);
    let off = cost_error(case, &incidents);
    let is_good = result <= case.least && off.abs() <= error;
    let line = format!(
        "{:26} {what:18} {result:?} {:+.0} % {}",
        case.name,
        100.0 * off,
        Shown(&incidents)
    );
    (line, is_good)
}

#[test]
fn the_culprit_of_each_recording_is_named_and_priced() {
    let mut bad = Vec::new();
    for case in CASES {
        let (line, is_good) = judge(&case, "", &read(&case), Rule::default());
        println!("{line}");
        bad.extend((!is_good).then_some(line));
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}

#[test]
fn a_rank_without_cpu_time_that_loses_its_times_is_named_by_what_was_compared_before() {
    let case = case("decode-cpu1", Truth::Rank(1)).lost(25.4);
    let (line, is_good) = judge(&case, "", &read(&case), Rule::default());
    assert!(is_good, "{line}");
}

/// Other block lengths, missing rows, other order of the ranks, drifting clocks.
fn variations(recording: &Recording) -> Vec<(String, Recording)> {
    let mut all = Vec::new();
    for k in recording.k..=recording.k.max(5) {
        all.push((format!("k={k}"), recording.in_blocks(k)));
    }
    for seconds in [0.25, 1.0, 5.0] {
        all.push((format!("{seconds} s"), recording.in_blocks_of(seconds)));
    }
    for seed in 0..3 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lossy = recording.with(|block| rng.random_bool(0.9).then_some(block));
        all.push((format!("10 % missing, {seed}"), lossy));
    }
    let reversed = recording.in_order(|mut block| {
        block.process = ProcessKey(99 - block.process.0);
        block
    });
    all.push(("reversed".to_owned(), reversed));
    let drifting = recording.in_order(|mut block| {
        let ppm = if block.process.0 % 2 == 0 { 50 } else { -50 };
        let since = block.end.value() - crate::recording::ORIGIN.value();
        block.end = block
            .end
            .offset(since / 1_000_000 * ppm + ppm * 100_000_000);
        block
    });
    all.push(("the same, kept by agents".to_owned(), drifting.kept()));
    all.push(("clocks +-5 s, 50 ppm".to_owned(), drifting));
    all
}

#[test]
fn the_answer_depends_neither_on_blocks_nor_on_missing_rows_nor_on_clocks() {
    let mut bad = Vec::new();
    let mut runs = 0;
    // The recordings of 8 s are stretched as it is.
    for case in CASES.iter().filter(|case| !case.name.starts_with("h200")) {
        for (what, recording) in variations(&read(case)) {
            // A stall is over before what agents have kept is evaluated.
            if recording.is_kept && matches!(case.truth, Truth::Stall(..)) {
                continue;
            }
            let (line, is_good) = judge(case, &what, &recording, Rule::default());
            runs += 1;
            bad.extend((!is_good).then_some(line));
        }
    }
    println!("{runs} runs, {} not as asked", bad.len());
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}

/// Sets one constant.
type Setter = fn(&mut Rule) -> &mut f64;

/// Every constant with its name.
const CONSTANTS: [(&str, Setter); 23] = [
    ("window_s", |rule| &mut rule.window_s),
    ("need_s", |rule| &mut rule.need_s),
    ("allowance", |rule| &mut rule.allowance),
    ("enough_s", |rule| &mut rule.enough_s),
    ("steady_s", |rule| &mut rule.steady_s),
    ("least_allowance", |rule| &mut rule.least_allowance),
    ("most_allowance", |rule| &mut rule.most_allowance),
    ("allowance_sigmas", |rule| &mut rule.allowance_sigmas),
    ("enough_per_sigma_s", |rule| &mut rule.enough_per_sigma_s),
    ("enough_peaks", |rule| &mut rule.enough_peaks),
    ("root", |rule| &mut rule.root),
    ("explain", |rule| &mut rule.explain),
    ("explain_set", |rule| &mut rule.explain_set),
    ("explain_all", |rule| &mut rule.explain_all),
    ("memory_s", |rule| &mut rule.memory_s),
    ("rise_sigmas", |rule| &mut rule.rise_sigmas),
    ("dry", |rule| &mut rule.dry),
    ("wet", |rule| &mut rule.wet),
    ("quiet_s", |rule| &mut rule.quiet_s),
    ("1 - alone", |rule| &mut rule.alone),
    ("healthy_wait", |rule| &mut rule.healthy_wait),
    ("stall_s", |rule| &mut rule.stall_s),
    ("stall_operations", |rule| &mut rule.stall_operations),
];

#[test]
#[ignore = "a report"]
fn each_constant_halved_and_raised_by_half() {
    for (name, constant) in &CONSTANTS {
        for factor in [0.5, 1.5] {
            let mut rule = Rule::default();
            let value = constant(&mut rule);
            *value = if *name == "1 - alone" {
                1.0 - factor * (1.0 - *value)
            } else {
                factor * *value
            };
            for case in CASES {
                let recording = read(&case);
                let usual = score(&play(&recording, Rule::default()), case.truth);
                let (line, _) = judge(&case, &format!("{name} x {factor}"), &recording, rule);
                if score(&play(&recording, rule), case.truth) != usual {
                    println!("{line}");
                }
            }
        }
    }
}
