//! Tables that NCCL looks up by name, one per version of the interface. Converts pointers to
//! numbers and calls `profiler`.
//!
//! Nothing here panics; a panic would be caught here and not reach NCCL.
#![expect(
    unsafe_code,
    reason = "NCCL passes pointers, and finds the tables by their symbols"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::abi::{
    COLLECTIVE, Event, INVALID_USAGE, InitV4, InitV5, KERNEL_CHANNEL, KERNEL_CHANNEL_STOP,
    LOG_INIT, LOG_WARN, Log, MASK, SUCCESS, StateArgs, TRANSFER, Table,
};
use crate::comms::{Comm, Comms};
use crate::loader;
use crate::losses::Losses;
use crate::pool::Pool;
use crate::profiler::{Enqueued, Options, Profiler};
use crate::record::{self, RecordKind};
use crate::versions::{self, Interface, Refusal};

static COMMS: Comms = Comms::new();
static POOL: Pool = Pool::new();
static PROFILER: Profiler = Profiler::new(&COMMS, &POOL);

/// Addresses of NCCL's event masks: one per NCCL library in the process, and even two are unusual.
static MASKS: [AtomicPtr<c_int>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

const NAME: &CStr = c"fleet";

// SAFETY: the name is a constant, and functions can be called on any thread.
unsafe impl<I, T> Sync for Table<I, T> {}

const fn table<I, T>(
    init: I,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *const Event<T>) -> c_int,
) -> Table<I, T> {
    Table {
        name: NAME.as_ptr(),
        init,
        start,
        stop,
        record: record_state,
        finalize,
    }
}

/// Table for NCCL 2.27. (The name is that of the exported symbol.)
#[unsafe(no_mangle)]
pub(crate) static ncclProfiler_v4: Table<InitV4, u8> = table(init_v4, start_v4);

/// Table for NCCL 2.28.
#[unsafe(no_mangle)]
pub(crate) static ncclProfiler_v5: Table<InitV5, u64> = table(init_v5, start_v5);

/// Table for NCCL 2.29.
#[unsafe(no_mangle)]
pub(crate) static ncclProfiler_v6: Table<InitV5, u64> = table(init_v6, start_v5);

/// Table for NCCL 2.31.
#[unsafe(no_mangle)]
pub(crate) static ncclProfiler_v7: Table<InitV5, u64> = table(init_v7, start_v5);

/// Arguments of the initialization for a communicator.
struct InitArgs {
    context: *mut *mut c_void,
    mask: *mut c_int,
    id: u64,
    nranks: c_int,
    rank: c_int,
    log: Option<Log>,
}

/// Catches a panic before it reaches NCCL.
fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Losses::increment(&PROFILER.losses.failures);
        otherwise
    })
}

extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    id: u64,
    _n_nodes: c_int,
    nranks: c_int,
    rank: c_int,
    log: Option<Log>,
) -> c_int {
    let args = InitArgs {
        context,
        mask,
        id,
        nranks,
        rank,
        log,
    };
    guarded(INVALID_USAGE, || init(&args, Interface::V4))
}

macro_rules! init_from_v5 {
    ($name:ident, $interface:expr) => {
        extern "C" fn $name(
            context: *mut *mut c_void,
            id: u64,
            mask: *mut c_int,
            _name: *const c_char,
            _n_nodes: c_int,
            nranks: c_int,
            rank: c_int,
            log: Option<Log>,
        ) -> c_int {
            let args = InitArgs {
                context,
                mask,
                id,
                nranks,
                rank,
                log,
            };
            guarded(INVALID_USAGE, || init(&args, $interface))
        }
    };
}

init_from_v5!(init_v5, Interface::V5);
init_from_v5!(init_v6, Interface::V6);
init_from_v5!(init_v7, Interface::V7);

fn init(args: &InitArgs, interface: Interface) -> c_int {
    if args.context.is_null() || args.mask.is_null() {
        return INVALID_USAGE;
    }
    // SAFETY: NCCL passes an address for the context, and it is not null.
    unsafe { args.context.write(ptr::null_mut()) };
    let is_forced = variable("FLEET_NCCL_ANY_VERSION").is_some_and(|value| value == "1");
    let checked = versions::check(loader::nccl_version(args.log), interface);
    if let Err(refusal) = checked
        && !is_forced
    {
        log_refusal(args.log, refusal);
        return INVALID_USAGE;
    }
    PROFILER.configure(Options {
        socket: variable("FLEET_NCCL_SOCKET"),
        off_file: variable("FLEET_NCCL_OFF_FILE"),
    });
    let is_off = PROFILER.is_off();
    set_mask(args.mask, if is_off { 0 } else { MASK });
    if is_off {
        PROFILER.withdraw();
    }
    let number = |number: c_int| u32::try_from(number).unwrap_or(0);
    let comm = Comm {
        id: args.id,
        rank: number(args.rank),
        nranks: number(args.nranks),
        nth: 0,
    };
    if let Some(handle) = PROFILER.join(comm) {
        // SAFETY: as above.
        unsafe { args.context.write(pointer(handle)) };
    }
    remember_mask(args.mask);
    SUCCESS
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plugin is configured only by the environment"
)]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn log_refusal(log: Option<Log>, refusal: Refusal) {
    let text = match refusal {
        Refusal::SlowsCollectives => {
            c"fleet: profiling disabled: a profiler slows down small collectives of NCCL 2.31 (NCCL issue 2355); set FLEET_NCCL_ANY_VERSION=1 to profile anyway"
        }
        Refusal::TooOld => c"fleet: profiling disabled: NCCL before 2.27 does not report GPU times",
        Refusal::Unknown => {
            c"fleet: profiling disabled: the NCCL version is unknown; set FLEET_NCCL_ANY_VERSION=1 to profile anyway"
        }
    };
    if let Some(log) = log {
        // SAFETY: NCCL's own function, with static C strings and a format without arguments.
        unsafe {
            log(LOG_WARN, LOG_INIT, c"fleet".as_ptr(), 0, text.as_ptr());
        }
    }
}

