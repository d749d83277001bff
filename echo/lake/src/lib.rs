//! Copies what an instance has committed to a `DuckLake`, exactly once.
//!
//! A lake is a SQL catalog (`PostgreSQL`, or a file for one instance) and Parquet files in a folder or
//! an object store. Each slice of event numbers is one transaction of the catalog, together with a
//! row of `slices` that names it, so that a new process finds out where the last one stopped. The
//! engine that writes to the lake is separate from that of the database: SQL of users never sees
//! its credentials.

pub mod committer;
pub mod error;
pub mod location;
pub mod maintenance;
pub mod overview;
pub mod progress;
pub mod reader;

mod columns;
mod destination;
mod fencing;
mod lease;
mod session;
mod stop;
