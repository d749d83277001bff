//! Sampler of the threads of one process.

use fleet_agent_core::event::{CallProbes, Frame, InFlight, StackSample};

use crate::clock::monotonic_ns;
use crate::error::StackError;
use crate::in_call::{InCall, read_in_call};
use crate::kernel::uninterruptible_wait;
use crate::mixed::{gpu_call, mix, remaining};
use crate::namespace::namespace_tid;
use crate::native::{NativeReader, NativeStack};
use crate::python::PythonReader;
use crate::registers::ThreadObserver;
use crate::sums::{Sampled, StackSums};
use crate::workers::Workers;

/// Sampler of some threads of a process.
pub struct Sampler {
    pid: u32,
    threads: Vec<Thread>,
    python: Result<PythonReader, String>,
    native: NativeReader,
    no_native: Option<String>,
    workers: Workers,
    sums: StackSums,
    counts: Counts,
}

/// Sampled thread.
struct Thread {
    tid: u32,
    /// Its id in the innermost namespace of the process.
    own_tid: u32,
    observer: Option<ThreadObserver>,
    /// Entry of the call that was read last, nanoseconds.
    read_call_ns: Option<u64>,
}

/// Counts of samples of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Stacks that were read, at least in part.
    pub samples: u64,
    /// Reads during which the thread moved on, even after retries. The sample is missing, or its
    /// Python lines or native functions.
    pub torn: u64,
    /// Samples without a stack, or with one more than are kept.
    pub dropped: u64,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("pid", &self.pid)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// Starts to observe some threads of a process.
    pub fn open(pid: u32, tids: &[u32]) -> Result<Self, StackError> {
        let unreadable = |source| StackError::of_file(pid, "maps", source);
        let native = NativeReader::open(pid).map_err(unreadable)?;
        let mut threads = Vec::new();
        let mut no_native = None;
        for tid in tids {
            let own_tid = namespace_tid(pid, *tid)?;
            let observer = ThreadObserver::start(*tid)
                .inspect_err(|error| no_native = Some(format!("no native functions: {error}")));
            threads.push(Thread {
                tid: *tid,
                own_tid,
                observer: observer.ok(),
                read_call_ns: None,
            });
        }
        let mut python = PythonReader::open(pid).map_err(|reason| {
            if native.is_python() {
                format!("no Python lines: {reason}")
            } else {
                "not a Python program".to_owned()
            }
        });
        if let (Err(python), Some(native)) = (&python, &no_native) {
            let (python, native) = (python.clone(), native.clone());
            return Err(StackError::Nothing {
                pid,
                python,
                native,
            });
        }
        if let Ok(reader) = &mut python {
            // Finds the threads, which takes longer than to read them.
            for thread in &threads {
                let _not_yet = reader.read(thread.own_tid);
            }
        }
        Ok(Self {
            pid,
            threads,
            python,
            native,
            no_native,
            workers: Workers::new(pid),
            sums: StackSums::default(),
            counts: Counts::default(),
        })
    }

    /// Returns the reasons why a part of the stacks is missing.
    pub fn limits(&self) -> Vec<String> {
        let no_python = self.python.as_ref().err().cloned();
        no_python
            .into_iter()
            .chain(self.no_native.clone())
            .collect()
    }

    /// Returns the counts so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Samples each thread once, at `now_ns` of the events' clock, with what probes know of its calls.
    pub fn sample(&mut self, now_ns: u64, probes: &impl CallProbes) -> Result<(), StackError> {
        if self.python.is_ok() {
            self.workers.sample(now_ns);
        }
        let mut has_any = false;
        for index in 0..self.threads.len() {
            has_any |= self.sample_thread(index, now_ns, probes);
        }
        if !has_any {
            // Nothing can be read of a process that has exited.
            namespace_tid(self.pid, self.pid).map_err(|error| match error {
                StackError::NoProcess { pid } | StackError::NoThread { pid, .. } => {
                    StackError::Exited { pid }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    /// Returns the stacks since the last call, most frequent first, and those of its worker processes.
    pub fn take(&mut self) -> Vec<StackSample> {
        let mut samples = self.sums.take(self.pid);
        samples.extend(self.workers.take());
        samples
    }

    /// Reads the Python lines of each thread that is now in a call of a watched function, once per
    /// call.
    pub(crate) fn read_calls(
        &mut self,
        now_ns: u64,
        probes: &impl CallProbes,
        is_watched: impl Fn(&str) -> bool,
    ) {
        let Ok(python) = &mut self.python else {
            return;
        };
        for thread in &mut self.threads {
            let in_flight = || probes.in_flight(self.pid, thread.tid);
            let InFlight::Call {
                function,
                entered_ns,
            } = in_flight()
            else {
                continue;
            };
            if !is_watched(function) || thread.read_call_ns.replace(entered_ns) == Some(entered_ns)
            {
                continue;
            }
            let (lines, in_call) =
                read_in_call(monotonic_ns, in_flight, || python.read(thread.own_tid));
            let lines = lines.filter(|lines| !lines.is_empty());
            if let (Some(lines), InCall::Of(function)) = (lines, in_call) {
                let sampled = Sampled {
                    tid: thread.tid,
                    is_outside: false,
                    is_awaited: true,
                    call: Some(function.to_owned()),
                    stack: mix(Vec::new(), lines),
                };
                // Without space for another stack, the others are enough.
                let _added = self.sums.add(sampled, now_ns);
            }
        }
    }

    /// Samples a thread and returns whether it has a stack. The native functions are read before the
    /// Python lines, and those that the thread has left since are dropped.
    fn sample_thread(&mut self, index: usize, now_ns: u64, probes: &impl CallProbes) -> bool {
        let Some(thread) = self.threads.get_mut(index) else {
            return false;
        };
        let native = match &mut thread.observer {
            Some(observer) => self.native.read(thread.tid, observer),
            None => NativeStack::Unknown,
        };
        let in_flight = || probes.in_flight(self.pid, thread.tid);
        let (python, in_call) = read_in_call(monotonic_ns, in_flight, || match &mut self.python {
            Ok(reader) => reader.read(thread.own_tid),
            Err(_) => Some(Vec::new()),
        });
        self.counts.torn += u64::from(python.is_none());
        if let InCall::Left(_) = in_call {
            // Its line is not known.
            self.counts.torn += 1;
            return python.is_some();
        }
        let python = python.unwrap_or_default();
        let mut is_known = false;
        let native = match (native, &mut thread.observer) {
            (NativeStack::Known(calls), Some(observer)) => {
                // Names are looked up last, since that takes long the first time.
                let unchanged = self.native.unchanged(&calls, observer);
                let frames = self.native.frames(&calls);
                is_known = !frames.iter().any(Frame::is_of_gpu_library);
                if python.is_empty() {
                    frames
                } else {
                    remaining(frames, unchanged)
                }
            }
            (NativeStack::Torn, _) => {
                self.counts.torn += 1;
                Vec::new()
            }
            _ => Vec::new(),
        };
        let mut stack = mix(native, python);
        if let Some(wait) = uninterruptible_wait(self.pid, thread.tid) {
            stack.frames.insert(0, wait);
        }
        let has_frames = !stack.frames.is_empty();
        let call = match in_call {
            InCall::Of(function) => Some(function.to_owned()),
            _ => gpu_call(&stack),
        };
        let sampled = Sampled {
            tid: thread.tid,
            is_outside: in_call == InCall::Outside && is_known,
            is_awaited: false,
            call,
            stack,
        };
        if has_frames && self.sums.add(sampled, now_ns) {
            self.counts.samples += 1;
        } else {
            self.counts.dropped += 1;
        }
        has_frames
    }
}
