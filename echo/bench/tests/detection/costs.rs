//! Reported cost of recorded jobs, compared with their true cost.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::model::detector_output::LostTime;
use serde_json::Value;

use crate::jobs::detected;
use crate::truth;
use echo_bench::real::{JOBS, RealJob};

/// Lost time of a job, as the detector reports it.
struct JobLosses {
    /// Last row of each interval, as in the store.
    rows: Vec<LostTime>,
}

impl JobLosses {
    fn measure(job: &RealJob) -> Self {
        let mut rows = BTreeMap::new();
        for row in detected(job).lost {
            let (from, to) = (row.interval.from(), row.interval.to());
            rows.insert((row.incident, row.node.clone(), from, to), row);
        }
        Self {
            rows: rows.into_values().collect(),
        }
    }

    fn lost_gpu_ms(&self) -> f64 {
        self.rows.iter().map(|row| row.lost_gpu_ms).sum()
    }
}

fn job(name: &str) -> &'static RealJob {
    let mut jobs = JOBS.iter();
    jobs.find(|job| job.name.contains(name)).unwrap()
}

/// True cost of a recording, GPU-milliseconds: extra time of the steps with the fault, summed over
/// all ranks and steps.
fn truth_gpu_ms(name: &str) -> f64 {
    let ranks = truth::ranks(name);
    let faulty = truth::faulty_steps(&ranks);
    ranks.iter().map(|rows| lost_ms(rows, &faulty)).sum()
}

/// Extra time of the steps with the fault on one rank, milliseconds.
fn lost_ms(rows: &[Value], faulty: &BTreeSet<i64>) -> f64 {
    let begin_ms = |row: &Value| row[1].as_f64().unwrap() / 1e6;
    let (mut slow, mut usual) = (Vec::new(), Vec::new());
    for pair in rows.windows(2) {
        let took = begin_ms(&pair[1]) - begin_ms(&pair[0]);
        if faulty.contains(&pair[0][0].as_i64().unwrap()) {
            slow.push(took);
        } else {
            usual.push(took);
        }
    }
    usual.sort_by(f64::total_cmp);
    let healthy = usual[usual.len() / 2];
    slow.iter().map(|took| took - healthy).sum()
}

/// Recorded jobs whose cost differs from that by their own clocks by at least this share.
fn wrong_costs(names: &[&str], most: f64) -> Vec<String> {
    let wrong = names.iter().filter_map(|name| {
        let found = JobLosses::measure(job(name)).lost_gpu_ms() / 1e3;
        let truth = truth_gpu_ms(name) / 1e3;
        let is_right = (found / truth - 1.0).abs() < most;
        (!is_right).then(|| format!("{name}: {found:.1} GPU-s instead of {truth:.1}"))
    });
    wrong.collect()
}

#[test]
fn the_cost_of_recorded_jobs_is_within_15_percent_of_their_own_clocks() {
    let names = [
        "host-sleep-rank2",
        "cpu-contention-rank1",
        "mesh-host-sleep-rank3",
        "gpu-extra-rank1",
    ];
    assert_eq!(wrong_costs(&names, 0.15), [""; 0]);
}

#[test]
fn the_cost_of_a_job_that_synchronises_every_20th_step_is_within_20_percent() {
    // Its healthy past contains three synchronisations.
    assert_eq!(wrong_costs(&["nosync-host-sleep-rank0"], 0.2), [""; 0]);
}

#[test]
fn the_cost_of_recorded_jobs_with_gpu_times_is_within_15_percent() {
    // By the clocks of the jobs: testdata/recordings/README.md.
    for (name, truth) in [
        ("graphs-neighbour2", 55.9),
        ("localsgd-sleep2", 43.9),
        ("pp2dp2-cpu3", 40.2),
    ] {
        let found = JobLosses::measure(job(name)).lost_gpu_ms() / 1e3;
        assert!(
            (found / truth - 1.0).abs() < 0.15,
            "{name}: {found} GPU-s instead of {truth}"
        );
    }
}

#[test]
fn a_healthy_job_has_no_cost() {
    assert!(JobLosses::measure(job("healthy")).rows.is_empty());
}

#[test]
fn no_gpu_loses_more_than_the_elapsed_time() {
    for job in &JOBS {
        let mut intervals: BTreeMap<_, (f64, f64)> = BTreeMap::new();
        for row in JobLosses::measure(job).rows {
            let interval = (row.node.clone(), row.interval.from(), row.interval.to());
            let (lost, elapsed) = intervals.entry(interval).or_default();
            *lost += row.lost_gpu_ms;
            *elapsed = row.interval.millis() * f64::from(row.n_ranks);
            let waited = row.peer_wait_gpu_ms.unwrap_or(0.0);
            assert!(waited <= row.lost_gpu_ms.max(0.0) + 1e-6, "{row:?}");
        }
        for (interval, (lost, elapsed)) in intervals {
            assert!(
                lost <= elapsed + 1e-6,
                "{} {interval:?}: {lost} of {elapsed}",
                job.name
            );
        }
    }
}
