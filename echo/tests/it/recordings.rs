//! Detection on six recorded H200 jobs: reported ranks, delay, duration and cost.
//!
//! Only these tests read the truth rows, which contain the measurements of the training loop
//! itself.

#![expect(clippy::cast_precision_loss, reason = "counts of iterations and ranks")]

mod device;
mod map;
mod real_loops;

use serde_json::{Value, json};

use crate::testbed::{Echo, lines, recording, replay_all};

/// Maximum number of iterations until a fault is raised after its start, and cleared after its end:
/// with twice the tolerance 30 s.
const PROMPT: f64 = 30.0;

/// Largest difference from the truth.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Of the start, iterations; ends have twice as much.
    iterations: f64,
    /// Of the cost, as a share.
    cost: f64,
}

/// Two evaluations of 2 s.
const FINE: Tolerance = Tolerance {
    iterations: 5.5,
    cost: 0.15,
};

/// The same if a job synchronises every 20th iteration, or if its ranks have no communicator in common.
const COARSE: Tolerance = Tolerance {
    iterations: 25.5,
    cost: 0.25,
};

/// Number of iterations at the start of a job that are ignored: allocation, compilation,
/// connections.
const WARM_UP: usize = 5;

/// Measurements of the training loop.
struct Truth {
    /// First and last faulty iteration, if a fault was injected.
    fault: Option<(f64, f64)>,
    /// Lost GPU time in milliseconds: increase of the iteration time x ranks x faulty iterations.
    lost_gpu_ms: f64,
}

