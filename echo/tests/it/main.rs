//! Tests of the whole service, in one binary, so that DuckDB is linked only once.

// Links the crate, and with it the extensions of DuckDB, although no test names it.
use fleet_echo as _;

#[cfg(test)]
mod actions;
#[cfg(test)]
mod architecture;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod database;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod duckdb_link;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod first_hour;
#[cfg(test)]
mod full_volume;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod host;
#[cfg(test)]
mod import;
#[cfg(test)]
mod ingero;
#[cfg(test)]
mod load;
#[cfg(test)]
mod lost_database;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod open;
#[cfg(test)]
mod private_files;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod readiness;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod report;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod security;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod sql;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod verdicts;
#[cfg(test)]
mod volume;
#[cfg(test)]
mod words;
