//! The agent of Echo: turns what the GPU jobs of a host call into metrics that ranks can be
//! compared by.
//!
//! Layers, lowest first; a module imports only from those before it.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`event`], [`signal`], [`verdict`], [`vitals`] | plain data: what came in, what goes out, how the agent is doing |
//! | 1 | [`order`], [`discover`], [`activity`], [`job`], [`correlate`], [`iteration`], [`block_size`], [`exemplar`], [`progress`], [`policy`], [`classify`], [`place`], [`functions`], [`symbols`], [`instruction`], [`comm_fields`] | one rule each |
//! | 2 | [`rhythm`], [`rollup`], [`pipeline`] | one process, pure |
//! | 3 | [`process`], [`gpu`], [`rdma`], [`watch`], [`source`], [`export`], [`host`] | the two ends, what the host tells of itself, and one host between them |
//! | 4 | [`config`], [`hooks`], [`metrics`], [`check`], [`install`], [`record`], [`replay`], [`simulate`], [`run`] | flags, tasks, files, sockets |
//!
//! The life of an event: a [`source`] yields it in order of entry; [`order`] lets it take effect
//! when it returns; [`discover`] says which communicator it belongs to and [`correlate`] what was
//! waited for; [`rhythm`] finds what the process repeats, and [`rollup`] sums up blocks of 2^k
//! operations; [`classify`] compares the process with what is known of its cohort; [`host`] batches
//! the points of all its processes on its own clock, and [`export::delivery`] brings each batch to
//! the collector exactly once and in order. A live agent does so by [`export::sender`], which never
//! gives up: what the collector does not take for a few seconds waits in the [`export::spool`].
//! [`record`] writes what a [`watch`] sees to a file instead, which [`source::recording`] reads.

pub mod activity;
pub mod block_size;
pub mod check;
pub mod classify;
pub mod comm_fields;
pub mod config;
pub mod correlate;
pub mod discover;
pub mod event;
pub mod exemplar;
pub mod export;
pub mod functions;
pub mod gpu;
pub mod hooks;
pub mod host;
pub mod install;
pub mod instruction;
pub mod iteration;
pub mod job;
pub mod metrics;
pub mod order;
pub mod pipeline;
pub mod place;
pub mod policy;
pub mod printable;
pub mod process;
pub mod progress;
pub mod rdma;
pub mod record;
pub mod replay;
pub mod rhythm;
pub mod rollup;
pub mod run;
pub mod signal;
pub mod simulate;
pub mod source;
pub mod symbols;
pub mod verdict;
pub mod vitals;
pub mod watch;
