//! Batches in wire format: a batch from disk is sent with the same bytes as from memory.

use bytes::Bytes;

/// Batch encoded as a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedBatch {
    /// Agent instance that closed the batch, which can be an earlier one than the sender.
    pub instance: u64,
    /// Batch number within that instance.
    pub number: u64,
    /// Number of points.
    pub points: u64,
    /// OTLP `ExportMetricsServiceRequest`.
    pub request: Bytes,
}
