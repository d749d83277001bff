use super::*;

const QUIET: JobParams = JobParams {
    step_ms: 100.0,
    noise: 0.0,
    seed: 1,
};

fn job(mesh: &str, faults: &[&str]) -> Job {
    noisy(mesh, faults, QUIET)
}

fn noisy(mesh: &str, faults: &[&str], params: JobParams) -> Job {
    let mesh: Mesh = mesh.parse().unwrap();
    let n_ranks = mesh.n_ranks().unwrap();
    let layout = Layout::new(n_ranks / 4, 4, Some(mesh), None).unwrap();
    let faults = faults.iter().map(|fault| fault.parse().unwrap());
    Job::new(layout, params, faults.collect())
}

/// Period, host gap and time blocked of every rank in the next step.
fn next(job: &mut Job) -> Vec<[f64; 3]> {
    let seen = job.next_step().iter().map(|rank| {
        let RankStep {
            begin_ms,
            issue_ms,
            wait_ms,
            end_ms,
        } = *rank;
        [end_ms - begin_ms, issue_ms - begin_ms, end_ms - wait_ms]
    });
    seen.collect()
}

#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
}

#[test]
fn a_healthy_step_has_the_requested_duration_in_every_mesh() {
    for mesh in ["1x1x8", "8x1x1", "4x1x8", "4x4x4", "1x2x8"] {
        let mut job = job(mesh, &[]);
        for _ in 0..3 {
            for [period, gap, _] in next(&mut job) {
                assert_near(period, 100.0);
                assert_near(gap, 15.0);
            }
        }
    }
}

#[test]
fn a_late_host_makes_all_others_wait_and_the_period_grow_by_its_lateness() {
    for mesh in ["1x1x8", "4x1x4", "2x2x4"] {
        let mut job = job(mesh, &["host:rank=2,severity=20%"]);
        next(&mut job);
        let seen = next(&mut job);
        for (rank, [period, gap, blocked]) in seen.into_iter().enumerate() {
            assert_near(period, 120.0);
            let is_late = rank == 2;
            assert_near(gap, if is_late { 35.0 } else { 15.0 });
            assert_near(blocked, if is_late { 80.0 } else { 100.0 });
        }
    }
}

#[test]
fn a_slow_device_does_not_change_the_host_gap() {
    let mut job = job("4x1x4", &["device:rank=5,severity=30%"]);
    for [period, gap, blocked] in next(&mut job) {
        assert_near(period, 130.0);
        assert_near(gap, 15.0);
        assert_near(blocked, 110.0);
    }
}

#[test]
fn a_fault_ends_when_it_is_over() {
    let mut job = job("1x1x4", &["uniform:after=150ms,for=100ms,severity=50%"]);
    let periods = [(); 5].map(|()| next(&mut job)[0][0]);
    for (period, expected) in periods.into_iter().zip([100.0, 100.0, 150.0, 100.0, 100.0]) {
        assert_near(period, expected);
    }
}

#[test]
fn slow_transfers_affect_one_group_and_all_ranks_wait_for_it() {
    let mut job = job("2x1x4", &["network:rank=1,severity=10%"]);
    for [period, ..] in next(&mut job) {
        assert_near(period, 110.0);
    }
}

#[test]
fn a_heavier_stage_costs_more_than_one_rank_of_it() {
    let period = |fault| next(&mut job("1x4x4", &[fault]))[0][0];
    assert_near(
        period("stage:rank=1,severity=10%"),
        period("device:rank=1,severity=10%"),
    );
    assert!(period("stage:rank=1,severity=10%") > 109.0);
}

#[test]
fn a_rank_that_hangs_blocks_all_ranks_until_the_fault_is_over() {
    let mut job = job("2x1x4", &["hang:rank=3,after=50ms,for=10s"]);
    next(&mut job);
    let seen = job.next_step().to_vec();
    assert_near(seen[3].issue_ms, 10_050.0);
    assert_near(seen[0].issue_ms, 115.0);
    assert!(seen.iter().all(|rank| rank.end_ms > 10_050.0));
    assert_near(next(&mut job)[0][0], 100.0);
}

#[test]
fn the_same_seed_generates_the_same_job_and_another_one_does_not() {
    let params = JobParams {
        noise: 0.05,
        ..QUIET
    };
    let steps = |seed| {
        let mut job = noisy("2x2x4", &[], JobParams { seed, ..params });
        next(&mut job);
        job.next_step().to_vec()
    };
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}

#[test]
fn no_rank_completes_before_it_has_issued_its_work_and_times_never_decrease() {
    let params = JobParams {
        noise: 0.3,
        ..QUIET
    };
    let mut job = noisy("2x2x4", &["hang:rank=1,after=1s,for=2s"], params);
    let mut ends_ms = vec![0.0; 16];
    for _ in 0..50 {
        for (rank, end_ms) in job.next_step().iter().zip(&mut ends_ms) {
            assert!(rank.begin_ms >= *end_ms && rank.issue_ms >= rank.begin_ms);
            assert!(rank.wait_ms > rank.issue_ms && rank.end_ms >= rank.wait_ms);
            *end_ms = rank.end_ms;
        }
    }
}