fn truth(name: &str) -> Truth {
    let rows: Vec<Value> = lines(&recording(name))
        .iter()
        .filter(|line| line.contains("\"truth\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|row: &Value| row["kind"] == "truth")
        .collect();
    let n_ranks = rows.len() as f64;
    let faulty = |row: &Value| row[5].as_f64().unwrap() > 0.0;
    let steps = |rank: &Value| rank["rows"].as_array().unwrap().clone();
    let fault_rows = rows
        .iter()
        .map(steps)
        .find(|steps| steps.iter().any(faulty));
    let fault = fault_rows.map(|steps| {
        let at = |step: Option<&Value>| step.unwrap()[0].as_f64().unwrap();
        (
            at(steps.iter().find(|s| faulty(s))),
            at(steps.iter().rfind(|s| faulty(s))),
        )
    });
    let starts: Vec<f64> = steps(&rows[0])
        .iter()
        .map(|step| step[1].as_f64().unwrap() / 1e6)
        .collect();
    let durations: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let Some((first, last)) = fault else {
        return Truth {
            fault,
            lost_gpu_ms: 0.0,
        };
    };
    let inside = |step: usize| (first..=last).contains(&(step as f64));
    let mean = |pick: &dyn Fn(usize) -> bool| {
        let picked: Vec<f64> = durations
            .iter()
            .enumerate()
            .filter(|(step, _)| pick(*step))
            .map(|(_, ms)| *ms)
            .collect();
        picked.iter().sum::<f64>() / picked.len() as f64
    };
    let healthy = mean(&|step| step >= WARM_UP && (step as f64) < first);
    let during = mean(&inside);
    Truth {
        fault,
        lost_gpu_ms: (during - healthy) * n_ranks * (last - first + 1.0),
    }
}

/// Replays the recording into a new instance. Returns its outliers, with which the map agrees, and
/// its cost.
fn answers(name: &str, speed: &str) -> (Value, Value) {
    answers_and(name, speed, map::assert_agrees)
}

/// Replays the recording into a new instance, checks it, and returns its outliers and cost.
fn answers_and(name: &str, speed: &str, check: impl Fn(&Echo, &str, &Value)) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    for summary in replay_all(&recording(name), &echo, name, speed) {
        assert_eq!(summary["points_rejected"], 0, "{summary}");
        assert_eq!(summary["points_dropped"], 0, "{summary}");
    }
    echo.caught_up();
    let mut outliers = echo.query("find_outlier_nodes", name);
    check(&echo, name, &outliers);
    // The age depends on the current time, everything else on the recording only.
    outliers["data_quality"]["last_event_age_s"] = Value::Null;
    (outliers, echo.query("get_cost", name))
}

fn assert_prompt(incident: &Value, truth: &Truth, tolerance: Tolerance) {
    let (first, last) = truth.fault.unwrap();
    let at = |name: &str| {
        incident[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name}: {incident}"))
    };
    let soon = |after: f64| tolerance.iterations.mul_add(2.0, after + PROMPT);
    assert!(
        at("raised_iteration") >= first,
        "raised before the fault: {incident}"
    );
    assert!(
        at("raised_iteration") <= soon(first),
        "raised late: {incident}"
    );
    assert!(
        (at("first_iteration") - first).abs() <= tolerance.iterations,
        "another start: {incident}"
    );
    assert!(
        at("cleared_iteration") >= last,
        "cleared during the fault: {incident}"
    );
    assert_eq!(incident["occurrences"], 1, "{incident}");
    assert!(
        at("cleared_iteration") <= soon(last),
        "cleared late: {incident}"
    );
    assert_eq!(incident["state"], "cleared", "{incident}");
}

fn assert_cost(cost: &Value, truth: &Truth, tolerance: Tolerance) {
    let lost_gpu_ms = cost["lost_gpu_hours"].as_f64().unwrap() * 3_600_000.0;
    let expected = truth.lost_gpu_ms;
    assert!(
        (lost_gpu_ms - expected).abs() <= tolerance.cost * expected,
        "lost {lost_gpu_ms:.0} ms of GPU time, the training loop {expected:.0} ms"
    );
    assert!(cost["window_total"].as_f64().unwrap() > 0.0, "{cost}");
}

/// Speed of replay at which ranks are received one after another.
const MAX: &str = "max";

/// Speed of replay, as a multiple of the job's, at which all ranks are received at once.
const TOGETHER: &str = "20";

/// Checks that exactly this rank is reported, with one of these classes, in time and with its cost.
/// `echo-bench` tests that the speeds of the ranks change no verdict.
fn assert_reports_only(
    (name, speed): (&str, &str),
    rank: u32,
    classes: &[&str],
    tolerance: Tolerance,
) -> Value {
    let truth = truth(name);
    let (outliers, cost) = answers(name, speed);
    let named = outliers["outliers"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{outliers:#}");
    assert_eq!(named[0]["rank"], rank, "{outliers:#}");
    assert_eq!(named[0]["node_id"], format!("node-{rank}"), "{outliers:#}");
    let class = named[0]["class"].as_str().unwrap();
    assert!(classes.contains(&class), "{class}");
    assert_eq!(outliers["conditions"], json!([]), "{outliers:#}");
    assert_prompt(&named[0], &truth, tolerance);
    assert_cost(&cost, &truth, tolerance);
    outliers
}

/// Returns whether the host evidence of the reported rank has this signal, far above its peers.
fn stands_out(outliers: &Value, signal: &str) -> bool {
    let rows = outliers["outliers"][0]["evidence"].as_array().unwrap();
    rows.iter().any(|row| {
        let rates = row["own"].as_f64().zip(row["peers"].as_f64());
        row["signal"] == signal
            && rates.is_some_and(|(own, peers)| own > 1.05 * peers)
            && row["z"].as_f64() > Some(3.5)
    })
}

#[test]
fn a_rank_that_sleeps_before_its_forward_pass_is_reported() {
    let outliers = assert_reports_only(("host-sleep-rank2", MAX), 2, &["host"], FINE);
    assert!(
        stands_out(&outliers, "fleet.host.off_cpu_ms"),
        "{outliers:#}"
    );
}

#[test]
fn a_rank_that_shares_its_core_with_busy_loops_is_reported() {
    let outliers = assert_reports_only(("cpu-contention-rank1", TOGETHER), 1, &["host"], FINE);
    assert!(
        stands_out(&outliers, "fleet.host.preempted_ms"),
        "{outliers:#}"
    );
}

#[test]
fn a_rank_that_sleeps_in_a_mesh_of_communicators_is_reported() {
    // The clocks of the replay differ by up to 10 s, so the time of the incident is not that of the
    // host, and its blocked time does not always tell.
    assert_reports_only(
        ("mesh-host-sleep-rank3", TOGETHER),
        3,
        &["host", "inconclusive"],
        COARSE,
    );
}

#[test]
fn a_rank_that_sleeps_in_a_job_that_synchronises_every_20th_step_is_reported() {
    assert_reports_only(
        ("nosync-host-sleep-rank0", MAX),
        0,
        &["host", "inconclusive"],
        COARSE,
    );
}

#[test]
fn a_healthy_job_has_no_outliers_no_conditions_and_no_cost() {
    let (outliers, cost) = answers("healthy", TOGETHER);
    assert_eq!(outliers["outliers"], json!([]), "{outliers:#}");
    assert_eq!(outliers["conditions"], json!([]), "{outliers:#}");
    assert_eq!(cost["lost_gpu_hours"], 0.0, "{cost:#}");
    assert_eq!(cost["window_total"], 0.0, "{cost:#}");
}

#[test]
fn a_slow_gpu_without_gpu_timings_is_a_uniform_slowdown_without_outliers() {
    let truth = truth("gpu-extra-rank1");
    let (outliers, cost) = answers("gpu-extra-rank1", MAX);
    assert_eq!(outliers["outliers"], json!([]), "{outliers:#}");
    let conditions = outliers["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{outliers:#}");
    assert_eq!(conditions[0]["kind"], "uniform_slowdown");
    assert_prompt(&conditions[0], &truth, FINE);
    assert_cost(&cost, &truth, FINE);
}
