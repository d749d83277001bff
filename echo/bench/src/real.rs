//! Recorded jobs of real workloads, with the ranks and conditions that should be reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::model::detector_output::ConditionKind;

use super::alert::{Alert, ECHO, Incidents, RuleTracker, Subject};
use super::delivery::Delivery;
use super::recordings;
use super::rule::Rule;
use super::window::RecentBlocks;

/// A recorded job.
#[derive(Debug, Clone, Copy)]
pub struct RealJob {
    /// Its name, which is its file.
    pub name: &'static str,
    /// Expected rank.
    pub rank: Option<u32>,
    /// Expected conditions, in order.
    pub conditions: &'static [ConditionKind],
}

impl RealJob {
    const fn with_culprit(name: &'static str, rank: u32) -> Self {
        Self {
            name,
            rank: Some(rank),
            conditions: &[],
        }
    }

    const fn healthy_job(name: &'static str) -> Self {
        Self::with_conditions(name, &[])
    }

    const fn with_conditions(name: &'static str, conditions: &'static [ConditionKind]) -> Self {
        Self {
            name,
            rank: None,
            conditions,
        }
    }
}

/// All jobs: six recordings of hosts, one of GPUs, then three of both.
pub const JOBS: [RealJob; 10] = [
    RealJob::healthy_job("recordings/healthy.jsonl.gz"),
    RealJob::with_culprit("recordings/host-sleep-rank2.jsonl.gz", 2),
    RealJob::with_culprit("recordings/cpu-contention-rank1.jsonl.gz", 1),
    RealJob::with_culprit("recordings/mesh-host-sleep-rank3.jsonl.gz", 3),
    RealJob::with_culprit("recordings/nosync-host-sleep-rank0.jsonl.gz", 0),
    RealJob::with_conditions(
        "recordings/gpu-extra-rank1.jsonl.gz",
        &[ConditionKind::UniformSlowdown],
    ),
    RealJob::healthy_job("recordings/device/healthy.jsonl.gz"),
    RealJob::with_culprit("recordings/four-gpus/graphs-neighbour2.jsonl.gz", 2),
    RealJob::with_culprit("recordings/four-gpus/localsgd-sleep2.jsonl.gz", 2),
    RealJob::with_culprit("recordings/four-gpus/pp2dp2-cpu3.jsonl.gz", 3),
];

/// Ranks and conditions that a method reported in a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedSubjects {
    /// Ranks.
    pub ranks: BTreeSet<u32>,
    /// Conditions.
    pub conditions: BTreeSet<ConditionKind>,
}

impl NamedSubjects {
    fn from_alerts(alerts: &[Alert]) -> Self {
        let mut named = Self::default();
        for alert in alerts {
            match alert.subject {
                Subject::Rank(rank) => named.ranks.insert(rank),
                Subject::Condition(kind) => named.conditions.insert(kind),
            };
        }
        named
    }

    /// True when exactly the expected subjects were reported.
    pub fn is_exact(&self, job: &RealJob) -> bool {
        self.ranks.iter().copied().eq(job.rank) && self.conditions.iter().eq(job.conditions)
    }
}

impl std::fmt::Display for NamedSubjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranks = self.ranks.iter().map(|rank| format!("rank {rank}"));
        let conditions = self.conditions.iter().map(|kind| kind.name().to_owned());
        let words: Vec<String> = ranks.chain(conditions).collect();
        match words.len() {
            0 => f.write_str("none"),
            1..=4 => f.write_str(&words.join(", ")),
            more => write!(f, "{more} names"),
        }
    }
}

/// Reads the job as deliveries.
pub fn deliveries(job: &RealJob, testdata: &Path) -> anyhow::Result<Vec<Delivery>> {
    recordings::read(&testdata.join(job.name), recordings::BLOCK_NS)
}

/// Runs each method on the job, whose file is in `testdata`.
pub fn run(
    job: &RealJob,
    testdata: &Path,
) -> anyhow::Result<BTreeMap<&'static str, NamedSubjects>> {
    let deliveries = deliveries(job, testdata)?;
    let mut detector = Detector::new(Settings::default());
    let mut incidents = Incidents::default();
    let mut recent = RecentBlocks::default();
    let mut trackers = Rule::ALL.map(RuleTracker::new);
    for Delivery { step, events } in deliveries {
        incidents.observe(&detector.observe(&events), step);
        recent.add(&events);
        let cohorts = recent.cohorts();
        for tracker in &mut trackers {
            tracker.observe(&cohorts, step);
        }
    }
    let mut named = BTreeMap::from([(ECHO, NamedSubjects::from_alerts(&incidents.into_alerts()))]);
    for tracker in trackers {
        named.insert(
            tracker.rule().name(),
            NamedSubjects::from_alerts(&tracker.into_alerts()),
        );
    }
    Ok(named)
}

/// Table of the reported subjects of every job, in Markdown.
pub fn markdown(jobs: &[RealJob], testdata: &Path) -> anyhow::Result<String> {
    let mut methods = vec![ECHO];
    methods.extend(Rule::ALL.map(Rule::name));
    let columns = "---|".repeat(methods.len() + 2);
    let mut lines = vec![
        "### Jobs that really ran\n".to_owned(),
        format!("| job | truth | {} |\n|{columns}", methods.join(" | ")),
    ];
    for job in jobs {
        let named = run(job, testdata)?;
        let truth = NamedSubjects {
            ranks: job.rank.into_iter().collect(),
            conditions: job.conditions.iter().copied().collect(),
        };
        let cells = methods
            .iter()
            .filter_map(|method| named.get(method))
            .map(|subjects| {
                let mark = if subjects.is_exact(job) {
                    " (exact)"
                } else {
                    ""
                };
                format!("{subjects}{mark}")
            });
        let cells: Vec<String> = cells.collect();
        lines.push(format!(
            "| {} | {truth} | {} |",
            job.name,
            cells.join(" | ")
        ));
    }
    Ok(lines.join("\n") + "\n")
}
