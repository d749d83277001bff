//! Reasons and counts of rejected data points.

use std::collections::BTreeMap;
use std::fmt;

/// Declares the reasons: variant, name on the wire, and message to the sender.
macro_rules! reasons {
    ($($variant:ident, $name:literal, $sentence:literal;)+) => {
        /// Reason why a data point is rejected.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(clippy::doc_markdown, reason = "the sentences are plain text for senders too")]
        pub enum RejectReason {
            $(#[doc = $sentence] $variant,)+
        }

        impl RejectReason {
            /// All reasons, in the order in which they are reported.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name in responses and counters.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the message for the operator of the sender.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)+
                }
            }
        }
    };
}

reasons! {
    MissingCluster, "missing_cluster", "no fleet.cluster.id, ingero.cluster.id or k8s.cluster.name, and no --default-cluster";
    MissingNode, "missing_node", "no fleet.node.id, ingero.node.id, k8s.node.name, host.name, Hostname or node";
    InvalidName, "invalid_name", "a name is not a string, is blank, is longer than 256 bytes, or contains a control or format character";
    RankOutsideWorld, "rank_outside_world", "the rank is not an integer from 0 to below the world size";
    EmptyMetricName, "empty_metric_name", "the metric has no name";
    UnsupportedKind, "unsupported_kind", "the metric is not a gauge, sum, histogram, exponential histogram or summary";
    UnsupportedRecord, "unsupported_record", "the event name of the log record is not fleet.straggler";
    ReservedName, "reserved_name", "the name of the span begins with fleet., ingero. or nccl.collective., which are reserved for metrics";
    MissingLag, "missing_lag", "the log record has no numeric attribute fleet.lag_ms";
    NoValue, "no_value", "the point or one of its exemplars has no value";
    NotFinite, "not_finite", "a value is NaN or infinite";
    TooLarge, "too_large", "the magnitude of a value is above 1e24";
    NegativeDuration, "negative_duration", "a duration is below zero";
    ScoreOutOfRange, "score_out_of_range", "a health score is not between 0 and 1";
    HistogramWithoutSum, "histogram_without_sum", "the histogram has samples but no sum";
    InconsistentHistogram, "inconsistent_histogram", "count, sum, min and max of the distribution contradict each other";
    ImplausibleTime, "implausible_time", "a time is missing, before 2020 or after 2099, or the start is after the end";
    TimeInFuture, "time_in_future", "the time is more than one day ahead of the clock of the collector";
    InvalidComm, "invalid_comm", "nccl.comm_id_hash is not a string of up to 16 hexadecimal digits";
    InvalidSequence, "invalid_sequence", "a sequence number is negative or not an integer, or the range is incomplete or empty";
    InvalidRole, "invalid_role", "fleet.role is not a string of up to 16 hexadecimal digits";
    InvalidIterations, "invalid_iterations", "fleet.iterations is not a number above zero";
    InvalidSource, "invalid_source", "fleet.source is neither host nor device";
    TooManySeries, "too_many_series", "the series (metric, unit, communicator, operation, role) is new, and the limit of the collector or the token is reached (--max-series)";
    TooManySenders, "too_many_senders", "the rank or node is new, and the sender limit of the collector, the token or the cluster is reached (--max-senders)";
    TooManyClusters, "too_many_clusters", "the cluster is new, and the cluster limit of the collector or the token is reached (--max-clusters)";
    AttributesTooLarge, "attributes_too_large", "the attributes are larger than 16 KiB for one point or 32 MiB for one request";
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of points of a request, and of rejected points by reason. Displays as the message to the
/// sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejections {
    points: u64,
    counts: BTreeMap<RejectReason, u64>,
}

impl Rejections {
    /// Returns the number of points in the request, accepted or not.
    pub const fn points(&self) -> u64 {
        self.points
    }

    /// Returns the number of rejected points.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of points rejected for this reason.
    pub fn count(&self, reason: RejectReason) -> u64 {
        self.counts.get(&reason).copied().unwrap_or_default()
    }

    /// Returns the reasons that occurred, with their numbers of points.
    pub fn iter(&self) -> impl Iterator<Item = (RejectReason, u64)> {
        self.counts.iter().map(|(&reason, &count)| (reason, count))
    }

    pub(super) fn count_point(&mut self) {
        self.points += 1;
    }

    pub(super) fn reject(&mut self, reason: RejectReason) {
        *self.counts.entry(reason).or_default() += 1;
    }
}

impl fmt::Display for Rejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rejected {} of {} points", self.total(), self.points)?;
        for (index, (reason, count)) in self.iter().enumerate() {
            let separator = if index == 0 { ":" } else { "," };
            write!(
                f,
                "{separator} {count} {} ({})",
                reason.name(),
                reason.sentence()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fleet_proto::attribute;

    use super::{RejectReason, Rejections};

    #[test]
    fn the_message_counts_points_by_reason() {
        let mut rejections = Rejections::default();
        for _ in 0..10 {
            rejections.count_point();
        }
        rejections.reject(RejectReason::NotFinite);
        rejections.reject(RejectReason::MissingCluster);
        rejections.reject(RejectReason::MissingCluster);
        assert_eq!(
            rejections.to_string(),
            "rejected 3 of 10 points: \
             2 missing_cluster (no fleet.cluster.id, ingero.cluster.id or k8s.cluster.name, and no --default-cluster), \
             1 not_finite (a value is NaN or infinite)"
        );
    }

    #[test]
    fn names_of_reasons_are_distinct_snake_case() {
        let names: BTreeSet<_> = RejectReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), RejectReason::ALL.len());
        for name in names {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
        }
    }

    #[test]
    fn a_missing_identity_is_explained_by_every_name_it_could_have() {
        for name in attribute::CLUSTER_ID {
            assert!(RejectReason::MissingCluster.sentence().contains(name));
        }
        for name in attribute::NODE_ID {
            assert!(RejectReason::MissingNode.sentence().contains(name));
        }
    }
}
