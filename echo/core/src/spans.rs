//! The spans of Echo itself. They are off unless somebody exports them, and off they cost a look at a flag.

/// Target of all of them, by which the exporter knows them.
pub const TARGET: &str = "echo::spans";

/// A request of metrics or log records, from its decoding to its acknowledgement. Requests of spans have none: an Echo
/// whose spans come back to it over any detour would go on for ever.
pub const INGEST: &str = "echo.ingest";
/// Part of it: from bytes to events.
pub const DECODE: &str = "echo.ingest.decode";
/// Part of it: waiting until the events are durable.
pub const APPEND: &str = "echo.ingest.append";
/// A group of batches in one transaction.
pub const COMMIT: &str = "echo.store.commit";
/// Writing the log to the database file.
pub const CHECKPOINT: &str = "echo.store.checkpoint";
/// Deleting events.
pub const RETENTION: &str = "echo.store.retention";
/// A question.
pub const QUERY: &str = "echo.query";
/// The detector takes in what was committed.
pub const DETECT: &str = "echo.detect";
