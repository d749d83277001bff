//! Generated loops: right ranks, wrong ranks, cost.

use echo_analysis::straggler::rule::Rule;

use crate::loops::{KINDS, Kind, generate};
use crate::score::{Result, Shown, Truth, cost, play, score};

/// Smallest loss that has to be found.
const SMALLEST: f64 = 0.07;

fn kinds(seeds: std::ops::Range<u64>, verbose: bool) {
    for kind in KINDS {
        let mut counts = [0; 4];
        let mut costs = Vec::new();
        for seed in seeds.clone() {
            let job = generate(kind, seed, None);
            if job.truth != Truth::Nothing && job.loss < SMALLEST {
                continue;
            }
            let incidents = play(&job.recording, Rule::default());
            let result = score(&incidents, job.truth);
            counts[result as usize] += 1;
            if job.truth != Truth::Nothing && kind != Kind::FirstStep {
                costs.push(cost(&incidents, f64::INFINITY) / job.lost_gpu_s - 1.0);
            }
            if verbose && result != Result::Right {
                println!("  {kind:?} {seed} {result:?}: {} | {}", job.about, Shown(&incidents));
            }
        }
        costs.sort_by(f64::total_cmp);
        let within = costs.iter().filter(|off| off.abs() <= 0.15).count();
        println!(
            "{kind:?}: right {} unnamed {} silent {} wrong {}; cost within 15 %: {within} of {}, median {:+.0} %",
            counts[0],
            counts[1],
            counts[2],
            counts[3],
            costs.len(),
            costs.get(costs.len() / 2).map_or(0.0, |off| 100.0 * off)
        );
    }
}

#[test]
fn generated_loops() {
    kinds(0..10, true);
}
