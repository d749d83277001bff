//! Class of a cause, by evidence. It explains a finding and never decides it.

use echo_core::stats::median;

/// Class of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The host is late: the rank's GPU has nothing queued, while the queues of all others grow.
    Host,
    /// The GPU is late: it works longer between operations, and the leads stay alike.
    Device,
    /// The operations themselves take longer, and nobody is late.
    Network,
    /// The evidence does not tell.
    Unknown,
}

/// Growth of the shortest operations above which transfers are slow. Their spread in the recorded
/// healthy jobs is below 15 %.
const SLOW_TRANSFER: f64 = 1.25;

/// Share of the typical lead of the others below which a rank's own is dry.
const DRY: f64 = 0.5;

/// Class of a named rank by the leads of all ranks during the loss (seconds, NaN if unknown).
pub(super) fn of_rank(rank: usize, leads: &[f64]) -> Class {
    let others = leads.iter().enumerate();
    let others: Vec<f64> = others
        .filter(|(other, lead)| *other != rank && lead.is_finite())
        .map(|(_, lead)| *lead)
        .collect();
    let own = leads.get(rank).filter(|lead| lead.is_finite());
    match (own, median(&others)) {
        (Some(own), Some(others)) if *own < DRY * others => Class::Host,
        (Some(_), Some(_)) => Class::Device,
        _ => Class::Unknown,
    }
}

/// Class of a loss that no rank explains: the network if transfers cover the share `explain` of it
/// and the shortest operations grew.
pub(super) fn of_uniform(loss: f64, transfer: f64, growth: f64, explain: f64) -> Class {
    if transfer >= explain * loss && growth >= SLOW_TRANSFER {
        Class::Network
    } else {
        Class::Unknown
    }
}
