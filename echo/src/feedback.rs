//! The way back to the agents: conclusions become a table of policies that the ingest path borrows.
//! Beside it, hours of costs are closed.

pub mod health;
pub mod hours;
pub mod policy;
pub mod refresh;
