//! What a set of files shows, as data and as text.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use fleet_hang::{Hang, list};
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::lateness::{LateRank, cause};
use crate::loss::Loss;
use crate::matching::{MatchedGroup, matched};
use crate::trace::RankTrace;
use crate::waiting::{LateTogether, Waiting};

/// File, or part of a file, that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    /// File and reason.
    pub reason: String,
}

/// What a set of files shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Format of the files.
    pub format: Format,
    /// Number of ranks with a file.
    pub files: usize,
    /// Number of ranks of the job, as far as the files show.
    pub world_size: u32,
    /// Ranks of the job without a file.
    pub missing_ranks: Vec<u32>,
    /// Collective operations with a duration.
    pub collectives: usize,
    /// Transfers, by which no rank can be compared.
    pub transfers: u64,
    /// Iterations, if the operations show them.
    pub iterations: Option<usize>,
    /// Operation that some ranks did not join.
    pub hang: Option<Hang>,
    /// Proof that the files were written at different moments of a job that advances.
    #[serde(default)]
    pub advance: Option<String>,
    /// Ranks that usually arrive last in a group, or that pause at some of its operations.
    pub late: Vec<LateRank>,
    /// Ranks that arrive last together, if no single rank does.
    #[serde(default)]
    pub late_together: Option<LateTogether>,
    /// Waiting of the ranks for one another; `None` if none can be compared.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Reason why no rank is judged.
    pub refusal: Option<String>,
    /// What the format cannot show.
    pub cannot_show: Vec<String>,
    /// Files and parts of files that were not read.
    pub skipped: Vec<SkippedFile>,
    /// What was assumed about the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        format: Format,
        traces: &BTreeMap<u32, RankTrace>,
        hang: Hang,
        skipped: Vec<SkippedFile>,
    ) -> Self {
        let grouped = traces.values().flat_map(|trace| trace.groups.values());
        let mut ranks: BTreeSet<u32> = grouped.flatten().copied().collect();
        ranks.extend(traces.keys());
        let declared = traces.values().filter_map(|trace| trace.world_size).max();
        let by_rank = ranks.last().map_or(0, |last| last.saturating_add(1));
        let world_size = declared.unwrap_or(0).max(by_rank);
        let missing = (0..world_size).filter(|rank| !traces.contains_key(rank));
        let mut report = Self {
            format,
            files: traces.len(),
            world_size,
            missing_ranks: missing.take(MAX_RANKS).collect(),
            collectives: traces.values().map(|trace| trace.collectives.len()).sum(),
            transfers: traces.values().map(|trace| trace.n_transfers).sum(),
            iterations: None,
            advance: hang.advance.clone(),
            hang: Some(hang).filter(Hang::is_found),
            late: Vec::new(),
            late_together: None,
            waiting: None,
            refusal: None,
            cannot_show: format.limits().iter().map(ToString::to_string).collect(),
            skipped,
            notes: Vec::new(),
        };
        report.refusal = report.refusal(traces);
        report
    }

    /// Report about recordings of the agent with these ranks.
    pub fn of_recordings(
        ranks: &BTreeSet<u32>,
        world_size: u32,
        skipped: Vec<SkippedFile>,
    ) -> Self {
        let missing = (0..world_size).filter(|rank| !ranks.contains(rank));
        Self {
            format: Format::Recording,
            files: ranks.len(),
            world_size,
            missing_ranks: missing.take(MAX_RANKS).collect(),
            collectives: 0,
            transfers: 0,
            iterations: None,
            hang: None,
            advance: None,
            late: Vec::new(),
            late_together: None,
            waiting: None,
            refusal: None,
            cannot_show: Format::Recording
                .limits()
                .iter()
                .map(ToString::to_string)
                .collect(),
            skipped,
            notes: Vec::new(),
        }
    }

    /// Returns why no rank can be judged, if so.
    fn refusal(&self, traces: &BTreeMap<u32, RankTrace>) -> Option<String> {
        if self.hang.is_some() {
            return None;
        }
        if self.collectives == 0 {
            return Some(match (self.format, &self.advance) {
                (_, Some(advance)) => advance.clone(),
                (Format::FlightRecorder, None) => "no rank waits for another one, and no operation has a duration (TORCH_NCCL_ENABLE_TIMING=1 adds it)".to_owned(),
                (Format::RasStatus | Format::Watchdog, None) => "no rank is behind another one, and nothing tells whether the last operation of all has ended".to_owned(),
                _ if self.transfers > 0 => format!(
                    "no collective operation was found: {} transfers do not tell which rank is late",
                    self.transfers
                ),
                _ => {
                    "no collective operation was found: was the job traced on its GPUs, with NCCL or RCCL?".to_owned()
                }
            });
        }
        if !matched(traces).iter().any(MatchedGroup::is_comparable) {
            if self.format == Format::Nsys {
                return Some("no two GPUs ran the same collective operations to the same ends: give the exports of all hosts, of the same steps".to_owned());
            }
            return Some(format!(
                "{} of {} ranks have a file, and no communicator has enough of its ranks to compare them: give the files of all ranks",
                self.files, self.world_size
            ));
        }
        None
    }

    /// Returns the rank that holds back the others, as far as arrivals and computation tell.
    pub fn cause(&self) -> Option<&LateRank> {
        cause(&self.late)
    }

    /// Returns what the delays of the ranks that arrive last cost; `None` if it is not known which ones hold back
    /// the others.
    pub fn loss(&self) -> Option<Loss> {
        let together = self.late_together.as_ref();
        self.cause()
            .map(Loss::from)
            .or_else(|| together.map(Loss::from))
    }

    /// Returns a sentence about the ranks that arrive last; `None` without such a rank.
    pub fn lateness(&self) -> Option<String> {
        let of_time = |share: Option<f64>| {
            let of_time = |share: f64| format!(", {:.1} % of the traced time", share * 100.0);
            share.map_or_else(String::new, of_time)
        };
        if let Some(late) = &self.late_together {
            return Some(format!(
                "{} arrive last together at {} of {} operations of one kind{}, {:.1} ms behind the others{}",
                late.noun(),
                late.n_last,
                late.n_ops,
                since(late.n_before),
                late.lag_ms,
                of_time(late.time_share)
            ));
        }
        let named: Vec<u32> = self.late.iter().map(|one| one.rank).collect();
        let (first, others) = self.late.split_first()?;
        if others.is_empty() {
            let share = of_time(first.time_share);
            return Some(format!(
                "rank {} arrives last at {} of {} operations of one kind{}, {:.1} ms behind the median of its peers{share}",
                first.rank,
                first.n_last,
                first.n_ops,
                since(first.n_before),
                first.lag_ms
            ));
        }
        let which = self.cause().map_or_else(
            || {
                "durations of collectives alone do not tell which of them holds back the others"
                    .to_owned()
            },
            |cause| {
                format!(
                    "only the GPU of rank {} computed longer than those of its peers",
                    cause.rank
                )
            },
        );
        Some(format!(
            "ranks {} each arrive last in their communicator: one cascade; {which}",
            list(&named)
        ))
    }
}

/// Operations before the first one at which a rank is late, as the end of a clause.
fn since(n_before: usize) -> String {
    match n_before {
        0 => String::new(),
        n => format!(" after the first {n}"),
    }
}

/// Maximum number of missing ranks that are listed.
const MAX_RANKS: usize = 100_000;
