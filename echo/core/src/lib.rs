//! Shared vocabulary of Echo. No I/O, no waiting, no storage engine.

pub mod clock;
pub mod error;
pub mod fields;
pub mod ids;
pub mod model;
pub mod pattern;
pub mod policy_table;
pub mod shard;
pub mod spans;
pub mod stats;
pub mod text;
pub mod units;
