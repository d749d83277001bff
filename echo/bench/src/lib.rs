//! Benchmark of the detector: simulated jobs, recorded jobs, and published rules for comparison.
//!
//! The detector under test is called as the service calls it, with events as agents send them, and
//! its output is compared with the injected faults. The benchmark does not depend on its internals.

pub mod agent;
pub mod alert;
pub mod bytedance;
pub mod case;
pub mod cpu;
pub mod fault;
pub mod greyhound;
pub mod job;
pub mod loops;
pub mod mesh;
pub mod noise;
pub mod random;
pub mod real;
pub mod recordings;
pub mod report;
pub mod rule;
pub mod runner;
pub mod score;
pub mod simulation;
pub mod suite;
pub mod tally;
pub mod telemetry;
pub mod window;
