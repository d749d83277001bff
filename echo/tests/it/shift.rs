//! A shift of two hours around midnight: three jobs at once, a new price, a kill, a backup, a start from it, and a hang.
//! What Echo says that it cost is compared with the clocks of the jobs.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::report::printed;
use crate::testbed::{ECHO, Echo, agent, recording, summary, wait_for};

/// Largest difference of a figure from that by the job's own clock, as a share.
const TOLERANCE: f64 = 0.15;

/// Prices of a GPU for an hour before and after midnight.
const RATES: &str = "\
rates:
  - { gpu_model: H100 SXM, rate_class: reserved, rate: 2.00, currency: USD, effective_from: 2026-01-01, effective_to: 2026-11-02 }
  - { gpu_model: H100 SXM, rate_class: reserved, rate: 5.00, currency: USD, effective_from: 2026-11-02 }
";

/// Job of four ranks, each on a node of its own.
struct Job {
    name: &'static str,
    recording: &'static str,
    begins: &'static str,
    /// What it lost by its own clock, GPU-seconds.
    lost_gpu_s: f64,
    /// Price of a GPU for an hour.
    rate: f64,
}

/// Before midnight, at once.
const EVENING: [Job; 3] = [
    Job {
        name: "training",
        recording: "four-gpus/localsgd-sleep2",
        begins: "2026-11-01T22:30:00Z",
        lost_gpu_s: 43.9,
        rate: 2.0,
    },
    Job {
        name: "fine-tuning",
        recording: "cpu-contention-rank1",
        begins: "2026-11-01T22:30:05Z",
        lost_gpu_s: 32.0,
        rate: 2.0,
    },
    Job {
        name: "evaluation",
        recording: "healthy",
        begins: "2026-11-01T22:30:10Z",
        lost_gpu_s: 0.0,
        rate: 2.0,
    },
];

/// After midnight.
const NIGHT: Job = Job {
    name: "pretraining",
    recording: "host-sleep-rank2",
    begins: "2026-11-02T00:20:00Z",
    lost_gpu_s: 25.9,
    rate: 5.0,
};

fn serve(db: &Path, rates: &Path) -> Echo {
    let rates = rates.to_str().unwrap();
    Echo::serve_with(db, &["--rates", rates, "--cost-grace", "0s"])
}

