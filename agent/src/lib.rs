//! Agent of Echo: turns the calls of a host's GPU jobs into metrics by which ranks can be compared.
//!
//! The parts are separate packages, and cargo enforces their order: `fleet-agent-core` is the pure
//! analysis, `fleet-agent-sources` yields events, `fleet-agent-export` delivers points. This
//! package is the program: flags, tasks, files, sockets, and the host's GPU and network counters.
//!
//! Life of an event: a [`fleet_agent_sources::source`] yields it in order of entry; `order` applies
//! it at its return; `discover` assigns it to a communicator and `correlate` to the wait that
//! follows; `iteration_pattern` finds what the process repeats, and `rollup` aggregates blocks of
//! 2^k operations; `classify` compares the process with the policy of its cohort;
//! [`fleet_agent_core::host`] batches the points of all processes on its own clock, and
//! [`fleet_agent_export::delivery`] delivers each batch to the collector exactly once and in order.
//! A live agent uses [`fleet_agent_export::sender`], which never gives up: batches that the
//! collector does not accept within a few seconds wait in the [`fleet_agent_export::spool`].
//! [`record`] writes the events of a [`fleet_agent_sources::watch`] to a file, which
//! [`fleet_agent_sources::recording`] reads and [`replay`] delivers; [`simulate`] generates events.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a queued batch holds its place in the queue; the lint takes every owner of the queue for a guard"
)]

pub mod capture;
pub mod check;
pub mod config;
pub mod endpoint;
pub mod explain;
pub mod gpu;
pub mod health;
pub mod hooks;
mod host_conditions;
pub mod import;
pub mod install;
pub mod job;
pub mod log;
pub mod measurements;
pub mod metrics;
pub mod ras;
pub mod rdma;
pub mod record;
pub mod replay;
pub mod run;
pub mod simulate;
pub mod socket;
mod stack_sampling;
pub mod stacks;
pub mod trace;
