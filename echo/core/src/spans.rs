//! Spans of Echo itself. They are off unless exported, and cost a flag check when off.

/// Target of all spans, by which the exporter selects them.
pub const TARGET: &str = "echo::spans";

/// Request with metrics or log records, from decoding to acknowledgement. Requests with spans are
/// not traced: an instance whose spans are routed back to it would loop forever.
pub const INGEST: &str = "echo.ingest";
/// Decoding of a request, from bytes to events.
pub const DECODE: &str = "echo.ingest.decode";
/// Wait of a request until its events are durable.
pub const APPEND: &str = "echo.ingest.append";
/// A group of batches in one transaction.
pub const COMMIT: &str = "echo.store.commit";
/// Writing the log to the database file.
pub const CHECKPOINT: &str = "echo.store.checkpoint";
/// Deleting events.
pub const RETENTION: &str = "echo.store.retention";
/// Query.
pub const QUERY: &str = "echo.query";
/// Detector processing of committed events.
pub const DETECT: &str = "echo.detect";
