//! Permissions of database files: readable by the account that Echo runs as, and by a group if the
//! operator allows it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::duckdb::lock::beside;

/// Mode of files with rows.
pub(super) const PRIVATE: u32 = 0o600;

/// Permission bits of other accounts.
const OTHERS: u32 = 0o007;

/// Makes database files private that other accounts can access, as earlier versions created them.
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
                "{file} was accessible to every account of this machine: its mode is now 0600"
            ),
            Err(error) => tracing::warn!(
                %error,
                "{file} is accessible to every account of this machine, and its mode cannot be changed"
            ),
        }
    }
}
