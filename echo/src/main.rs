//! Placeholder until the layers land.

fn main() {}
