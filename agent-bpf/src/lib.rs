//! BPF programs of the agent and a safe interface to them.
//!
//! | module | knows |
//! |---|---|
//! | [`layout`] | data shared by programs and agent: records, keys, cookies |
//! | [`programs`] | loading, attaching, reading the programs' data |
//! | [`lifecycle`] | file mappings and exits of processes, from the kernel's perf events |
//!
//! The agent decides what is probed and what it means: this crate knows functions only as offsets
//! and cookies.

pub mod layout;
pub mod lifecycle;
pub mod programs;
