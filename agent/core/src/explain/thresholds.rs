//! How much, and for how long, a share of time has to stand out.

use crate::explain::cause::Cause;
use crate::explain::chain::Reference;

/// Smallest difference to the reference, as a share of the process's time.
const FLOOR: f64 = 0.03;
/// Smallest share where there is no reference.
const FLOOR_ALONE: f64 = 0.05;
/// Smallest ratio to the reference.
const MULTIPLE: f64 = 2.0;
/// Periods in a row in which a share has to stand out.
const PERIODS: u32 = 2;
/// The same for calls of a process without a past, since every process makes many while it starts.
const PERIODS_OF_CALLS: u32 = 3;

/// Returns the number of periods in a row in which a cause has to stand out, of a process that has a past or
/// may be starting.
pub(super) fn required_periods(cause: Cause, has_past: bool) -> u32 {
    if cause.is_call() && !has_past {
        PERIODS_OF_CALLS
    } else {
        PERIODS
    }
}

/// Returns whether a share of time is more than what it is compared with.
pub(super) fn stands_out(cause: Cause, share: f64, reference: Reference) -> bool {
    if cause.is_fault(share) {
        return true;
    }
    match reference {
        Reference::None => !cause.is_usual() && share >= FLOOR_ALONE,
        Reference::Peers(usual) | Reference::Past(usual) => {
            share - usual >= FLOOR && share >= MULTIPLE * usual
        }
    }
}
