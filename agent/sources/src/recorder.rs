//! From what a watch sees to the lines of a recording. It reads of each new process where it belongs, and nothing else.

pub mod file;
pub mod header;
mod line;
mod windows;

use std::collections::{BTreeSet, VecDeque};

use crate::functions;
use crate::live::assemble::{Assembler, Seen};
use crate::live::jobs::Jobs;
use crate::live::preexisting::Older;
use crate::process::Processes;
use crate::watch::Look;
use fleet_agent_bpf::layout::{CallRecord, CallSum};
use fleet_agent_core::event::{CallKind, CommState, Event, Process};

use crate::recorder::line::{Line, Part};
use crate::recorder::windows::Windows;

/// A call that lasts longer is written in two parts, so that what follows does not pile up behind it, nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Time between two readings of what is summed up in the kernel, nanoseconds.
const WINDOW_NS: u64 = 100_000_000;
/// A recording without a line for an hour would pass for damaged, nanoseconds.
const QUIET_NS: u64 = 1_800_000_000_000;
/// Processes that the header has room for.
pub const MAX_PROCESSES: usize = 256;

/// What was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Library calls, those that have not returned among them.
    pub calls: u64,
    /// Windows of launches and copies.
    pub windows: u64,
    /// Events that the kernel could not tell.
    pub lost: u64,
    /// Operations on communicators made before the recording began.
    pub unknown_comm_ops: u64,
    /// Processes that call NCCL and whose rank nobody knows.
    pub unplaced: usize,
    /// Processes that found no room in the header, or had the id of one that is there.
    pub left_out: usize,
}

/// Puts what looks saw into order and words.
#[derive(Debug)]
pub struct Recorder {
    only: BTreeSet<u32>,
    assembler: Assembler,
    jobs: Jobs,
    windows: Windows,
    older: Older,
    counted: VecDeque<Line>,
    processes: Vec<Process>,
    met: BTreeSet<u32>,
    leaving: Vec<(u64, u32)>,
    left_out: BTreeSet<u32>,
    written_ns: Option<u64>,
    counts: Counts,
}

impl Recorder {
    /// Records `only` these processes, or all when there are none, from `now_ns` on.
    pub fn new(only: &[u32], processes: Processes, now_ns: u64) -> Self {
        Self {
            only: only.iter().copied().collect(),
            assembler: Assembler::patient(PATIENCE_NS),
            jobs: Jobs::new(processes),
            windows: Windows::since(now_ns),
            older: Older::default(),
            counted: VecDeque::new(),
            processes: Vec::new(),
            met: BTreeSet::new(),
            leaving: Vec::new(),
            left_out: BTreeSet::new(),
            written_ns: None,
            counts: Counts::default(),
        }
    }

    /// The processes of the recording so far.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// What was recorded so far.
    pub fn counts(&self) -> Counts {
        Counts {
            unplaced: self.counts.unplaced + self.jobs.unplaced(),
            ..self.counts
        }
    }

    /// Waits for no call to return from now on: the next look is the last.
    pub fn hurry(&mut self) {
        self.assembler.hurry();
    }

    /// Whether the sums are to be read with this look: in time, and before a process takes its own with it.
    pub fn is_window_due(&self, look: &Look) -> bool {
        !look.exited.is_empty() || look.until_ns.saturating_sub(self.windows.read_ns()) >= WINDOW_NS
    }

    /// Communicators, by process and pointer, that were made before the recording began and are read from memory in this pass.
    pub fn due_reads(&mut self) -> Vec<(u32, u64)> {
        self.older.due()
    }

    /// Takes what was read.
    pub fn read(&mut self, state: CommState) {
        self.older.take(state);
    }

    /// Takes a look, the sums where they were read, and how many events were lost since the beginning; the lines.
    pub fn take(
        &mut self,
        look: &Look,
        sums: Option<&[(u32, u32, CallSum)]>,
        lost: u64,
    ) -> Vec<u8> {
        for record in &look.returned {
            self.meet(record);
        }
        if let Some(sums) = sums {
            self.counted.extend(self.windows.take(look.until_ns, sums));
        }
        if lost > self.counts.lost {
            let events = lost - self.counts.lost;
            self.counted.push_back(Line::of_loss(look.until_ns, events));
            self.counts.lost = lost;
            self.older.lost();
        }
        let states = self.older.until(u64::MAX);
        let has_more = !(look.ran.is_empty() && states.is_empty());
        self.counted.extend(states.iter().map(Line::of_state));
        self.counted
            .extend(look.ran.iter().filter_map(Line::of_ran));
        if has_more {
            self.counted.make_contiguous().sort_by_key(|line| line.ts);
        }
        let mut text = Vec::new();
        for seen in self.assembler.take(look) {
            self.write_call(&seen, &mut text);
        }
        self.write_counted(self.assembler.until_ns(), &mut text);
        self.say_that_it_is_quiet(&mut text);
        let exited = look.exited.iter().map(|pid| (look.now_ns, *pid));
        self.leaving.extend(exited);
        self.let_go();
        text
    }

