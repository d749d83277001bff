//! Conversion between plain data and rows. Only this module knows the names of tables and columns.
//!
//! Rows are read and written by column, as Arrow, at a fraction of the cost of single values.

mod call_durations;
mod column;
pub(super) mod coverage;
pub(super) mod detector_output;
pub(super) mod dictionary_gc;
pub(super) mod event_queries;
pub(super) mod events;
pub(super) mod gpus;
pub(super) mod hours;
pub(super) mod identity;
mod inputs;
pub(super) mod parquet;
pub(super) mod partition;
pub(super) mod past_culprits;
pub(super) mod process_queries;
pub(super) mod process_results;
pub(super) mod query_results;
mod row;
pub(super) mod schema;
pub(super) mod verdicts;
