//! Library calls that threads are in, as the probes know them.

/// Library call that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// Unknown: the calls of the process are not probed.
    Unknown,
    /// The thread is in no probed function.
    None,
    /// The thread is in this call. Of nested calls this is the outer one, which the program made.
    Call {
        /// Function.
        function: &'static str,
        /// Entry, nanoseconds. With the function it tells one call from the next.
        entered_ns: u64,
    },
}

/// Probes that know the calls in flight.
pub trait CallProbes {
    /// Returns the call that a thread is in now.
    fn in_flight(&self, pid: u32, tid: u32) -> InFlight;
}

/// Stands for probes where nothing is probed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unprobed;

impl CallProbes for Unprobed {
    fn in_flight(&self, _pid: u32, _tid: u32) -> InFlight {
        InFlight::Unknown
    }
}
