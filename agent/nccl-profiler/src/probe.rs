//! The functions that a probe stands at. They do nothing: without a probe a record costs two calls.
#![expect(
    unsafe_code,
    reason = "symbols that others find by name, made of chosen instructions: a probe on any other would be slow"
)]

use std::arch::naked_asm;

use crate::record::Record;

/// Lets a record pass by where probes may stand.
pub(crate) fn pass(record: &Record) {
    fleet_nccl_record(record);
    fleet_nccl_record_push(record);
}

/// For kernels that turn a `nop` of five bytes into a call (Linux 6.18): half the cost.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn fleet_nccl_record(record: *const Record) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "ret");
    #[cfg(not(target_arch = "x86_64"))]
    naked_asm!("nop", "ret");
}

/// For other kernels, which emulate a `push` and single-step that `nop`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn fleet_nccl_record_push(record: *const Record) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("push rbp", "pop rbp", "ret");
    #[cfg(not(target_arch = "x86_64"))]
    naked_asm!("nop", "ret");
}
