//! Plugin for NCCL's profiler interface: records when each collective and transfer ran on the GPU,
//! by the GPU's own timer.
//!
//! NCCL loads it into the training process, so its overhead and risk there must be minimal: no
//! allocation, no lock and no blocking while the job runs, memory of fixed size, and handles that
//! are numbers and never dereferenced. Records that do not fit are counted.
//!
//! | module | content |
//! |---|---|
//! | `abi` | memory layout of the interface's tables and events |
//! | `tables` | exported tables, which convert pointers to numbers (unsafe code) |
//! | `loader` | version of the calling NCCL (unsafe code) |
//! | `versions` | versions that are refused |
//! | `profiler` | logic of each call |
//! | `comms`, `pool`, `handle`, `occupancy` | communicators and operations in flight |
//! | `record` | layout of the records |
//! | `emit`, `probe` | output: a function to attach a probe to, or a socket |
//! | `kill_switch`, `losses`, `system` | disabling at run time, loss counters, system calls |
//! | `sync` | atomics of the tables, or those of a model |

mod abi;
mod comms;
mod emit;
mod handle;
mod kill_switch;
mod loader;
#[cfg(test)]
#[cfg(loom)]
mod loom_models;
mod losses;
mod occupancy;
mod pool;
mod probe;
mod profiler;
pub mod record;
mod sync;
mod system;
mod tables;
mod versions;