    /// Whether a process that has ended was ever of interest.
    pub fn has_met(&mut self, pid: u32) -> bool {
        self.met.remove(&pid)
    }

    fn wants(&self, pid: u32) -> bool {
        self.only.is_empty() || self.only.contains(&pid)
    }

    /// Learns where a process belongs as soon as it has called something: it may be gone when its line is written.
    fn meet(&mut self, record: &CallRecord) {
        let pid = record.tgid;
        self.met.insert(pid);
        if !self.wants(pid) {
            return;
        }
        let init = match functions::call_kind(record) {
            Some(CallKind::CommInit(init)) => Some(init),
            _ => None,
        };
        if let Some(Event::Started(started)) = self.jobs.meet(pid, init, record.entered_ns) {
            self.add(started.process);
        }
    }

    fn add(&mut self, process: Process) {
        let known = self.processes.iter().find(|known| known.pid == process.pid);
        let has_room = self.processes.len() < MAX_PROCESSES;
        match known {
            Some(known) if *known == process => {}
            None if has_room => self.processes.push(process),
            _ => {
                self.left_out.insert(process.pid);
                self.counts.left_out += 1;
            }
        }
    }

    fn is_recorded(&self, pid: u32) -> bool {
        self.jobs.knows(pid) && !self.left_out.contains(&pid)
    }

    fn write_call(&mut self, seen: &Seen, text: &mut Vec<u8>) {
        let record = seen.record();
        let (part, is_first) = match seen {
            Seen::Call(_) => (Part::Whole, true),
            Seen::Entered(_) => (Part::Entry, true),
            Seen::Returned(_) => (Part::Return, false),
        };
        let Some(function) = functions::of(record.op).filter(|_| self.is_recorded(record.tgid))
        else {
            return;
        };
        let line = Line::of_call(part, record, function);
        self.write_counted(line.at_ns(), text);
        if is_first {
            let is_operation = matches!(function.does, functions::Does::Operation(_));
            self.counts.calls += 1;
            if is_operation && record.comm_id == 0 {
                self.counts.unknown_comm_ops += 1;
                self.older.used(record.tgid, record.comm);
            } else if is_operation || function.does == functions::Does::EndsComm {
                self.older.gone(record.tgid, record.comm);
            }
        }
        self.write(&line, text);
    }

    /// Writes what was counted by `until_ns`.
    fn write_counted(&mut self, until_ns: u64, text: &mut Vec<u8>) {
        while let Some(line) = self.counted.pop_front_if(|line| line.ts <= until_ns) {
            if line.pid.is_none_or(|pid| self.is_recorded(pid)) {
                self.counts.windows += u64::from(line.is_window());
                self.write(&line, text);
            }
        }
    }

    fn say_that_it_is_quiet(&mut self, text: &mut Vec<u8>) {
        let until_ns = self.assembler.until_ns();
        let is_due = |since_ns: u64| until_ns.saturating_sub(since_ns) >= QUIET_NS;
        if self.written_ns.is_some_and(is_due) {
            self.write(&Line::of_quiet(until_ns), text);
        }
    }

    fn write(&mut self, line: &Line, text: &mut Vec<u8>) {
        line.append_to(text);
        self.written_ns = self.written_ns.max(Some(line.at_ns()));
    }

    /// Forgets the processes that have ended and of which every line is written.
    fn let_go(&mut self) {
        let until_ns = self.assembler.until_ns();
        let gone: Vec<(u64, u32)> = self
            .leaving
            .extract_if(.., |(ended_ns, _)| *ended_ns <= until_ns)
            .collect();
        for (_, pid) in gone {
            let was_placed = self.jobs.knows(pid);
            let was_known = self.jobs.left(pid);
            self.counts.unplaced += usize::from(was_known && !was_placed);
            self.left_out.remove(&pid);
            self.assembler.left(pid);
            self.windows.left(pid);
            self.older.left(pid);
        }
    }
}

#[cfg(test)]
mod tests;
