//! Who may read the files of a database: the account that Echo runs as, and a group if the operator says so.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::duckdb::lock::beside;

/// Mode of a file that holds rows.
pub(super) const PRIVATE: u32 = 0o600;

/// What every account of the machine may do.
const OTHERS: u32 = 0o007;

/// Makes the files of a database private that every account may use, as they were made before.
pub(super) fn tighten(path: &Path) {
    for ending in ["", ".wal", ".lock", ".ballast"] {
        let file = beside(path, ending);
        let is_open = |found: fs::Metadata| found.permissions().mode() & OTHERS != 0;
        if !fs::metadata(&file).is_ok_and(is_open) {
            continue;
        }
        let tightened = fs::set_permissions(&file, Permissions::from_mode(PRIVATE));
        let file = file.display();
        match tightened {
            Ok(()) => tracing::warn!(
                "{file} was open to every account of this machine: its mode is 0600 now"
            ),
            Err(error) => tracing::warn!(
                %error,
                "{file} is open to every account of this machine, and its mode cannot be changed"
            ),
        }
    }
}
