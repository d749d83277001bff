//! `EchoBench`: simulated jobs, recorded ones, and every published rule beside the detector.
//!
//! The detector under test is called as the service calls it, with events as agents send them, and its conclusions are
//! compared with what was injected. Nothing here looks inside it, and nothing in it knows about this.

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
