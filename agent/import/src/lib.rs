//! Readers of traces that other tools wrote: bytes in, plain data and the points of the agent out.
//! Pure.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`pickle`], [`trace`] | the pickle format; the operations of a rank in one form |
//! | 1 | [`flight_recorder`], [`kineto`], [`inspector`] | one format each |
//! | 1 | [`calls`], [`bytedance`], [`nsys`] | the same |
//! | 2 | [`hang`], [`lateness`], [`blocks`] | what the operations of all ranks show |
//! | 3 | [`mod@format`], [`progress`], [`report`], [`trace_set`] | the files of one job |

pub mod blocks;
pub mod bytedance;
pub mod calls;
pub mod flight_recorder;
pub mod format;
pub mod hang;
pub mod inspector;
mod kernel;
pub mod kineto;
pub mod lateness;
mod matching;
pub mod nsys;
pub mod pickle;
pub mod progress;
pub mod report;
mod timeline;
pub mod trace;
pub mod trace_set;
mod transfers;
