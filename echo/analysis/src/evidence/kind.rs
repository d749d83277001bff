//! Kinds of host evidence: their units and words.

use std::borrow::Cow;

use echo_core::text::decimal;
use fleet_proto::metric;

/// Unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds per iteration.
    Millis,
    /// Bytes per iteration.
    Bytes,
    /// Times per iteration.
    Count,
}

impl Unit {
    /// Name in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Millis => "ms per iteration",
            Self::Bytes => "bytes per iteration",
            Self::Count => "per iteration",
        }
    }

    /// Smallest distance that is significant, and smallest scale.
    pub(super) const fn floor(self) -> f64 {
        match self {
            Self::Millis | Self::Count => 0.1,
            Self::Bytes => 4_096.0,
        }
    }

    pub(super) fn write(self, rate: f64) -> String {
        match self {
            Self::Millis => format!("{} ms", decimal(rate, 1)),
            Self::Bytes if rate.abs() >= 1e6 => format!("{} MB", decimal(rate / 1e6, 1)),
            Self::Bytes => format!("{} kB", decimal(rate / 1e3, 1)),
            Self::Count => decimal(rate, 1),
        }
    }
}

/// Position of the kind in a sentence: before the rate ("preempted 14.7 ms") or after it ("12.0
/// preemptions").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phrase {
    Before(&'static str),
    After(Cow<'static, str>),
}

/// Known kinds: description, unit, and phrase in a sentence.
static KINDS: [(&str, &str, Unit, Phrase); 19] = [
    (
        metric::OFF_CPU,
        "time its threads were blocked",
        Unit::Millis,
        before("off the CPU"),
    ),
    (
        metric::PREEMPTED,
        "time its threads were runnable but not running",
        Unit::Millis,
        before("preempted"),
    ),
    (
        metric::PREEMPTIONS,
        "times that its threads were preempted",
        Unit::Count,
        after("preemptions"),
    ),
    (
        metric::MEMCPY,
        "bytes copied between host and device",
        Unit::Bytes,
        before("copied"),
    ),
    (
        metric::LAUNCHES,
        "kernels launched",
        Unit::Count,
        after("kernel launches"),
    ),
    (
        metric::PAGE_ALLOCATIONS,
        "memory pages allocated",
        Unit::Count,
        after("page allocations"),
    ),
    (
        metric::BLOCK_IO,
        "time of block I/O",
        Unit::Millis,
        before("block I/O"),
    ),
    (
        metric::TCP_RETRANSMITS,
        "TCP segments retransmitted",
        Unit::Count,
        after("TCP retransmits"),
    ),
    (
        metric::THROTTLED,
        "time the clocks of its GPU were reduced",
        Unit::Millis,
        before("GPU clocks reduced"),
    ),
    (
        metric::GPU_SHARED,
        "time other processes computed on its GPU",
        Unit::Millis,
        before("GPU shared"),
    ),
    (
        metric::RDMA_ERRORS,
        "RDMA packets lost or retransmitted",
        Unit::Count,
        after("RDMA errors"),
    ),
    (
        metric::CGROUP_THROTTLED,
        "time its control group was throttled at its CPU quota, summed over CPUs",
        Unit::Millis,
        before("throttled at its CPU quota"),
    ),
    (
        metric::INTERRUPT,
        "time of interrupts on the CPUs of its threads",
        Unit::Millis,
        before("interrupted"),
    ),
    (
        metric::LOCK,
        "time its threads were blocked on locks",
        Unit::Millis,
        before("blocked on locks"),
    ),
    (
        metric::PAGE_FAULT,
        "time its threads were blocked in page faults",
        Unit::Millis,
        before("blocked in page faults"),
    ),
    (
        metric::NETWORK_WAIT,
        "time its threads were blocked on sockets",
        Unit::Millis,
        before("blocked on sockets"),
    ),
    (
        metric::PRESSURE_CPU,
        "time tasks of its control group waited for a CPU",
        Unit::Millis,
        before("CPU pressure"),
    ),
    (
        metric::PRESSURE_MEMORY,
        "time tasks of its control group waited for memory",
        Unit::Millis,
        before("memory pressure"),
    ),
    (
        metric::PRESSURE_IO,
        "time tasks of its control group waited for I/O",
        Unit::Millis,
        before("I/O pressure"),
    ),
];

const fn before(phrase: &'static str) -> Phrase {
    Phrase::Before(phrase)
}

const fn after(phrase: &'static str) -> Phrase {
    Phrase::After(Cow::Borrowed(phrase))
}

/// Description of a kind, its unit, and its phrase in a sentence.
pub(super) fn kind(name: &str) -> (Cow<'static, str>, Unit, Phrase) {
    let known = KINDS.iter().find(|(metric, ..)| *metric == name);
    match known {
        Some((_, meaning, unit, phrase)) => (Cow::Borrowed(*meaning), *unit, phrase.clone()),
        None => unknown_kind(name),
    }
}

/// Describes a kind that only a later agent knows, with the unit in its name.
fn unknown_kind(name: &str) -> (Cow<'static, str>, Unit, Phrase) {
    let short = name.strip_prefix(metric::HOST_EVIDENCE).unwrap_or(name);
    let (short, unit) = match (short.strip_suffix("_ms"), short.strip_suffix("_bytes")) {
        (Some(short), _) => (short, Unit::Millis),
        (None, Some(short)) => (short, Unit::Bytes),
        (None, None) => (short, Unit::Count),
    };
    let words = short.replace('_', " ");
    (
        Cow::Owned(words.clone()),
        unit,
        Phrase::After(Cow::Owned(words)),
    )
}
