//! Class of a cause: the host, the device, the network, or several at once.
//!
//! Transfer and skew are told apart by durations alone (CCL-D, PPoPP'26): `P = (Tmax - Tmin) / (Tmax - Tbase)` is near 1
//! when somebody is late and near 0 when all are slow together. Whether a late rank's host or device is at fault shows in
//! its host gap: a device that is late although its host was not is late by itself.

use crate::analysis::assembly::CohortBlock;
use crate::analysis::baseline::History;
use crate::analysis::lag::{Lag, Lags};
use crate::model::conclusion::{CauseClass, Signal};
use crate::stats::median;

/// `P` from which on slow collectives are explained by late ranks alone, and below which by slow transfers.
const ALL_SKEW: f64 = 0.8;
const ALL_TRANSFER: f64 = 0.2;

/// How much longer than usual a transfer must take to be slow.
const SLOW_TRANSFER: f64 = 1.1;

/// Share of a rank's lateness that its host must account for to be the cause.
const HOST_SHARE: f64 = 0.5;

/// What the collectives of a window are slow by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// Share of late ranks in it, 0 to 1.
    pub skew: f64,
    /// Time of the pure transfer against the usual one.
    pub transfer_ratio: f64,
}

impl Slowness {
    /// Median over the window's transfers whose usual duration is known.
    pub fn of(blocks: &[&CohortBlock], history: &History) -> Option<Self> {
        let (mut skews, mut ratios) = (Vec::new(), Vec::new());
        for transfer in blocks.iter().flat_map(|block| &block.transfers) {
            let Some(base) = history.transfer_ms(transfer.comm, transfer.op.as_ref()) else {
                continue;
            };
            let means = transfer
                .ranks
                .values()
                .filter_map(|(summary, _)| summary.mean());
            let (least, most) = means.fold((f64::MAX, f64::MIN), |(least, most), mean| {
                (least.min(mean), most.max(mean))
            });
            if most > base && base > 0.0 && least <= most {
                skews.push(((most - least) / (most - base)).clamp(0.0, 1.0));
                ratios.push(least / base);
            }
        }
        Some(Self {
            skew: median(&skews)?,
            transfer_ratio: median(&ratios)?,
        })
    }

    /// Whether transfers are slow and no late rank explains it.
    pub fn is_network(self) -> bool {
        self.skew <= ALL_TRANSFER && self.transfer_ratio > SLOW_TRANSFER
    }

    fn is_mixed(self) -> bool {
        self.skew > ALL_TRANSFER && self.skew < ALL_SKEW && self.transfer_ratio > SLOW_TRANSFER
    }
}

/// Class of the cause that makes a rank late. `gaps` are the host gaps of the same window, when the agents saw them.
pub fn class_of(
    late: &Lag,
    damage_ms: Option<f64>,
    gaps: Option<&Lags>,
    slowness: Option<Slowness>,
) -> CauseClass {
    if late.signal != Signal::DeviceWait {
        return CauseClass::Host;
    }
    if slowness.is_some_and(Slowness::is_mixed) {
        return CauseClass::Mixed;
    }
    let gap = gaps.and_then(|gaps| gaps.ranks.iter().find(|lag| lag.rank == late.rank));
    let lateness = late.own_ms.unwrap_or(late.mean_ms);
    let explained = HOST_SHARE * damage_ms.map_or(lateness, |damage| lateness.min(damage));
    match gap {
        Some(gap) if gap.mean_ms >= explained => CauseClass::Host,
        Some(_) => CauseClass::Device,
        None => CauseClass::Inconclusive,
    }
}
