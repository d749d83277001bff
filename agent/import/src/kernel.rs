//! Names of GPU kernels.

/// Returns whether a kernel is one of NCCL or RCCL; the first name is that since NCCL 2.19.
pub(crate) fn is_nccl(kernel: &str) -> bool {
    kernel.starts_with("ncclDevKernel") || kernel.starts_with("ncclKernel")
}

/// Part of a kernel's name before its template arguments.
pub(crate) fn kernel_op(kernel: &str) -> &str {
    kernel.split('(').next().unwrap_or(kernel)
}
