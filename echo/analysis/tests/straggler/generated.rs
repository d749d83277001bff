//! Generated loops: right ranks, wrong ranks, cost.

use echo_analysis::straggler::incident::Finding;
use echo_analysis::straggler::rule::Rule;

use crate::loops::{KINDS, Kind, generate};
use crate::score::{Score, Shown, Truth, cost, play, score};

/// Smallest mean loss that has to be found.
fn smallest(kind: Kind) -> f64 {
    match kind {
        // Without a past the waiting has to exceed that of healthy jobs.
        Kind::FirstStep => 0.35,
        // Twice the mean at its end; four times.
        Kind::Growing | Kind::Intermittent => 0.12,
        _ => 0.07,
    }
}

fn kinds(seeds: std::ops::Range<u64>, verbose: bool) {
    for kind in KINDS {
        let mut counts = [0; 4];
        let mut costs = Vec::new();
        for seed in seeds.clone() {
            let job = generate(kind, seed, None);
            if job.truth != Truth::Nothing && job.loss < smallest(kind) {
                continue;
            }
            let incidents = play(&job.recording, Rule::default());
            let result = score(&incidents, job.truth);
            counts[result as usize] += 1;
            if job.truth != Truth::Nothing && kind != Kind::FirstStep {
                costs.push(cost(&incidents, f64::INFINITY) / job.lost_gpu_s - 1.0);
            }
            if verbose && result != Score::Right {
                println!(
                    "  {kind:?} {seed} {result:?}: {} | {}",
                    job.about,
                    Shown(&incidents)
                );
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

#[test]
#[ignore = "minutes"]
fn generated_loops_with_many_seeds() {
    kinds(0..100, true);
}

#[test]
#[ignore = "minutes"]
fn false_alarms_of_healthy_loops() {
    for kind in KINDS.into_iter().take(8).chain([Kind::Checkpoint]) {
        let (mut hours, mut alarms, mut named) = (0.0, 0, 0);
        for seed in 0..12 {
            let seconds = 3_600.0;
            let job = generate(kind, 1_000 + seed, Some(seconds));
            let incidents = play(&job.recording, Rule::default());
            hours += seconds / 3_600.0;
            alarms += incidents.len();
            named += incidents
                .iter()
                .filter(|one| one.finding != Finding::UniformSlowdown)
                .count();
            if !incidents.is_empty() {
                println!("  {kind:?} {seed}: {} | {}", job.about, Shown(&incidents));
            }
        }
        println!("{kind:?}: {alarms} alarms, {named} with a name, in {hours:.0} hours of a job");
    }
}

#[test]
#[ignore = "one case"]
fn one_generated_loop() {
    for (kind, seed) in [
        (Kind::Uniform, 1),
        (Kind::Uniform, 5),
        (Kind::Uniform, 20),
        (Kind::Uniform, 37),
    ] {
        let job = generate(kind, seed, None);
        println!("{}", job.about);
        let incidents = play(&job.recording, Rule::default());
        println!("{}", Shown(&incidents));
    }
}
