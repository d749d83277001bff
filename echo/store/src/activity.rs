//! What a rank did last.

use echo_core::units::Nanos;

/// Last reports on what a rank did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Last report on operations of a communicator that were issued or ended.
    pub last_operation: Option<Nanos>,
    /// Last report on calls of the libraries of its GPU.
    pub last_call: Option<Nanos>,
}

impl Activity {
    /// The later reports of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            last_operation: self.last_operation.max(other.last_operation),
            last_call: self.last_call.max(other.last_call),
        }
    }
}
