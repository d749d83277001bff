//! Feedback to the agents: detector output becomes a table of policies that the ingest path reads.
//! Also closes cost hours.

pub mod health;
pub mod hours;
pub mod policy;
pub mod refresh;
