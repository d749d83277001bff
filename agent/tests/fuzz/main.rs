//! Fuzz tests of the inputs of the agent: recordings, and the policies of a collector.
//!
//! Each target has a small corpus in `testdata/fuzz`, which a test replays. Fuzzing runs on
//! request, for `FLEET_FUZZ_SECONDS` (10 by default): `cargo test -p fleet-agent --test fuzz --
//! --ignored --nocapture`.

#[cfg(test)]
mod import;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod recording;
