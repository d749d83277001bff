//! Registers of a thread, from perf events of this thread alone. Nothing else on the host pays for
//! them, and nothing stops.

use std::{fs, io};

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Registers that lead to the callers, in the order of their bits: frame pointer, stack pointer,
/// instruction pointer.
#[cfg(target_arch = "x86_64")]
const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// The same, with the link register after the frame pointer.
#[cfg(target_arch = "aarch64")]
const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// Copied part of the stack of a running thread, bytes.
const STACK_BYTES: u32 = 16 * 1024;
/// CPU time of the thread between two of its samples, nanoseconds.
const PERIOD_NS: u64 = 10_000_000;
/// Ring of the context switches, bytes: some two thousand between two reads.
const SWITCH_RING: usize = 128 * 1024;
/// Ring of the samples while running, bytes.
const CLOCK_RING: usize = 128 * 1024;
/// `PERF_RECORD_SWITCH`, of which the library has no type: it consists of its header.
const SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const SWITCH_OUT: u16 = 1 << 13;

/// Registers of a thread in its program, whatever it does in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// Return address of the function, on architectures that keep it in a register.
    pub(crate) lr: u64,
}

/// What a thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    /// It does not run; its stack is in its memory.
    Waiting(Registers),
    /// It runs; its stack as it was at its last sample, from the stack pointer on.
    Running(Registers, Vec<u8>),
}

/// Registers of a thread that has waited since before it was observed: without its frame pointer,
/// so that its stack may end early. `None` if it runs.
pub(crate) fn of_waiting_thread(pid: u32, tid: u32) -> Option<Registers> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    // A number, its arguments if there are any, the stack pointer, the instruction pointer.
    let mut words = text.split_whitespace().rev();
    let mut address = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (ip, sp) = (address()?, address()?);
    Some(Registers {
        ip,
        sp,
        fp: 0,
        lr: 0,
    })
}

/// Observer of one thread. Dropping it ends the events.
pub(crate) struct ThreadObserver {
    switches: Sampler,
    clock: Sampler,
    is_waiting: bool,
    waiting: Option<Registers>,
    running: Option<(Registers, Vec<u8>)>,
}

impl ThreadObserver {
    /// Starts to observe a thread.
    pub(crate) fn start(tid: u32) -> io::Result<Self> {
        let tid = i32::try_from(tid).map_err(io::Error::other)?;
        let mut switches = Builder::new(Software::CONTEXT_SWITCHES);
        switches.sample_period(1).context_switch(true);
        let mut clock = Builder::new(Software::TASK_CLOCK);
        clock
            .sample_period(PERIOD_NS)
            .sample(SampleFlag::STACK_USER)
            .sample_stack_user(STACK_BYTES);
        let open = |builder: &mut Builder<'_>, ring: usize| {
            builder
                .observe_pid(tid)
                .any_cpu()
                .sample(SampleFlag::REGS_USER)
                .sample_regs_user(MASK)
                // A thread that waits does so in the kernel.
                .exclude_kernel(false)
                .exclude_hv(true)
                .enabled(true);
            builder.build()?.sampled(ring)
        };
        Ok(Self {
            switches: open(&mut switches, SWITCH_RING)?,
            clock: open(&mut clock, CLOCK_RING)?,
            is_waiting: false,
            waiting: None,
            running: None,
        })
    }

    /// Returns what the thread does now; `None` if it neither ran nor waited anew since the start,
    /// or if records were lost.
    pub(crate) fn position(&mut self) -> Option<Position> {
        self.read_switches();
        let mut latest = None;
        while let Some(record) = self.clock.next_record() {
            if let Ok(Record::Sample(sample)) = record.parse_record() {
                let registers = sample.regs_user().and_then(|regs| registers(&regs.regs));
                latest = registers.zip(sample.stack_user().map(<[u8]>::to_vec));
            }
        }
        if self.is_waiting {
            self.running = None;
            return self.waiting.map(Position::Waiting);
        }
        // A running thread has a sample since the last read, except if it has just begun to run.
        let (registers, stack) = latest.or_else(|| self.running.take())?;
        Some(Position::Running(registers, stack))
    }

    /// Reads the context switches since the last call and returns whether there were any: whether
    /// the stack of a thread that waited may have changed.
    pub(crate) fn read_switches(&mut self) -> bool {
        let mut has_switched = false;
        while let Some(record) = self.switches.next_record() {
            has_switched = true;
            if record.ty() == SWITCH {
                self.is_waiting = record.misc() & SWITCH_OUT != 0;
                continue;
            }
            // Of lost records nothing is known; the next switch is known again.
            self.waiting = match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    sample.regs_user().and_then(|regs| registers(&regs.regs))
                }
                _ => None,
            };
        }
        has_switched
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(values: &[u64]) -> Option<Registers> {
    let [fp, sp, ip] = *values else { return None };
    Some(Registers { ip, sp, fp, lr: 0 })
}

#[cfg(target_arch = "aarch64")]
fn registers(values: &[u64]) -> Option<Registers> {
    let [fp, lr, sp, ip] = *values else {
        return None;
    };
    Some(Registers { ip, sp, fp, lr })
}
