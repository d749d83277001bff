//! Lines of a running Python program, from the memory of its interpreter.

use std::collections::HashMap;

use fleet_agent_core::event::Frame;
use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};
use remoteprocess::ProcessMemory;

use crate::mixed::PythonFrame;
use crate::thread_state;

/// Number of attempts to read the stacks of a program that changes them meanwhile.
const ATTEMPTS: usize = 3;

/// Offset of the thread id in glibc's description of a thread, to which the id in Python points.
#[cfg(target_arch = "x86_64")]
const TID_OFFSET: usize = 0x2d0;
#[cfg(target_arch = "aarch64")]
const TID_OFFSET: usize = 0xd0;

/// Maximum number of thread states that are tried to find a thread.
const MAX_TRIED: usize = 256;

/// Reader of a Python program.
pub(crate) struct PythonReader {
    spy: PythonSpy,
    /// Address by which `py-spy` finds the holder of the GIL.
    gil: usize,
    threads: HashMap<u32, Found>,
}

/// Place of a thread's state.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// Address to be set as that of the GIL.
    At(usize),
    /// The thread does not run Python; it is searched again after so many reads.
    Nowhere(usize),
}

impl PythonReader {
    /// Finds the interpreter of a process, or returns the reason why there is none.
    pub(crate) fn open(pid: u32) -> Result<Self, String> {
        let signed = i32::try_from(pid).map_err(|error| error.to_string())?;
        let config = Config {
            // The process is never stopped.
            blocking: LockingStrategy::NonBlocking,
            collect_thread_names: false,
            full_filenames: true,
            ..Config::default()
        };
        // The innermost cause is the most precise.
        let spy = PythonSpy::new(signed, &config).map_err(|error| format!("{error:#}"))?;
        let gil = spy.addresses.threadstate_address;
        Ok(Self {
            spy,
            gil,
            threads: HashMap::new(),
        })
    }

    /// Reads the frames of a thread, innermost first, by its id in the innermost namespace of the
    /// process. None if it does not run Python; `None` if they changed during each attempt.
    pub(crate) fn read(&mut self, tid: u32) -> Option<Vec<PythonFrame>> {
        match self.threads.get_mut(&tid) {
            Some(Found::Nowhere(reads)) if *reads > 0 => {
                *reads -= 1;
                return Some(Vec::new());
            }
            Some(Found::At(address)) => {
                let address = *address;
                if let Some(trace) = self.read_at(address)
                    && self.tid(&trace) == Some(tid)
                {
                    return Some(frames(&trace));
                }
            }
            Some(Found::Nowhere(_)) | None => {}
        }
        self.threads.remove(&tid);
        match self.find(tid) {
            Some(frames) => Some(frames),
            None => self.read_in_all(tid),
        }
    }

    /// Finds the state of a thread and reads its frames; `None` if not all states can be read.
    fn find(&mut self, tid: u32) -> Option<Vec<PythonFrame>> {
        let interpreter = self.spy.addresses.interpreter_address;
        let pointers = thread_state::pointers(&self.spy.process, interpreter);
        let n_threads = pointers.len();
        let mut n_read = 0;
        for pointer in pointers.into_iter().take(MAX_TRIED) {
            let address = pointer - self.before_holder();
            let Some(trace) = self.read_at(address) else {
                continue;
            };
            n_read += 1;
            if self.tid(&trace) == Some(tid) {
                self.threads.insert(tid, Found::At(address));
                return Some(frames(&trace));
            }
        }
        let is_none = n_read > 0 && n_read == n_threads;
        is_none.then(|| {
            self.threads.insert(tid, Found::Nowhere(n_threads));
            Vec::new()
        })
    }

    /// Bytes before the holder of the GIL: from 3.12 on, it is the second word of a description.
    const fn before_holder(&self) -> usize {
        if self.spy.version.minor >= 12 { 8 } else { 0 }
    }

    /// Reads the thread whose state an address leads to.
    fn read_at(&mut self, address: usize) -> Option<StackTrace> {
        self.spy.config.gil_only = true;
        self.spy.addresses.threadstate_address = address;
        let traces = (0..ATTEMPTS).find_map(|_| self.spy.get_stack_traces().ok());
        self.spy.config.gil_only = false;
        self.spy.addresses.threadstate_address = self.gil;
        traces?.pop()
    }

    fn read_in_all(&mut self, tid: u32) -> Option<Vec<PythonFrame>> {
        let traces = (0..ATTEMPTS).find_map(|_| self.spy.get_stack_traces().ok())?;
        let own = traces.iter().find(|trace| self.tid(trace) == Some(tid));
        Some(own.map(frames).unwrap_or_default())
    }

    /// Returns the id of a thread. Python stores it from 3.11 on.
    fn tid(&self, trace: &StackTrace) -> Option<u32> {
        let stored = trace.os_thread_id.and_then(|tid| u32::try_from(tid).ok());
        stored.or_else(|| {
            let description = usize::try_from(trace.thread_id).ok()?;
            let address = description.checked_add(TID_OFFSET)?;
            self.spy.process.copy_struct::<u32>(address).ok()
        })
    }
}

fn frames(trace: &StackTrace) -> Vec<PythonFrame> {
    let frames = trace.frames.iter();
    frames
        .map(|frame| PythonFrame {
            is_entry: frame.is_entry || frame.is_shim_entry,
            frame: Frame::Python {
                file: frame.filename.clone(),
                line: u32::try_from(frame.line).unwrap_or(0),
                function: frame.name.clone(),
            },
        })
        .collect()
}
