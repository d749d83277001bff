//! The steps of the schema.

use xxhash_rust::xxh64::xxh64;

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// Its number; the first is 1.
    pub(super) version: i64,
    /// What it brings.
    pub(super) name: &'static str,
    /// Its statements.
    pub(super) sql: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal, $file:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../migrations/",
                $file
            )),
        }
    };
}

/// All steps, in order. A step that was released is never edited; its checksum is in every database.
pub(super) const MIGRATIONS: &[Migration] = &[
    migration!(1, "events", "0001_events.sql"),
    migration!(2, "conclusions", "0002_conclusions.sql"),
    migration!(3, "inputs", "0003_inputs.sql"),
    migration!(4, "retention", "0004_retention.sql"),
    migration!(5, "judged", "0005_judged.sql"),
    migration!(6, "sql", "0006_sql.sql"),
    migration!(7, "cost_hours", "0007_cost_hours.sql"),
    migration!(8, "blame", "0008_blame.sql"),
];

impl Migration {
    /// Hash of the statements, 16 hexadecimal digits.
    pub(super) fn checksum(&self) -> String {
        format!("{:016x}", xxh64(self.sql.as_bytes(), 0))
    }
}
