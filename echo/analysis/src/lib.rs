//! Straggler and hang detection for collective workloads. Pure: no clock, no I/O, no logging; all
//! inputs are arguments.
//!
//! `detector` is the entry point: it takes events and returns incidents and lost time. `straggler`
//! decides who holds back a job, and what it costs: from the sums of the durations of operations, of
//! the GPUs or, without those, of the waits of the hosts. `hang` finds operations that never end.
//! `assembly` aligns the ranks' reports about the same operations: its blocks give the iterations,
//! the progress of the ranks, and the `lag` of each rank, which people and agents (`policy_input`)
//! compare. `cost` sums the GPU time that incidents cost, and `hours` breaks it down by node and
//! hour beside the allocated time. `advice` says what to do about a verdict, by the facts of
//! `evidence`.
//!
//! ```
//! use echo_analysis::detector::Detector;
//! use echo_analysis::settings::Settings;
//! use echo_core::ids::{CommId, RankInJob};
//! use echo_core::model::event::{
//!     Block, Event, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
//! };
//! use echo_core::units::Nanos;
//! use fleet_proto::metric::DURATION;
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
//! /// Returns a point of one of four ranks about 16 operations that ended after `end_ms`.
//! fn point(rank: i64, block: u64, end_ms: i64, inside_ms: f64) -> Result<StoredEvent> {
//!     let end = Nanos::new(1_790_000_000_000_000_000 + end_ms * 1_000_000);
//!     let origin = Origin {
//!         cluster: "prod".parse()?,
//!         node: format!("node-{rank}").parse()?,
//!         rank: RankInJob::new(rank, Some(4)).ok(),
//!         job: Some("train".parse()?),
//!         gpu_model: None,
//!         gpu_uuid: None,
//!         namespace: None,
//!         pod: None,
//!     };
//!     let block = Block {
//!         comm: CommId::new(1),
//!         op: Some("AllReduce".parse()?),
//!         seqs: SeqRange::new(16 * block, 16 * block + 15),
//!         role: None,
//!         iterations: None,
//!         anchor: None,
//!         source: Source::Device,
//!     };
//!     let event = Event {
//!         timestamp: end,
//!         start: Some(end),
//!         origin: origin.into(),
//!         metric: DURATION.parse()?,
//!         unit: "ms".into(),
//!         reading: Reading::Histogram(Summary {
//!             count: 16,
//!             sum: 16.0 * inside_ms,
//!             min: Some(inside_ms),
//!             max: Some(inside_ms),
//!         }),
//!         block: Some(block),
//!         attrs: format!(r#"{{"nccl.comm_rank":{rank},"nccl.comm_nranks":4}}"#).into(),
//!         samples: Vec::new(),
//!     };
//!     Ok(StoredEvent { id: 1, received: end, event })
//! }
//!
//! // After 20 s the job takes twice as long, and the operations of all ranks but rank 2, which is
//! // the last to begin each of them.
//! let mut detector = Detector::new(Settings::default());
//! let (mut reasons, mut end_ms) = (Vec::new(), 0);
//! for block in 0..60 {
//!     let is_slow = block >= 40;
//!     end_ms += if is_slow { 1_000 } else { 500 };
//!     for rank in 0..4 {
//!         let inside_ms = if is_slow && rank != 2 { 34.0 } else { 3.0 };
//!         let output = detector.observe(&[point(rank, block, end_ms, inside_ms)?]);
//!         reasons.extend(output.incidents.into_iter().map(|incident| incident.reason));
//!     }
//! }
//! let named = |reason: &String| reason.starts_with("rank 2 holds back the job");
//! assert!(!reasons.is_empty() && reasons.iter().all(named), "{reasons:#?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advice;
pub mod assembly;
mod attributes;
pub mod cost;
pub mod crash;
pub mod detector;
pub mod evidence;
pub mod hang;
pub mod hours;
pub mod incident;
mod iteration_clock;
pub mod lag;
pub mod policy_input;
pub mod settings;
pub mod straggler;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod simulated;
