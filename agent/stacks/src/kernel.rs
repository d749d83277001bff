//! Where a thread waits in the kernel while nothing but SIGKILL can interrupt it (state D): for a disk, a network file system
//! or a driver. In other states the function of the program that called the kernel says it all.

use std::fs;

use fleet_agent_core::event::Frame;

/// Module of the frame, in place of a file.
const MODULE: &str = "kernel, uninterruptible";

/// Returns the kernel's function in which a thread waits; `None` if a signal could interrupt it, or if
/// it runs.
pub(crate) fn uninterruptible_wait(pid: u32, tid: u32) -> Option<Frame> {
    let task = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read_to_string(format!("{task}/stat")).ok()?;
    // The name before it can contain anything.
    let (_, state) = stat.rsplit_once(") ")?;
    if !state.starts_with('D') {
        return None;
    }
    let function = fs::read_to_string(format!("{task}/wchan")).unwrap_or_default();
    let is_known = !function.is_empty() && function != "0";
    Some(Frame::Native {
        symbol: is_known.then_some(function),
        module: Some(MODULE.to_owned()),
        offset: 0,
    })
}
