//! Functions to which an agent attaches probes. They do nothing: without a probe a record costs two
//! calls.
#![expect(
    unsafe_code,
    reason = "exported symbols with chosen instructions: a probe on any other instruction would be slow"
)]

use std::arch::naked_asm;

use crate::record::Record;

/// Passes a record through the probe points.
pub(crate) fn call_probe_points(record: &Record) {
    fleet_nccl_record(record);
    fleet_nccl_record_push(record);
}

/// Probe point for kernels that replace a five-byte `nop` by a call (Linux 6.18), at half the cost.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn fleet_nccl_record(record: *const Record) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "ret");
    #[cfg(not(target_arch = "x86_64"))]
    naked_asm!("nop", "ret");
}

/// Probe point for other kernels, which emulate a `push` but single-step that `nop`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn fleet_nccl_record_push(record: *const Record) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("push rbp", "pop rbp", "ret");
    #[cfg(not(target_arch = "x86_64"))]
    naked_asm!("nop", "ret");
}
