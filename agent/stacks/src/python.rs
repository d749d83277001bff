//! Lines of a running Python program, from the memory of its interpreter.

use fleet_agent_core::event::Frame;
use py_spy::config::{Config, LockingStrategy};
use py_spy::{PythonSpy, StackTrace};
use remoteprocess::ProcessMemory;

use crate::mixed::PythonFrame;

/// Number of attempts to read the stacks of a program that changes them meanwhile.
const ATTEMPTS: usize = 3;

/// Offset of the thread id in glibc's description of a thread, to which the id in Python points.
#[cfg(target_arch = "x86_64")]
const TID_OFFSET: usize = 0x2d0;
#[cfg(target_arch = "aarch64")]
const TID_OFFSET: usize = 0xd0;

/// Reader of a Python program.
pub(crate) struct PythonReader {
    spy: PythonSpy,
}

/// Thread of a Python program.
pub(crate) struct PythonThread {
    /// Id in the innermost namespace of the process.
    pub(crate) tid: Option<u32>,
    /// Frames, innermost first.
    pub(crate) frames: Vec<PythonFrame>,
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
        Ok(Self { spy })
    }

    /// Reads the frames of all threads; `None` if they changed during each attempt.
    pub(crate) fn read(&mut self) -> Option<Vec<PythonThread>> {
        let traces = (0..ATTEMPTS).find_map(|_| self.spy.get_stack_traces().ok())?;
        Some(traces.iter().map(|trace| self.thread(trace)).collect())
    }

    fn thread(&self, trace: &StackTrace) -> PythonThread {
        let frames = trace.frames.iter().map(|frame| PythonFrame {
            is_entry: frame.is_entry || frame.is_shim_entry,
            frame: Frame::Python {
                file: frame.filename.clone(),
                line: u32::try_from(frame.line).unwrap_or(0),
                function: frame.name.clone(),
            },
        });
        PythonThread {
            tid: self.tid(trace),
            frames: frames.collect(),
        }
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
