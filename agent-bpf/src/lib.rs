//! The BPF programs of the agent and a safe face for them.
//!
//! | module | knows |
//! |---|---|
//! | [`layout`] | what programs and agent share: records, keys, cookies |
//! | [`programs`] | loading, attaching, reading what they have seen |
//! | [`lifecycle`] | which processes map what, and which have ended, from the kernel's perf events |
//!
//! What is probed, and what it means, is decided by the agent: this crate knows functions only as offsets and cookies.

pub mod layout;
pub mod lifecycle;
pub mod programs;
