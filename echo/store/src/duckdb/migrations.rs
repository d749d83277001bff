//! Schema migrations.

use xxhash_rust::xxh64::xxh64;

/// Schema migration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// Version, from 1.
    pub(super) version: i64,
    /// Name.
    pub(super) name: &'static str,
    /// Statements.
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

/// All migrations, in order. A released migration is never edited; its checksum is in every
/// database.
pub(super) const MIGRATIONS: &[Migration] = &[migration!(1, "schema", "0001_schema.sql")];

impl Migration {
    /// Hash of the statements, 16 hexadecimal digits.
    pub(super) fn checksum(&self) -> String {
        format!("{:016x}", xxh64(self.sql.as_bytes(), 0))
    }
}
