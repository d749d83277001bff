//! Placeholder until the agent's modules land.

fn main() {}
