//! Where a process was while it lost time.

use std::collections::BTreeMap;

use crate::event::{Frame, Stack};
use crate::explain::cause::Cause;
use crate::explain::observation::Observation;
use crate::statistics::ratio;

/// Beginnings of the names of functions in which a thread waits for another one.
const WAITS: [&str; 4] = ["pthread_cond_", "pthread_mutex_", "sem_", "__lll_lock_wait"];

/// Files of Python's library whose functions wait for another process or thread.
const WAITING: [&str; 6] = [
    "connection.py",
    "queue.py",
    "queues.py",
    "resource_tracker.py",
    "selectors.py",
    "threading.py",
];

/// Where a process was while it lost time.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Function of a GPU library that the thread was in; `None` outside of them.
    pub call: Option<String>,
    /// Stack that it had most often there.
    pub stack: Stack,
    /// Share of the samples with the same call and line, 0 to 1; 0 if it was only read in a call that
    /// was waited for.
    pub share: f64,
}

/// Function of a GPU library and innermost line.
type Spot<'a> = (Option<&'a str>, Option<&'a Frame>);

impl Place {
    /// Finds where the process was most often: in calls of a cause, or outside of calls if the cause
    /// is no kind of calls, at `line` if it is given.
    pub(super) fn of(cause: Cause, line: Option<&Frame>, seen: &Observation) -> Option<Self> {
        let mut spots: BTreeMap<Spot<'_>, u64> = BTreeMap::new();
        for ((call, stack), samples) in &seen.stacks {
            let (call, own) = (call.as_deref(), stack.python_line());
            let is_of_cause = match call {
                Some(function) => cause.is_call() && cause.has_function(function),
                None => !cause.is_call() && !has_gpu_library(stack),
            };
            // Threads of libraries wait for work most of the time.
            let is_of_program = own.is_some() || cause.is_call();
            let is_wait = cause == Cause::OwnProgram && own.is_some_and(waits);
            if is_of_cause && is_of_program && !is_wait && (line.is_none() || line == own) {
                let sum = spots.entry((call, own)).or_default();
                *sum = sum.saturating_add(*samples);
            }
        }
        let (spot, samples) = spots.into_iter().max_by_key(|(_, samples)| *samples)?;
        let at_spot = seen
            .stacks
            .iter()
            .filter(|((call, stack), _)| (call.as_deref(), stack.python_line()) == spot);
        let ((call, stack), _) = at_spot.max_by_key(|(_, samples)| **samples)?;
        Some(Self {
            call: call.clone(),
            stack: stack.clone(),
            share: ratio(samples, program_samples(seen)),
        })
    }

    /// Finds the copies that the process was in most often at this place, or at a line that called it.
    pub(super) fn copies(&self, seen: &Observation) -> Option<Self> {
        let lines = self.stack.frames.iter().filter(|frame| frame.is_python());
        let copies = lines.filter_map(|line| Self::of(Cause::Copies, Some(line), seen));
        copies.max_by(|a, b| a.share.total_cmp(&b.share))
    }

    /// Returns the function and the lines of the program, innermost first; without such lines the
    /// native functions.
    pub fn lines(&self) -> Vec<String> {
        let call = self.call.iter().cloned();
        call.chain(self.stack.outline()).collect()
    }
}

/// Returns the number of samples of threads that run the program, or of all threads if none of them
/// has a line.
pub(super) fn program_samples(seen: &Observation) -> u64 {
    let with_line = seen.stacks.iter();
    let with_line = with_line.filter(|((_, stack), _)| stack.python_line().is_some());
    match with_line.map(|(_, samples)| *samples).sum() {
        0 => seen.stacks.values().copied().sum(),
        with_line => with_line,
    }
}

/// Returns whether more than half of the samples of threads that run the program are in libraries of the GPU
/// stack.
pub(super) fn is_mostly_in_gpu_library(seen: &Observation) -> bool {
    let of_program = seen.stacks.iter();
    let of_program = of_program.filter(|((_, stack), _)| stack.python_line().is_some());
    let inside = of_program.filter(|((call, stack), _)| call.is_some() || has_gpu_library(stack));
    let inside: u64 = inside.map(|(_, samples)| *samples).sum();
    inside.saturating_mul(2) > program_samples(seen)
}

/// Returns whether the thread was waiting for another one.
pub(super) fn waits_for_thread(stack: &Stack) -> bool {
    let native = stack.frames.iter().take_while(|frame| !frame.is_python());
    native.into_iter().any(|frame| {
        matches!(frame, Frame::Native { symbol: Some(name), .. } if WAITS.iter().any(|start| name.starts_with(start)))
    })
}

/// Returns whether the thread was in a library of the GPU stack, even in a function without a
/// symbol.
pub(super) fn has_gpu_library(stack: &Stack) -> bool {
    let mut innermost = stack.frames.iter().take_while(|frame| !frame.is_python());
    innermost.any(Frame::is_of_gpu_library)
}

/// Returns whether a line waits for another process or thread.
pub(super) fn waits(line: &Frame) -> bool {
    let Frame::Python { file, .. } = line else {
        return false;
    };
    let name = file.rsplit('/').next().unwrap_or(file);
    WAITING.contains(&name)
}
