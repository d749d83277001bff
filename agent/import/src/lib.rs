//! Readers of traces that other tools wrote: bytes in, plain data and the points of the agent out.
//! Pure.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`pickle`], [`trace`] | the pickle format; the operations of a rank in one form |
//! | 1 | [`flight_recorder`], [`kineto`], [`inspector`] | one format each |
//! | 1 | [`calls`], [`bytedance`], [`nsys`], [`ras`], `watchdog` | the same |
//! | 2 | [`hang`], [`lateness`], [`waiting`], [`loss`], [`blocks`] | what the operations of all ranks show |
//! | 3 | [`mod@format`], [`progress`], [`report`], [`trace_set`] | the files of one job |
//!
//! ```
//! use fleet_import::trace_set::{ImportError, TraceSet};
//!
//! // Three ranks call an operation every second, rank 2 each time 40 ms after the others.
//! let mut table = "rank,op_count,call_time_s\n".to_owned();
//! for op in 0..5 {
//!     table += &format!("0,{op},{op}.00\n1,{op},{op}.00\n2,{op},{op}.04\n");
//! }
//! let mut files = TraceSet::default();
//! files.add("calls.csv", table.as_bytes())?;
//! let imported = files.finish()?;
//! assert_eq!(imported.traces.keys().collect::<Vec<_>>(), [&0, &1, &2]);
//! assert_eq!(
//!     imported.report.lateness().unwrap_or_default(),
//!     "rank 2 arrives last at 5 of 5 operations of one kind, 40.0 ms behind the median of its \
//!      peers, 5.0 % of the traced time"
//! );
//! # Ok::<(), ImportError>(())
//! ```

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
pub mod loss;
mod matching;
pub mod nsys;
pub mod pickle;
pub mod progress;
mod rank_name;
pub mod ras;
pub mod report;
mod timeline;
pub mod trace;
pub mod trace_set;
mod transfers;
pub mod waiting;
mod watchdog;
