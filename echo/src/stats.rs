//! Robust statistics over slices.
