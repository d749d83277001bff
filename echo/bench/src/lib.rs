//! Benchmark of the detector: generated loops, recorded jobs, and other rules for comparison.
//!
//! The detector under test is called as the service calls it, with events as agents send them, and
//! its output is compared with the injected faults. The benchmark does not depend on its internals.

pub mod alert;
pub mod delivery;
pub mod loops;
pub mod random;
pub mod real;
pub mod recordings;
pub mod rule;
pub mod window;
