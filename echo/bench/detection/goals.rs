//! Numeric goals of the specification with measured values.

use echo_bench::case::{Case, Sources, Telemetry};
use echo_bench::fault::Expected;
use echo_bench::report::{quantile, share};
use echo_bench::score::{ClassVerdict, Score};

/// Scores of the detector for the cases that each goal is about.
#[derive(Debug, Default)]
pub(crate) struct Goals {
    calm: Score,
    usual: Score,
    severe: Score,
    slight: Score,
    /// Cases with a recall goal, and healthy jobs.
    visible: Score,
    overall: Score,
    days: Score,
    meshes: Score,
    largest: Score,
    classes: Score,
    hosts: Score,
}

impl Goals {
    /// Counts a case for its goals.
    pub(crate) fn add(&mut self, case: &Case, score: &Score) {
        let with_culprit = |expected: Expected| matches!(expected, Expected::Rank(..));
        let about_ranks = case
            .faults
            .iter()
            .all(|fault| with_culprit(fault.expected(case.mesh)));
        if case.name.starts_with("soak") {
            self.days.add(score);
        }
        if !about_ranks || case.telemetry != Telemetry::CLEAN {
            return;
        }
        self.overall.add(score);
        let n_ranks = case.mesh.n_ranks();
        if n_ranks > case.mesh.dp {
            let meshes = if n_ranks > 1_024 {
                &mut self.largest
            } else {
                &mut self.meshes
            };
            meshes.add(score);
        }
        let (cv, rho) = (case.noise.cv, case.noise.rho);
        if is_near(cv, 0.01) {
            self.calm.add(score);
        }
        if is_near(cv, 0.02) && is_near(rho, 0.8) {
            self.usual.add(score);
        }
        let severity = case
            .faults
            .iter()
            .map(|fault| fault.severity)
            .fold(1.0, f64::min);
        let is_slight = is_near(severity, 0.05) && is_near(cv, 0.01);
        if severity >= 0.1 && !case.faults.is_empty() {
            self.severe.add(score);
        }
        if is_slight {
            self.slight.add(score);
        }
        if severity >= 0.1 || is_slight {
            self.visible.add(score);
        }
        match case.sources {
            Sources::Host => self.hosts.add(score),
            Sources::Device | Sources::Both => self.classes.add(score),
        }
    }

    /// The goals as a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let rows = [self.finding(), self.naming(), self.latency_rows()].concat();
        let line = |Row(goal, target, measured)| format!("| {goal} | {target} | {measured} |\n");
        let rows: String = rows.into_iter().map(line).collect();
        format!("### Goals\n\n| goal | target | measured |\n|---|---|---|\n{rows}\n")
    }

    /// Detection rate and false alarms.
    fn finding(&self) -> Vec<Row> {
        // The specification sets a goal for the precision of ranks; conditions have rows of their own.
        let precision = |score: &Score| share(score.found, score.found + score.false_names);
        let of_all = |score: &Score| share(score.found, score.found + score.false_alerts);
        let recall = |score: &Score| share(score.found, score.events);
        let f1_of = Score::f1;
        let per_day = f64::from(self.days.false_alerts) * 1_000.0 / self.days.gpu_days;
        let days = if self.days.gpu_days > 0.0 {
            format!("{per_day:.2} in {:.0} GPU-days", self.days.gpu_days)
        } else {
            "-".to_owned()
        };
        vec![
            Row("precision at cv 1 %", ">= 0.99", precision(&self.calm)),
            Row(
                "precision at cv 2 %, rho 0.8",
                ">= 0.95",
                precision(&self.usual),
            ),
            Row("the same with conditions, cv 1 %", "-", of_all(&self.calm)),
            Row(
                "the same with conditions, cv 2 %, rho 0.8",
                "-",
                of_all(&self.usual),
            ),
            Row(
                "recall from 10 % of the step",
                ">= 0.98",
                recall(&self.severe),
            ),
            Row("recall at 5 %, cv 1 %", ">= 0.90", recall(&self.slight)),
            Row(
                "F1 of the faults of the two rows above",
                ">= 0.95",
                number(f1_of(&self.visible), 3),
            ),
            Row(
                "F1 of all, 3 % under noise of 3 % too",
                "-",
                number(f1_of(&self.overall), 3),
            ),
            Row(
                "false alarms per 1,000 GPUs and day, scatter as in SE",
                "<= 1",
                days,
            ),
        ]
    }

    /// Correctness of the named rank and class.
    fn naming(&self) -> Vec<Row> {
        let top = |score: &Score| share(score.located, score.named);
        let n_classed = |score: &Score| {
            ClassVerdict::ALL
                .map(|verdict| score.classed(verdict))
                .iter()
                .sum()
        };
        let class = |score: &Score, verdict| share(score.classed(verdict), n_classed(score));
        let (device, host) = (&self.classes, &self.hosts);
        vec![
            Row(
                "top-1 in meshes to 1,024 ranks",
                ">= 0.95",
                top(&self.meshes),
            ),
            Row("top-1 at 10,240 ranks", ">= 0.90", top(&self.largest)),
            Row(
                "class right, device source",
                ">= 0.90",
                class(device, ClassVerdict::Right),
            ),
            Row(
                "class inconclusive, device source",
                "<= 0.10",
                class(device, ClassVerdict::Inconclusive),
            ),
            Row(
                "class wrong, host source alone",
                "0",
                class(host, ClassVerdict::Wrong),
            ),
        ]
    }

    /// Detection latency.
    fn latency_rows(&self) -> Vec<Row> {
        let detect = |hundredths| number(quantile(&self.severe.to_detect, hundredths), 0);
        let clear = number(quantile(&self.severe.to_clear, 50), 0);
        vec![
            Row("steps to detect from 10 %, median", "<= 25", detect(50)),
            Row("steps to detect from 10 %, p95", "<= 50", detect(95)),
            Row("steps to clear from 10 %, median", "<= 25", clear),
        ]
    }
}

/// Goal, target and measured value.
#[derive(Debug, Clone)]
struct Row(&'static str, &'static str, String);

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// True when two parameters are equal.
fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}
