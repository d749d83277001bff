//! The way back to the agents: conclusions become a table of policies that the ingest path borrows.

pub mod health;
pub mod policy;
pub mod refresh;
pub mod table;
