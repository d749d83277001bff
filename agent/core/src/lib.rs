//! Derives points and self-verdicts from the events of one host's processes. Pure: nothing here
//! reads files, waits or calls the kernel.
//!
//! Layers, lowest first; a module imports only from those before it.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`event`], [`signal`], [`verdict`], [`vitals`] | plain data: input events, output points, the agent's own state |
//! | 1 | [`statistics`], [`order`], [`discover`], [`activity`], [`correlate`], [`iteration`], [`block_size`], [`exemplar`], [`progress`], [`policy`], [`printable`], [`classify`] | one rule each |
//! | 1 | [`operation_sums`] | durations on the GPU, or waits of the host, summed over blocks of operations |
//! | 1 | [`measurement`] | what is exported under names of OpenTelemetry |
//! | 1 | [`explain`] | what the processes of one host lose time to |
//! | 1 | [`batch`] | what is sent and acknowledged as a unit |
//! | 2 | [`iteration_pattern`], [`rollup`], [`pipeline`] | one process |
//! | 2 | [`ras`] | what NCCL reports about a job without probes |
//! | 3 | [`host`] | one host: its processes, its clock, and batches in order |

pub mod activity;
pub mod batch;
pub mod block_size;
pub mod captured_file;
pub mod classify;
pub mod correlate;
pub mod discover;
pub mod event;
pub mod exemplar;
pub mod explain;
pub mod host;
pub mod iteration;
pub mod iteration_pattern;
pub mod measurement;
pub mod operation_sums;
pub mod order;
pub mod pipeline;
pub mod policy;
pub mod printable;
pub mod progress;
pub mod ras;
pub mod rollup;
pub mod signal;
pub mod statistics;
pub mod verdict;
pub mod vitals;
