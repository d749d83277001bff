//! Stacks of running threads: the lines of a Python program and the functions of its libraries,
//! read without stopping or slowing the process. Nothing is attached while no process is sampled.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`error`], [`budget`], [`sums`], [`mixed`] | plain data and rules, without I/O |
//! | 1 | [`clock`], [`memory`], [`registers`], [`kernel`], [`thread_state`], [`python`] | time, and one process or thread: its memory, its registers, its wait in the kernel, its interpreter |
//! | 2 | [`unwind`], [`symbols`] | from registers to addresses, from addresses to functions |
//! | 3 | [`native`], [`in_call`], [`workers`], [`sampler`] | all of it, for the threads of one process, and the lines of its workers |
//! | 4 | [`short_calls`] | calls that samples do not meet |
//! | 5 | [`arming`] | sampling within limits of time and CPU |

pub mod arming;
pub mod budget;
pub mod clock;
pub mod error;
mod in_call;
mod kernel;
mod memory;
mod mixed;
mod namespace;
mod native;
mod python;
mod registers;
pub mod sampler;
pub mod short_calls;
pub mod sums;
mod symbols;
mod thread_state;
mod unwind;
mod workers;
