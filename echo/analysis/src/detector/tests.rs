//! What the detector must say, told as stories of whole jobs.

mod conditions;
mod devices;
mod fast;
mod hangs;
mod hostile;
mod identity;
mod losses;
mod meshes;
mod records;
mod stalls;
mod symmetry;
