//! Feedback to the agents: detector output becomes a table of policies that the ingest path reads.
//! Also closes cost hours, and passes incidents on to the systems that act on them.

pub mod actions;
pub mod agents;
pub mod health;
pub mod hours;
pub mod policy;
pub mod refresh;
