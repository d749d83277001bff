//! Placeholder until the layers land.
