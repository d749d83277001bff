//! Any bytes where the agent reads what others wrote: recordings, and the policies of a collector.
//!
//! Each target has a small corpus in `testdata/fuzz`, which a test replays. Fuzzing runs on request, for
//! `FLEET_FUZZ_SECONDS` (10 unless said): `cargo test -p fleet-agent --test fuzz -- --ignored --nocapture`.

#[cfg(test)]
mod mutate;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod recording;
