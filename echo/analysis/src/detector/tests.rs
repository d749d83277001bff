//! Scenarios of whole jobs and the output that the detector must return for them.

mod conditions;
mod devices;
mod fast;
mod hangs;
mod hostile;
mod identity;
mod losses;
mod meshes;
mod records;
mod run_ahead;
mod stalls;
mod stragglers;
mod symmetry;
