//! Memory layout of NCCL's profiler interface, as far as the plugin reads it: the same in versions
//! 4 to 7 except for the width of the event type. The tests check it against a C++ program.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// Result codes of NCCL.
pub(crate) const SUCCESS: c_int = 0;
/// Result that makes NCCL not use the plugin.
pub(crate) const INVALID_USAGE: c_int = 5;

/// Event types, as bits of the mask.
pub(crate) const COLLECTIVE: u64 = 1 << 1;
pub(crate) const TRANSFER: u64 = 1 << 2;
pub(crate) const KERNEL_CHANNEL: u64 = 1 << 6;
/// Event types that the plugin subscribes to.
pub(crate) const MASK: c_int = 1 << 1 | 1 << 2 | 1 << 6;

/// Event state: a channel has stopped.
pub(crate) const KERNEL_CHANNEL_STOP: c_int = 22;

/// Level and subsystem of the plugin's log lines: a warning during initialization.
pub(crate) const LOG_WARN: c_int = 2;
pub(crate) const LOG_INIT: c_ulong = 1;

/// NCCL's log function.
pub(crate) type Log = unsafe extern "C" fn(
    level: c_int,
    flags: c_ulong,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    ...
);

/// Payload of an event, from its third field on.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Body {
    pub(crate) collective: Collective,
    pub(crate) transfer: Transfer,
    pub(crate) kernel_channel: KernelChannel,
}

/// Event; `T` is the width of its type.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Event<T> {
    pub(crate) kind: T,
    pub(crate) parent: *mut c_void,
    pub(crate) rank: c_int,
    pub(crate) body: Body,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Collective {
    pub(crate) seq: u64,
    pub(crate) function: *const c_char,
    pub(crate) send: *const c_void,
    pub(crate) receive: *mut c_void,
    pub(crate) count: usize,
    pub(crate) root: c_int,
    pub(crate) datatype: *const c_char,
    pub(crate) channels: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Transfer {
    pub(crate) function: *const c_char,
    pub(crate) buffer: *mut c_void,
    pub(crate) datatype: *const c_char,
    pub(crate) count: usize,
    pub(crate) peer: c_int,
    pub(crate) channels: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelChannel {
    pub(crate) channel: u8,
    pub(crate) timer_ns: u64,
}

/// Arguments of a state, of which only a time is read.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct StateArgs {
    pub(crate) timer_ns: u64,
}

/// Version 4: the id of the communicator follows its name.
pub(crate) type InitV4 = extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Log>,
) -> c_int;

/// Version 5 and later: the id of the communicator comes first.
pub(crate) type InitV5 = extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Log>,
) -> c_int;

/// Table of functions that NCCL looks up.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<I, T> {
    pub(crate) name: *const c_char,
    pub(crate) init: I,
    pub(crate) start: extern "C" fn(*mut c_void, *mut *mut c_void, *const Event<T>) -> c_int,
    pub(crate) stop: extern "C" fn(*mut c_void) -> c_int,
    pub(crate) record: extern "C" fn(*mut c_void, c_int, *const StateArgs) -> c_int,
    pub(crate) finalize: extern "C" fn(*mut c_void) -> c_int,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_width_of_the_type_does_not_change_the_layout() {
        assert_eq!(offset_of!(Event<u8>, parent), 8);
        assert_eq!(offset_of!(Event<u64>, parent), 8);
        assert_eq!(offset_of!(Event<u8>, body), 24);
        assert_eq!(offset_of!(Event<u64>, body), 24);
        assert_eq!(offset_of!(Collective, channels), 56);
        assert_eq!(offset_of!(Transfer, channels), 36);
        assert_eq!(offset_of!(KernelChannel, timer_ns), 8);
    }
}
