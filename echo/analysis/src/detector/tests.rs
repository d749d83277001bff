//! Scenarios of whole jobs and the output that the detector must return for them.

mod crashes;
mod hangs;
mod host_waits;
mod hostile;
mod identity;
mod issue_times;
mod run_ahead;
mod stalls;
mod stragglers;
