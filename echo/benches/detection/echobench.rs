//! `EchoBench`: simulated jobs, recorded ones, and every published rule beside the detector.
//!
//! The detector under test is called as the service calls it, with events as agents send them, and its conclusions are
//! compared with what was injected. Nothing here looks inside it, and nothing in it knows about this.

pub(crate) mod agent;
pub(crate) mod alert;
pub(crate) mod bytedance;
pub(crate) mod case;
pub(crate) mod cpu;
pub(crate) mod fault;
pub(crate) mod greyhound;
pub(crate) mod job;
pub(crate) mod loops;
pub(crate) mod mesh;
pub(crate) mod noise;
pub(crate) mod random;
pub(crate) mod real;
pub(crate) mod recordings;
pub(crate) mod report;
pub(crate) mod rule;
pub(crate) mod runner;
pub(crate) mod score;
pub(crate) mod simulation;
pub(crate) mod suite;
pub(crate) mod tally;
pub(crate) mod telemetry;
pub(crate) mod window;
