//! Ranks of a job, and their exit status.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Failures of ranks in this process.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics if a rank has failed. Called by every wait for a rank, which would otherwise not end.
#[track_caller]
pub(crate) fn assert_no_failures() {
    let failures = FAILURES.lock().unwrap().clone();
    assert!(failures.is_empty(), "{failures:?}");
}

/// Longest time in which nothing happens. The runner allows a test ten minutes, and then ends it without saying why.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Pause between two looks at what is waited for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Looks for something until it is found; an error is what was seen instead. Panics after a minute,
/// or if a rank has failed.
#[track_caller]
pub(crate) fn wait_for<T, S: Display>(what: &str, look: impl FnMut() -> Result<T, S>) -> T {
    wait_for_within(0, || 0, what, look)
}

/// Looks for something that the work of a job leads to, however slowly a busy machine does that work. Panics when `done`
/// has grown by more than `most` or has not grown for a minute, or if a rank has failed.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "what is waited for happens in other processes, in real time"
)]
pub(crate) fn wait_for_within<T, S: Display>(
    most: u64,
    done: impl Fn() -> u64,
    what: &str,
    mut look: impl FnMut() -> Result<T, S>,
) -> T {
    let (began, before) = (Instant::now(), done());
    let (mut grown, mut grew) = (0, began);
    loop {
        assert_no_failures();
        let seen = match look() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        let now = done().saturating_sub(before);
        if now > grown {
            (grown, grew) = (now, Instant::now());
        }
        assert!(
            grown <= most && grew.elapsed() < LONGEST_WAIT,
            "waited {:?} for {what}, while {grown} of {most} were done; last seen: {seen}",
            began.elapsed()
        );
        // A look takes time from the processes that are waited for.
        thread::sleep((began.elapsed() / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

/// Process, waited for from its start.
#[derive(Debug)]
struct Rank {
    pid: u32,
    ending: JoinHandle<String>,
    is_over: Arc<AtomicBool>,
}

impl Rank {
    fn start(mut command: Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        Self {
            pid: child.id(),
            ending: thread::spawn({
                let is_over = Arc::clone(&is_over);
                move || wait(child, &is_over)
            }),
            is_over,
        }
    }
}

/// Returns a rank's output; if it fails before the job is dropped, the failure is recorded.
fn wait(mut child: Child, is_over: &AtomicBool) -> String {
    let (mut output, mut errors) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut output)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    let status = child.wait().unwrap();
    if !status.success() && !is_over.load(Ordering::Relaxed) {
        let pid = child.id();
        FAILURES
            .lock()
            .unwrap()
            .push(format!("process {pid}: {status}: {errors}"));
    }
    output
}

/// Running ranks.
#[derive(Debug)]
pub(crate) struct Job {
    ranks: Vec<Rank>,
    /// File that the ranks wait for before they join their communicators.
    pub(crate) gate: PathBuf,
    /// Number of probed files per rank.
    pub(crate) libraries: usize,
}

impl Job {
    /// Starts the ranks.
    pub(crate) fn start(commands: impl Iterator<Item = Command>, gate: PathBuf) -> Self {
        Self {
            ranks: commands.map(Rank::start).collect(),
            gate,
            libraries: 2,
        }
    }

    /// Opens the gate.
    pub(crate) fn release(&self) {
        fs::write(&self.gate, "").unwrap();
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.pid).collect()
    }

    /// Ends a rank by a signal, and waits for its end.
    pub(crate) fn end(&self, rank: usize, signal: Signal) {
        let rank = &self.ranks[rank];
        rank.is_over.store(true, Ordering::Relaxed);
        let pid = i32::try_from(rank.pid).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
        wait_for("the end of the rank", || {
            rank.ending.is_finished().then_some(()).ok_or("it runs")
        });
    }

    /// Waits for the end; returns what each process printed.
    pub(crate) fn outputs(mut self) -> Vec<String> {
        let outputs = self.ranks.drain(..).map(|rank| {
            let output = rank.ending.join().unwrap();
            assert_no_failures();
            output
        });
        outputs.collect()
    }

    /// Waits for the end; returns the collectives that each rank issued, by process.
    pub(crate) fn issued(mut self) -> BTreeMap<u32, u64> {
        let mut issued = BTreeMap::new();
        for rank in self.ranks.drain(..) {
            let line = rank.ending.join().unwrap();
            assert_no_failures();
            let collectives = line
                .split_whitespace()
                .nth(2)
                .unwrap_or_else(|| panic!("{line:?}"));
            issued.insert(rank.pid, collectives.parse().unwrap());
        }
        issued
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in self.ranks.drain(..) {
            rank.is_over.store(true, Ordering::Relaxed);
            // Only a rank left by a failed test still runs.
            if !rank.ending.is_finished()
                && let Some(pid) = i32::try_from(rank.pid).ok().and_then(Pid::from_raw)
            {
                let _ended = kill_process(pid, Signal::KILL);
            }
            let _output = rank.ending.join();
        }
    }
}
