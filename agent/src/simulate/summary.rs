//! Summary of a simulation, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet_agent_export::delivery::report::Report;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Times from the closing of a batch to its acknowledgement, including its time in the agent's
/// queue and all attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AckTimes {
    /// Median, milliseconds.
    pub p50_ms: f64,
    /// 90th percentile, milliseconds.
    pub p90_ms: f64,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
    /// Maximum, milliseconds.
    pub max_ms: f64,
}

impl AckTimes {
    /// Converts a histogram in microseconds; none when it is empty.
    #[expect(
        clippy::cast_precision_loss,
        reason = "microseconds of an hour are far below 2^53"
    )]
    pub(super) fn from_histogram(times: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        (!times.is_empty()).then(|| Self {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: times.max() as f64 / 1e3,
        })
    }
}

/// Summary of a simulation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Nodes.
    pub nodes: u32,
    /// Agents, each with a connection of its own.
    pub agents: u32,
    /// Ranks.
    pub ranks: u32,
    /// Duration of the job.
    pub simulated: Duration,
    /// Wall time until the last acknowledgement.
    pub took: Duration,
    /// Maximum delay of a poll: above some tens of milliseconds this machine is too slow for the
    /// simulation.
    pub behind: Duration,
    /// Blocks closed, over all ranks and communicators.
    pub blocks: u64,
    /// Points created by the agents.
    pub points_created: u64,
    /// Report of the delivery of points and verdicts.
    pub delivery: Report,
    /// Acknowledgement times; none without an acknowledgement.
    pub acks: Option<AckTimes>,
    /// Failed attempts, by status code.
    pub failures: BTreeMap<String, u64>,
    /// Connections opened after the first of each agent.
    pub reconnects: u64,
}

impl Summary {
    /// Points that were not acknowledged, or were refused.
    pub fn points_lost(&self) -> u64 {
        let delivery = &self.delivery;
        let safe = delivery
            .points_sent
            .saturating_sub(delivery.points_rejected);
        self.points_created.saturating_sub(safe)
    }

    /// Verdicts dropped or refused.
    pub fn verdicts_lost(&self) -> u64 {
        let verdicts = &self.delivery.verdicts;
        verdicts.rejected.saturating_add(verdicts.dropped)
    }

    /// Returns whether every point and every verdict was acknowledged and accepted.
    pub fn is_all_safe(&self) -> bool {
        self.points_lost() == 0 && self.verdicts_lost() == 0
    }

    /// Returns the summary as JSON, with the error that ended the simulation.
    pub fn to_json(&self, error: Option<&str>) -> Value {
        let delivery = &self.delivery;
        json!({
            "nodes": self.nodes,
            "agents": self.agents,
            "ranks": self.ranks,
            "simulated_s": self.simulated.as_secs_f64(),
            "took_s": self.took.as_secs_f64(),
            "behind_ms": millis(self.behind),
            "blocks": self.blocks,
            "points_created": self.points_created,
            "points_acknowledged": delivery.points_sent,
            "points_rejected": delivery.points_rejected,
            "points_dropped": delivery.points_dropped,
            "points_lost": self.points_lost(),
            "all_acknowledged": self.is_all_safe(),
            "reasons": delivery.reasons,
            "batches_acknowledged": delivery.batches_acked,
            "batches_rejected_in_part": delivery.batches_rejected,
            "batches_dropped": delivery.batches_dropped,
            "retries": delivery.retries,
            "failures": self.failures,
            "reconnects": self.reconnects,
            "ack_p50_ms": self.acks.map(|acks| acks.p50_ms),
            "ack_p90_ms": self.acks.map(|acks| acks.p90_ms),
            "ack_p99_ms": self.acks.map(|acks| acks.p99_ms),
            "ack_max_ms": self.acks.map(|acks| acks.max_ms),
            "policy_version": delivery.policy_version,
            "verdicts_sent": delivery.verdicts.sent,
            "verdicts_rejected": delivery.verdicts.rejected,
            "verdicts_dropped": delivery.verdicts.dropped,
            "verdicts_lost": self.verdicts_lost(),
            "error": error,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delivery, .. } = self;
        writeln!(
            f,
            "{} ranks on {} nodes, {} agents: {:.1} s of the job in {:.1} s, at most {:.0} ms late",
            self.ranks,
            self.nodes,
            self.agents,
            self.simulated.as_secs_f64(),
            self.took.as_secs_f64(),
            millis(self.behind)
        )?;
        writeln!(
            f,
            "points: {} made, {} acknowledged in {} batches, {} rejected, {} dropped, {} lost",
            self.points_created,
            delivery.points_sent,
            delivery.batches_acked,
            delivery.points_rejected,
            delivery.points_dropped,
            self.points_lost()
        )?;
        let verdicts = &delivery.verdicts;
        writeln!(
            f,
            "batches: {} rejected in part, {} dropped; verdicts: {} acknowledged, {} rejected, {} dropped",
            delivery.batches_rejected,
            delivery.batches_dropped,
            verdicts.sent,
            verdicts.rejected,
            verdicts.dropped,
        )?;
        if let Some(acks) = self.acks {
            writeln!(
                f,
                "acknowledged after: p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                acks.p50_ms, acks.p90_ms, acks.p99_ms, acks.max_ms
            )?;
        }
        write!(
            f,
            "retries {}, reconnects {}",
            delivery.retries, self.reconnects
        )?;
        for (code, attempts) in &self.failures {
            write!(f, "; {attempts} attempts failed: {code}")?;
        }
        for (reason, points) in &delivery.reasons {
            write!(f, "; {points} points: {reason}")?;
        }
        match (self.points_lost(), self.verdicts_lost()) {
            (0, 0) => write!(f, "\nevery point was acknowledged"),
            (lost, 0) => write!(f, "\n{lost} points were lost"),
            (lost, verdicts) => write!(f, "\n{lost} points and {verdicts} verdicts were lost"),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_was_rejected_or_never_acknowledged_is_lost() {
        let mut summary = Summary {
            points_created: 10,
            ..Summary::default()
        };
        (
            summary.delivery.points_sent,
            summary.delivery.points_rejected,
        ) = (9, 2);
        assert_eq!(summary.points_lost(), 3);
        assert!(summary.to_string().ends_with("3 points were lost"));
        assert_eq!(summary.to_json(None)["all_acknowledged"], false);
    }

    #[test]
    fn a_verdict_that_was_rejected_or_given_up_is_lost_too() {
        let mut summary = Summary::default();
        let verdicts = &mut summary.delivery.verdicts;
        (verdicts.sent, verdicts.rejected, verdicts.dropped) = (5, 2, 1);
        assert_eq!((summary.points_lost(), summary.verdicts_lost()), (0, 3));
        assert!(
            summary
                .to_string()
                .ends_with("0 points and 3 verdicts were lost")
        );
        let json = summary.to_json(None);
        assert_eq!(json["all_acknowledged"], false);
        assert_eq!(json["verdicts_rejected"], 2);
    }

    #[test]
    fn without_an_acknowledgement_there_are_no_times() {
        let empty = Histogram::new(3).unwrap();
        assert_eq!(AckTimes::from_histogram(&empty), None);
        assert_eq!(Summary::default().to_json(None)["ack_p99_ms"], Value::Null);
    }
}
