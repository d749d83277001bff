//! The wire contract between agents and Echo: standard OTLP plus the names in this crate.
//!
//! Both sides depend on this crate and neither on the other. It holds names and generated messages: what a
//! name means is documented here, what is done with it is not. The exception is [`shard`], rules that
//! agents and Echo have to follow alike, whatever their versions.

pub mod attribute;
pub mod metadata;
pub mod metric;
pub mod shard;

/// Messages generated from `proto/fleet/v1/policy.proto`.
pub mod policy {
    include!(concat!(env!("OUT_DIR"), "/fleet.v1.rs"));
}