fn set_mask(mask: *mut c_int, value: c_int) {
    // SAFETY: NCCL passes the address of an aligned number that lives as long as its library, and
    // reads it atomically.
    let mask = unsafe { AtomicI32::from_ptr(mask) };
    mask.store(value, Ordering::Relaxed);
}

/// Stores the address of a mask for when the plugin is disabled.
fn remember_mask(mask: *mut c_int) {
    for slot in &MASKS {
        let null = ptr::null_mut();
        match slot.compare_exchange(null, mask, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(known) if known == mask => return,
            Err(_) => {}
        }
    }
}

/// Unsubscribes from all events.
fn unsubscribe() {
    for slot in &MASKS {
        let mask = slot.load(Ordering::Acquire);
        if !mask.is_null() {
            set_mask(mask, 0);
        }
    }
}

extern "C" fn start_v4(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Event<u8>,
) -> c_int {
    guarded(SUCCESS, || start(context, handle, event))
}

extern "C" fn start_v5(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Event<u64>,
) -> c_int {
    guarded(SUCCESS, || start(context, handle, event))
}

fn start<T: Copy + Into<u64>>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Event<T>,
) -> c_int {
    if handle.is_null() {
        return SUCCESS;
    }
    // SAFETY: NCCL passes the address of an event of this version, or none.
    let started = unsafe { event.as_ref() }.and_then(|event| started(bits(context), event));
    // SAFETY: NCCL passes an address for the handle, and it is not null.
    unsafe { handle.write(pointer(started.unwrap_or(0))) };
    SUCCESS
}

fn started<T: Copy + Into<u64>>(context: u64, event: &Event<T>) -> Option<u64> {
    match event.kind.into() {
        COLLECTIVE => {
            // SAFETY: the type determines which part of the union NCCL has written.
            let collective = unsafe { event.body.collective };
            let enqueued = Enqueued {
                kind: RecordKind::Collective,
                nccl_seq: collective.seq,
                function: record::function(text(collective.function)),
                count: collective.count as u64,
                datatype: record::datatype(text(collective.datatype)),
                peer: collective.root,
                channels: collective.channels,
            };
            PROFILER.enqueue(context, &enqueued)
        }
        TRANSFER => {
            // SAFETY: as above.
            let transfer = unsafe { event.body.transfer };
            let enqueued = Enqueued {
                kind: RecordKind::Transfer,
                nccl_seq: 0,
                function: record::function(text(transfer.function)),
                count: transfer.count as u64,
                datatype: record::datatype(text(transfer.datatype)),
                peer: transfer.peer,
                channels: transfer.channels,
            };
            PROFILER.enqueue(context, &enqueued)
        }
        KERNEL_CHANNEL => {
            // SAFETY: as above.
            let kernel = unsafe { event.body.kernel_channel };
            PROFILER.started(bits(event.parent), kernel.channel, kernel.timer_ns)
        }
        _ => None,
    }
}

/// The stop of a collective only means that it was enqueued; the stop of a channel is a state with
/// a time.
extern "C" fn stop(_handle: *mut c_void) -> c_int {
    SUCCESS
}

extern "C" fn record_state(handle: *mut c_void, state: c_int, args: *const StateArgs) -> c_int {
    guarded(SUCCESS, || {
        if state == KERNEL_CHANNEL_STOP {
            // SAFETY: with this state NCCL passes the address of a time, or nothing.
            let args = unsafe { args.as_ref() };
            let is_over = args.is_some_and(|args| PROFILER.stopped(bits(handle), args.timer_ns));
            if is_over && PROFILER.is_off() {
                unsubscribe();
                PROFILER.withdraw();
            }
        }
        SUCCESS
    })
}

extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(SUCCESS, || {
        if PROFILER.leave(bits(context)) {
            // NCCL may be unloaded now, together with its masks.
            for slot in &MASKS {
                slot.store(ptr::null_mut(), Ordering::Release);
            }
        }
        SUCCESS
    })
}

/// Text behind a pointer, or nothing.
fn text<'a>(pointer: *const c_char) -> &'a [u8] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: NCCL passes its own constants.
    unsafe { CStr::from_ptr(pointer) }.to_bytes()
}

fn bits(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "NCCL runs on machines of 64 bits"
)]
fn pointer(bits: u64) -> *mut c_void {
    ptr::without_provenance_mut(bits as usize)
}
