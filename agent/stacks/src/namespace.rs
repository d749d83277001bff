//! Ids of threads in the namespace of their process.

use std::fs;
use std::io::ErrorKind;

use crate::error::StackError;

/// Returns the id of a thread in the innermost namespace of its process.
pub(crate) fn namespace_tid(pid: u32, tid: u32) -> Result<u32, StackError> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let status = status.map_err(|source| match source.kind() {
        ErrorKind::NotFound if pid != tid => StackError::NoThread { pid, tid },
        _ => StackError::of_file(pid, "status", source),
    })?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = line.and_then(|tids| tids.split_whitespace().last()?.parse().ok());
    Ok(own.unwrap_or(tid))
}
