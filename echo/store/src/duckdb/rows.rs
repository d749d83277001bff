//! Between plain data and rows. Nothing outside this module knows the name of a table or a column.
//!
//! Rows go in and out column by column, as Arrow, which costs a fraction of what single values cost.

pub(super) mod answers;
mod column;
pub(super) mod conclusions;
pub(super) mod coverage;
pub(super) mod events;
pub(super) mod gpus;
pub(super) mod hours;
pub(super) mod identity;
mod inputs;
pub(super) mod parquet;
pub(super) mod questions;
mod row;
pub(super) mod schema;
pub(super) mod slices;
pub(super) mod unused;
pub(super) mod verdicts;
