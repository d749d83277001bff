//! Between plain data and rows. Nothing outside this module knows the name of a table or a column.
//!
//! Rows go in and out column by column, as Arrow, which costs a fraction of what single values cost.

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
pub(super) mod query_results;
mod row;
pub(super) mod schema;
pub(super) mod verdicts;
