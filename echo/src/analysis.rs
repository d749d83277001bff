//! From events to conclusions. Pure: no clock, no I/O, no log line; everything needed arrives as an argument.
//!
//! `assembly` lines up what the ranks of a cohort report about the same operations, `lag` compares them,
//! `baseline` remembers what healthy looks like, `verdict` decides, `incident` and `cohort` give decisions a memory,
//! `detector` ties them together, and `cost` adds up the GPU time that incidents cost.

pub mod assembly;
pub mod baseline;
pub mod cohort;
pub mod cost;
pub mod detector;
pub mod evidence;
pub mod incident;
pub mod lag;
pub mod settings;
pub mod verdict;
pub mod window;

#[cfg(test)]
pub(crate) mod simulated;
