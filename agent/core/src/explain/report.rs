//! Report on one process.

use crate::captured_file::CapturedFile;
use crate::event::{FunctionDurations, Process, Stack};
use crate::explain::chain::CausalChain;
use crate::explain::observation::Observation;
use crate::statistics::ratio;

/// Share of a period from which the calls of a function are noticeable.
const NOTICEABLE: f64 = 0.001;
/// Maximum number of functions and of stacks that are reported of a process.
const MAX_FUNCTIONS: usize = 8;
const MAX_STACKS: usize = 8;
/// What was found out about one process in one period.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// Its rank; `None` if it has none.
    pub process: Option<Process>,
    /// Start of the period, nanoseconds.
    pub from_ns: u64,
    /// End of the period, nanoseconds.
    pub to_ns: u64,
    /// What was seen.
    pub seen: Observation,
    /// Chains that hold, largest share first.
    pub chains: Vec<CausalChain>,
    /// Files that were made about it.
    pub files: Vec<CapturedFile>,
}

impl ProcessReport {
    /// Returns the functions that took at least a noticeable share of the period, longest first.
    pub fn functions(&self) -> Vec<&FunctionDurations> {
        let period_ns = self.to_ns.saturating_sub(self.from_ns);
        let calls = self.seen.calls.values();
        let mut calls: Vec<&FunctionDurations> = calls
            .filter(|calls| ratio(calls.total_ns, period_ns) >= NOTICEABLE)
            .collect();
        calls.sort_by_key(|calls| std::cmp::Reverse(calls.total_ns));
        calls.truncate(MAX_FUNCTIONS);
        calls
    }

    /// Returns the most frequent stacks with the function that the thread was in and the number of
    /// samples.
    pub fn stacks(&self) -> Vec<(Option<&str>, &Stack, u64)> {
        let stacks = self.seen.stacks.iter();
        let mut stacks: Vec<_> = stacks
            .map(|((call, stack), samples)| (call.as_deref(), stack, *samples))
            .filter(|(.., samples)| *samples > 0)
            .collect();
        stacks.sort_by_key(|(.., samples)| std::cmp::Reverse(*samples));
        stacks.truncate(MAX_STACKS);
        stacks
    }

    /// Returns the number of points that deliver it.
    pub fn n_points(&self) -> usize {
        let of_files: usize = self.files.iter().map(|file| file.parts().len()).sum();
        self.functions().len() + self.stacks().len() + self.chains.len() + of_files
    }

    /// Converts its times.
    pub fn map_times(&mut self, convert: impl Fn(u64) -> u64) {
        for ns in [&mut self.from_ns, &mut self.to_ns] {
            *ns = convert(*ns);
        }
        for chain in &mut self.chains {
            chain.since_ns = convert(chain.since_ns);
        }
    }
}
