//! Version of the NCCL library that has loaded the plugin.
#![expect(
    unsafe_code,
    reason = "the dynamic loader's functions take and return pointers"
)]

use std::ffi::{c_int, c_void};

use crate::abi::Log;

/// NCCL's `ncclGetVersion`.
type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Returns the version of the library that this log function belongs to, as `ncclGetVersion`
/// numbers it.
pub(crate) fn nccl_version(log: Option<Log>) -> Option<c_int> {
    let inside: *const c_void = log? as *const c_void;
    // SAFETY: all bytes zero are a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writes; any address may be looked up.
    let found = unsafe { libc::dladdr(inside, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name is a C string of the loader; nothing is loaded that is not there yet.
    let mut library = unsafe { libc::dlopen(info.dli_fname, flags) };
    if library.is_null() {
        // NCCL is linked into the program itself, which is not found by its file name.
        // SAFETY: a null name stands for the program itself.
        library = unsafe { libc::dlopen(std::ptr::null(), flags) };
    }
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and the name a C string.
    let symbol = unsafe { libc::dlsym(library, c"ncclGetVersion".as_ptr()) };
    let version = (!symbol.is_null())
        .then(|| call_get_version(symbol))
        .flatten();
    // SAFETY: it was opened here; its other users keep it.
    unsafe { libc::dlclose(library) };
    version
}

fn call_get_version(symbol: *mut c_void) -> Option<c_int> {
    // SAFETY: NCCL has had this function, with this signature, since its first release.
    let get_version: GetVersion = unsafe { std::mem::transmute(symbol) };
    let mut version = 0;
    // SAFETY: `version` is valid for writes.
    let result = unsafe { get_version(&raw mut version) };
    (result == 0 && version > 0).then_some(version)
}
