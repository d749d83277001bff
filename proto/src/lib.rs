//! The wire contract between agents and Echo: standard OTLP plus the names in this crate. Both
//! sides depend on this crate, and neither on the other. It contains names, with their meaning, and
//! generated messages, but no logic. The exceptions are [`shard`], rules that agents and Echo must
//! apply identically in all versions, and [`advice`], texts that both print.

pub mod advice;
pub mod attribute;
pub mod metadata;
pub mod metric;
pub mod shard;

/// Messages generated from `proto/fleet/v1/policy.proto`.
pub mod policy {
    include!(concat!(env!("OUT_DIR"), "/fleet.v1.rs"));
}
