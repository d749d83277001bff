//! Reasons of incidents, in one sentence.

use echo_core::model::event::Source;
use echo_core::text::decimal;

use crate::straggler::class::Class;
use crate::straggler::incident::{Finding, Incident as Found};

/// Duration of an iteration, milliseconds; `None` where the job has no iterations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Periods {
    pub(super) usual_ms: f64,
    pub(super) current_ms: f64,
}

/// Waiting below which a reason does not state it, milliseconds per second: it would read as 0.
const LEAST_WAITED: f64 = 0.5;

/// Reason of an incident. `subject` names the ranks that it is about.
pub(super) fn reason(
    found: &Found,
    (subject, source): (&str, Source),
    periods: Option<Periods>,
) -> String {
    if found.is_closed && found.pieces.is_empty() {
        return format!(
            "withdrawn: what was lost while {subject} was reported belongs to another incident of this job"
        );
    }
    let waited = decimal(found.waited_ms_per_s, 0);
    let loss = periods.map_or_else(
        || {
            let times = 1.0 / (1.0 - found.loss).max(0.01);
            format!(
                "operations take {} times as long as usual",
                decimal(times, 2)
            )
        },
        |periods| {
            format!(
                "an iteration takes {} ms instead of {} ms",
                decimal(periods.current_ms, 1),
                decimal(periods.usual_ms, 1)
            )
        },
    );
    match (&found.finding, found.class) {
        (Finding::Rank(_), _) if found.late_ms > 0.0 => format!(
            "{subject} holds back the job: its host enqueues operations {} ms later than the others, beyond the usual, and {loss}",
            decimal(found.late_ms, 1)
        ),
        (Finding::Rank(_) | Finding::Node(..), _) => {
            let verb = if matches!(found.finding, Finding::Rank(_)) {
                "holds"
            } else {
                "hold"
            };
            if found.waited_ms_per_s < LEAST_WAITED {
                return format!("{subject} {verb} back the job: {loss}");
            }
            format!(
                "{subject} {verb} back the job: each of its peers waits {waited} ms per second for it beyond the usual, and {loss}"
            )
        }
        (Finding::LateWithoutPast(_), _) => format!(
            "{subject} is late: each of its peers waits {waited} ms per second for it. No healthy past of the job is known, so the loss is a lower bound"
        ),
        (Finding::UniformSlowdown, Class::Network) => {
            format!("{loss}: the operations themselves take longer, and no rank is late")
        }
        (Finding::UniformSlowdown | Finding::Stall(_), _) if source == Source::Host => format!(
            "{loss}, and the waiting for no rank's host explains it: all ranks, the network or the input slowed down, or a GPU, which only the NCCL profiler plugin would show"
        ),
        (Finding::UniformSlowdown | Finding::Stall(_), _) => format!(
            "{loss}, and the waiting for no rank explains it: all ranks, the network or the input slowed down"
        ),
    }
}

#[cfg(test)]
mod tests {
    use echo_core::units::Nanos;

    use super::*;
    use crate::straggler::block::{NodeKey, ProcessKey};
    use crate::straggler::incident::RankOfJob;

    #[test]
    fn waiting_that_would_read_as_zero_is_not_stated() {
        let rank = RankOfJob {
            rank: Some(1),
            process: ProcessKey(1),
            node: NodeKey(1),
        };
        let reason = |waited_ms_per_s| {
            let found = Found {
                number: 0,
                finding: Finding::Rank(rank),
                class: Class::Unknown,
                since: Nanos::EARLIEST,
                known: Nanos::EARLIEST,
                until: Nanos::EARLIEST,
                is_closed: false,
                lost_gpu_s: 5.0,
                loss: 0.5,
                waited_ms_per_s,
                late_ms: 0.0,
                pieces: Vec::new(),
            };
            reason(&found, ("rank 1", Source::Host), None)
        };
        assert!(reason(1.0).contains("waits 1 ms per second"));
        assert_eq!(
            reason(0.2),
            "rank 1 holds back the job: operations take 2.00 times as long as usual"
        );
    }
}
