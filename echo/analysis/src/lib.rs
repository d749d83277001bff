//! From events to conclusions. Pure: no clock, no I/O, no log line; everything needed arrives as an argument.
//!
//! `assembly` lines up what the ranks of a cohort report about the same operations, `lag` compares them,
//! `baseline` remembers what healthy looks like, `verdict` decides, `cause` and `imbalance` say what kind of trouble it
//! is, `finding`, `incident_tracker` and `incident` give decisions a memory, `cohort` puts these together for one cohort and
//! `detector` for all of them; `hang` finds operations that never end. `loss_accounting` charges what a job loses to its incidents, by
//! the shares of `attribution`; `cost` adds up the GPU time that incidents cost, `hours` by node and hour, beside the time that GPUs
//! were there.

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
