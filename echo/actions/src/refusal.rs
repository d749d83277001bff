//! Reasons why an action is not permitted.

/// Reason why an action is not permitted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The kill switch is on.
    KillSwitch,
    /// The confidence is below the limit.
    LowConfidence,
    /// Too few ranks of the cluster report.
    LowCoverage,
    /// The detector is behind the events.
    Behind,
    /// More nodes of the cluster qualify than may be acted on at a time.
    NodeLimit,
    /// Too many deliveries wait for the consumer.
    QueueFull,
    /// The name of the node could mean something else to the consumer.
    UnsafeName,
}

impl Refusal {
    /// Name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillSwitch => "refused_kill_switch",
            Self::LowConfidence => "refused_low_confidence",
            Self::LowCoverage => "refused_low_coverage",
            Self::Behind => "refused_behind",
            Self::NodeLimit => "refused_node_limit",
            Self::QueueFull => "refused_queue_full",
            Self::UnsafeName => "refused_unsafe_name",
        }
    }
}
