//! Straggler and hang detection for collective workloads. Pure: no clock, no I/O, no logging; all
//! inputs are arguments.
//!
//! `detector` is the entry point: it takes events and returns incidents and lost time. `assembly`
//! aligns the ranks' reports about the same operations, `lag` compares ranks, `baseline` learns the
//! healthy state, `verdict` decides whether a rank is late, and `cause` and `imbalance` classify
//! the problem. `finding`, `incident` and `incident_tracker` turn diagnoses into incidents over
//! time, and `cohort` combines these for one cohort; `hang` finds operations that never end.
//! Jobs whose ranks report durations of operations on the GPU are judged by `straggler` instead: by
//! who waited for whom, and by the pace. So are jobs without, by the waits of their hosts, once they
//! have a healthy past.
//! `loss_accounting` attributes the losses of a job to its incidents by the shares of
//! `attribution`; `cost` sums the GPU time that incidents cost, and `hours` breaks it down by node
//! and hour beside the allocated time. `advice` says what to do about a verdict.
//!
//! ```
//! use echo_analysis::detector::Detector;
//! use echo_analysis::settings::Settings;
//! use echo_core::ids::{CommId, RankInJob, RoleId};
//! use echo_core::model::event::{
//!     Block, Event, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
//! };
//! use echo_core::units::Nanos;
//! use fleet_proto::metric::{ARRIVAL, HOST_GAP, PERIOD};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
//! /// Returns a point of a rank about ten iterations with one collective each.
//! fn point(rank: i64, block: u64, metric: &str, reading: Reading) -> Result<StoredEvent> {
//!     let begin = Nanos::new(1_790_000_000_000_000_000 + i64::try_from(block)? * 500_000_000);
//!     let end = begin.offset(500_000_000);
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
//!         op: None,
//!         seqs: SeqRange::new(10 * block, 10 * block + 9),
//!         role: Some(RoleId::new(1)),
//!         iterations: Some(10.0),
//!         anchor: None,
//!         source: Source::Host,
//!     };
//!     let event = Event {
//!         timestamp: end,
//!         start: Some(begin),
//!         origin: origin.into(),
//!         metric: metric.parse()?,
//!         unit: "ms".into(),
//!         reading,
//!         block: Some(block),
//!         attrs: "{}".into(),
//!         samples: Vec::new(),
//!     };
//!     Ok(StoredEvent { id: 1, received: end, event })
//! }
//!
//! // From the 11th block, rank 2 issues its collectives 20 ms later than before.
//! let mut detector = Detector::new(Settings::default());
//! let mut reasons = Vec::new();
//! for block in 0..12 {
//!     for rank in 0..4 {
//!         let delay_ms = if block < 10 { 0.0 } else { 20.0 };
//!         let gap_ms = if rank == 2 { 4.0 + delay_ms } else { 4.0 };
//!         let every = |ms: f64| {
//!             Reading::Histogram(Summary { count: 10, sum: 10.0 * ms, min: Some(ms), max: Some(ms) })
//!         };
//!         let output = detector.observe(&[
//!             point(rank, block, HOST_GAP, every(gap_ms))?,
//!             point(rank, block, PERIOD, Reading::Double(50.0 + delay_ms))?,
//!             point(rank, block, ARRIVAL, every(80.0))?,
//!         ]);
//!         reasons.extend(output.incidents.into_iter().map(|incident| incident.reason));
//!     }
//! }
//! assert_eq!(
//!     reasons.first().map_or("", |reason| reason),
//!     "rank 2 comes 20.0 ms later than the median of its peers (from its synchronisation to its \
//!      next collective), and an iteration takes 70.0 ms instead of 50.0 ms"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advice;
pub mod assembly;
mod attributes;
pub mod attribution;
pub mod baseline;
pub mod cause;
pub mod cohort;
pub mod cost;
pub mod detector;
pub mod evidence;
pub mod finding;
pub mod hang;
pub mod hours;
pub mod imbalance;
pub mod incident;
pub mod incident_tracker;
mod iteration_clock;
pub mod lag;
pub mod loss_accounting;
pub mod mix;
pub mod pace;
pub mod settings;
pub mod straggler;
pub mod verdict;
pub mod window;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod simulated;
