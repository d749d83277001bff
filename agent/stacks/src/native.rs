//! Native stacks of the threads of one process.

use std::io;

use fleet_agent_core::event::Frame;
use remoteprocess::Process;

use crate::memory::{Pages, word};
use crate::registers::{self, Position, ThreadObserver};
use crate::symbols::Symbols;
use crate::unwind::{CodeAddress, ProcessUnwinder};

/// Number of attempts to read the stack of a thread that wakes up meanwhile.
const ATTEMPTS: usize = 3;

/// Reader of native stacks.
pub(crate) struct NativeReader {
    pid: u32,
    process: Process,
    unwinder: ProcessUnwinder,
    symbols: Symbols,
}

/// Native frames of a thread.
pub(crate) enum NativeStack {
    /// Innermost first, as far as they can be trusted.
    Known(Vec<Frame>),
    /// The thread has not been seen yet.
    Unknown,
    /// The thread moved on during each attempt.
    Torn,
}

impl NativeReader {
    /// Prepares to read a process.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let signed = i32::try_from(pid).map_err(io::Error::other)?;
        Ok(Self {
            pid,
            process: Process::new(signed).map_err(io::Error::other)?,
            unwinder: ProcessUnwinder::open(pid)?,
            symbols: Symbols::new(pid),
        })
    }

    /// Returns whether the process maps an interpreter of Python.
    pub(crate) fn is_python(&self) -> bool {
        self.unwinder.is_python()
    }

    /// Reads the stack of an observed thread.
    pub(crate) fn read(&mut self, tid: u32, thread: &mut ThreadObserver) -> NativeStack {
        for _ in 0..ATTEMPTS {
            let waiting = || registers::of_waiting_thread(self.pid, tid).map(Position::Waiting);
            let Some(position) = thread.position().or_else(waiting) else {
                return NativeStack::Unknown;
            };
            if let Some(addresses) = self.addresses(&position, thread) {
                return NativeStack::Known(self.frames(&addresses));
            }
        }
        NativeStack::Torn
    }

    /// Returns the addresses of a stack; `None` if the thread moved on meanwhile.
    fn addresses(
        &mut self,
        position: &Position,
        thread: &mut ThreadObserver,
    ) -> Option<Vec<CodeAddress>> {
        match position {
            Position::Waiting(registers) => {
                let mut pages = Pages::new(&self.process);
                let read = |address| pages.word(address);
                let addresses = self.unwinder.unwind(*registers, read);
                (!thread.read_switches()).then_some(addresses)
            }
            Position::Running(registers, stack) => {
                let read = |address: u64| {
                    let offset = usize::try_from(address.checked_sub(registers.sp)?).ok()?;
                    word(stack, offset)
                };
                Some(self.unwinder.unwind(*registers, read))
            }
        }
    }

    fn frames(&mut self, addresses: &[CodeAddress]) -> Vec<Frame> {
        let (symbols, unwinder) = (&mut self.symbols, &self.unwinder);
        let frames = addresses.iter();
        frames.map(|code| symbols.frame(*code, unwinder)).collect()
    }
}
