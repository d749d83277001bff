//! Batches as they go over the wire, so that one that waits on disk is sent byte by byte as it would have been.

use bytes::Bytes;

/// A batch whose request has been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The agent instance that closed it, which may be a predecessor of the one that sends it.
    pub instance: u64,
    /// Its number within that instance.
    pub number: u64,
    /// Number of its points.
    pub points: u64,
    /// An OTLP `ExportMetricsServiceRequest`.
    pub request: Bytes,
}
