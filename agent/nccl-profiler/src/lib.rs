//! Plugin for NCCL's profiler interface: tells of each collective and transfer when it ran on the GPU, by the GPU's own timer.
//!
//! NCCL loads it into the training process, so it must cost and risk nothing there: no allocation, no lock and no wait while the job
//! runs, memory of fixed size, and handles that are numbers and never dereferenced. Whatever has no room is counted.
//!
//! | module | knows |
//! |---|---|
//! | `abi` | the interface's tables and events in memory |
//! | `tables` | the exported tables: pointers in, numbers on; the unsafe code |
//! | `loader` | which release of NCCL calls; the unsafe code of that |
//! | `versions` | which releases are refused |
//! | `profiler` | what happens at each call |
//! | `comms`, `pool`, `handle` | communicators and operations under way |
//! | `record` | what is told |
//! | `emit`, `probe` | where it leaves: a function for a probe to stand at, or a socket |
//! | `kill_switch`, `losses`, `system` | the rest |

mod abi;
mod comms;
mod emit;
mod handle;
mod kill_switch;
mod loader;
mod losses;
mod pool;
mod probe;
mod profiler;
pub mod record;
mod system;
mod tables;
mod versions;
