//! The agent of Echo: turns what the GPU jobs of a host call into metrics that ranks can be
//! compared by.
//!
//! The parts are packages of their own, and cargo keeps their order: `fleet-agent-core` decides and is pure,
//! `fleet-agent-sources` yields events, `fleet-agent-export` delivers points. This package is the program: flags, tasks, files
//! and sockets, and what the host tells of its GPUs and network.
//!
//! The life of an event: a [`fleet_agent_sources::source`] yields it in order of entry; `order` lets it take effect when it
//! returns; `discover` says which communicator it belongs to and `correlate` what was waited for; `rhythm` finds what the
//! process repeats, and `rollup` sums up blocks of 2^k operations; `classify` compares the process with what is known of its
//! cohort; [`fleet_agent_core::host`] batches the points of all its processes on its own clock, and
//! [`fleet_agent_export::delivery`] brings each batch to the collector exactly once and in order. A live agent does so by
//! [`fleet_agent_export::sender`], which never gives up: what the collector does not take for a few seconds waits in the
//! [`fleet_agent_export::spool`]. [`record`] writes what a [`fleet_agent_sources::watch`] sees to a file instead, which
//! [`fleet_agent_sources::recording`] reads and [`replay`] delivers; [`simulate`] makes events of its own.

pub mod check;
pub mod config;
pub mod gpu;
pub mod hooks;
pub mod install;
pub mod job;
pub mod metrics;
pub mod rdma;
pub mod record;
pub mod replay;
pub mod run;
pub mod simulate;
