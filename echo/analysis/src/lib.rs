//! Straggler and hang detection for collective workloads. Pure: no clock, no I/O, no logging; all
//! inputs are arguments.
//!
//! `detector` is the entry point: it takes events and returns incidents and lost time. `assembly`
//! aligns the ranks' reports about the same operations, `lag` compares ranks, `baseline` learns the
//! healthy state, `verdict` decides whether a rank is late, and `cause` and `imbalance` classify
//! the problem. `finding`, `incident` and `incident_tracker` turn diagnoses into incidents over
//! time, and `cohort` combines these for one cohort; `hang` finds operations that never end.
//! `loss_accounting` attributes the losses of a job to its incidents by the shares of
//! `attribution`; `cost` sums the GPU time that incidents cost, and `hours` breaks it down by node
//! and hour beside the allocated time. `advice` says what to do about a verdict.

pub mod advice;
pub mod assembly;
pub mod attribution;
pub mod baseline;
pub mod cause;
pub mod cohort;
pub mod cost;
pub mod detector;
pub mod evidence;
pub mod finding;
pub mod hang;
pub mod hours;
pub mod imbalance;
pub mod incident;
pub mod incident_tracker;
pub mod lag;
pub mod loss_accounting;
pub mod mix;
pub mod pace;
pub mod settings;
pub mod straggler;
pub mod verdict;
pub mod window;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod simulated;