/// Starts an agent for each rank.
fn start(job: &Job, echo: &Echo) -> Vec<Child> {
    let start = |rank: u32| {
        let mut command = Command::new(agent());
        command.arg("replay").arg(recording(job.recording));
        command.args(["--endpoint", &format!("http://{}", echo.otlp)]);
        command.args(["--cluster", "prod", "--job", job.name]);
        command.args(["--only-rank", &rank.to_string()]);
        command.args(["--node", &format!("{}-{rank}", job.name)]);
        command.args(["--gpu-model", "H100 SXM", "--start-at", job.begins]);
        command.args(["--clock-skew", "1s", "--speed", "20", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..4).map(start).collect()
}

fn run(jobs: &[Job], echo: &Echo) {
    let agents: Vec<Child> = jobs.iter().flat_map(|job| start(job, echo)).collect();
    for agent in agents {
        let summary = summary(&agent.wait_with_output().unwrap());
        assert_eq!(summary["points_rejected"], 0, "{summary}");
        assert_eq!(summary["points_dropped"], 0, "{summary}");
    }
    echo.caught_up();
}

fn assert_near(what: &str, found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= TOLERANCE * expected,
        "{what}: {found:.4}, by the clock of the job {expected:.4}"
    );
}

/// Checks what each job lost in time and money, and that the sum has nothing else.
fn assert_costs(echo: &Echo, jobs: &[&Job]) {
    let cost = echo.query("get_cost", "prod");
    let by_job = cost["by_job"].as_array().unwrap();
    for job in jobs {
        let row = by_job.iter().find(|row| row["job"] == job.name);
        let figure = |name: &str| row.map_or(0.0, |row| row[name].as_f64().unwrap());
        let lost_gpu_hours = job.lost_gpu_s / 3_600.0;
        assert_near(job.name, figure("lost_gpu_hours"), lost_gpu_hours);
        assert_near(job.name, figure("cost"), lost_gpu_hours * job.rate);
    }
    let expected = jobs.iter().map(|job| job.lost_gpu_s / 3_600.0 * job.rate);
    let total = cost["window_total"].as_f64().unwrap();
    assert_near("all jobs", total, expected.sum());
}

/// Returns ranks and jobs of the reported incidents.
fn reported(echo: &Echo) -> Vec<(String, u64)> {
    let outliers = echo.query("find_outlier_nodes", "prod");
    let rows = outliers["outliers"].as_array().unwrap();
    let mut named: Vec<(String, u64)> = rows
        .iter()
        .map(|row| {
            (
                row["job"].as_str().unwrap().to_owned(),
                row["rank"].as_u64().unwrap(),
            )
        })
        .collect();
    named.sort();
    named
}

/// Returns the cost of stragglers of a closed day.
fn cost_of_day(echo: &Echo, day: &str) -> f64 {
    let report = || -> Value {
        let printed = printed(echo, &format!("--day {day} --format json --allow-open"));
        serde_json::from_str(&printed).unwrap()
    };
    wait_for("the hours to be closed", || {
        let rows = report();
        let revised = rows["metadata"]["hours_revised_soon"].as_array();
        revised.is_some_and(Vec::is_empty) && rows["metadata"]["n_rows"] != 0
    });
    let csv = printed(echo, &format!("--day {day} --format csv --allow-open"));
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<std::collections::BTreeMap<String, String>> =
        reader.deserialize().map(Result::unwrap).collect();
    let costs = rows
        .iter()
        .filter_map(|row| row["lost_cost"].parse::<f64>().ok());
    costs.sum()
}

#[test]
fn the_figures_of_a_shift_agree_with_the_clocks_of_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("rates.yaml"), RATES).unwrap();
    let (db, rates) = (path("fleet.duckdb"), path("rates.yaml"));

    let echo = serve(&db, &rates);
    run(&EVENING, &echo);
    let evening: Vec<&Job> = EVENING.iter().collect();
    assert_costs(&echo, &evening);
    let named = [("fine-tuning".to_owned(), 1), ("training".to_owned(), 2)];
    assert_eq!(reported(&echo), named);
    echo.kill();

    // After the kill the figures are the same, and another job changes none.
    let echo = serve(&db, &rates);
    run(&[NIGHT], &echo);
    let all: Vec<&Job> = EVENING.iter().chain([&NIGHT]).collect();
    assert_costs(&echo, &all);

    // Upgrade: a backup of the running instance, from which the next one starts.
    let copy = path("copy.duckdb");
    let backup = Command::new(ECHO)
        .arg("backup")
        .arg(&copy)
        .arg("--db")
        .arg(&db)
        .output();
    let backup = backup.unwrap();
    assert!(backup.status.success(), "{backup:?}");
    assert_eq!(echo.terminate(), 0);
    let echo = serve(&copy, &rates);
    assert_costs(&echo, &all);

    // The report of each day has its jobs at its price.
    for (day, jobs) in [("2026-11-01", &evening[..]), ("2026-11-02", &[&NIGHT])] {
        let expected = jobs.iter().map(|job| job.lost_gpu_s / 3_600.0 * job.rate);
        assert_near(day, cost_of_day(&echo, day), expected.sum());
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_hang_of_a_minute_costs_a_minute_of_each_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve_with(&db, &["--hang-after", "5s"]);
    let mut command = Command::new(agent());
    command.arg("simulate");
    command.args(["--endpoint", &format!("http://{}", echo.otlp)]);
    command.args(["--cluster", "prod", "--nodes", "4", "--ranks-per-node", "1"]);
    command.args(["--step", "200ms", "--interval", "1s", "--speed", "4"]);
    command.args([
        "--duration",
        "100s",
        "--fault",
        "hang:rank=3,after=20s,for=60s",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    echo.caught_up();
    let cost = || echo.query("get_cost", "prod");
    wait_for("the hang to end", || {
        let outliers = echo.query("find_outlier_nodes", "prod");
        let hangs = outliers["conditions"].as_array().unwrap();
        hangs
            .iter()
            .any(|one| one["kind"] == "hang" && one["state"] == "cleared")
            || cost()["by_kind"].to_string().contains("hang")
    });
    let cost = cost();
    let lost_gpu_s = cost["lost_gpu_hours"].as_f64().unwrap() * 3_600.0;
    assert_near("the hang", lost_gpu_s, 4.0 * 60.0);
    assert_eq!(cost["window_total"], Value::Null, "without rates");
}
