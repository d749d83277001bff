//! Conversion of watch results to the lines of a recording. It reads the placement of each new
//! process, and nothing else.

pub mod file;
pub mod header;
mod line;
mod sizes;
mod windows;

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::comm_fields::RankAndSize;
use crate::functions;
use crate::live::assemble::{Assembler, CallEvent};
use crate::live::delays::DelayMeter;
use crate::live::durations::DurationMeter;
use crate::live::jobs::Jobs;
use crate::live::preexisting::PreexistingComms;
use crate::process::Processes;
use crate::watch::{Histograms, PollResult};
use fleet_agent_bpf::layout::{CallRecord, DelayKey, DelaySum, FunctionSum};
use fleet_agent_core::event::{CallDurations, CallKind, CommState, Event, Process, StackSample};

use crate::recorder::line::{Line, Part};
use crate::recorder::sizes::RecordedSizes;
use crate::recorder::windows::Windows;

/// Duration above which a call is written in two parts, so that later lines do not pile up behind
/// it, nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Interval between readings of the kernel's counters, nanoseconds.
const WINDOW_NS: u64 = 100_000_000;
/// Interval between readings of the delays, nanoseconds.
const DELAYS_NS: u64 = 1_000_000_000;
/// Time without a line after which a `quiet` line is written, nanoseconds: a recording with a gap
/// of an hour is considered damaged.
const QUIET_NS: u64 = 1_800_000_000_000;
/// Maximum number of processes in the header.
pub const MAX_PROCESSES: usize = 256;
/// Maximum number of processes without a rank in the header.
pub const MAX_UNRANKED: usize = 64;

/// Counts of recorded items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Library calls, including those in flight.
    pub calls: u64,
    /// Windows of launches and copies.
    pub windows: u64,
    /// Events lost in the kernel.
    pub lost: u64,
    /// Operations on communicators created before the recording began.
    pub unknown_comm_ops: u64,
    /// Processes that call NCCL and whose rank is unknown.
    pub unplaced: usize,
    /// Processes omitted because the header was full or their id was already in it.
    pub left_out: usize,
}

/// Recorder of poll results.
#[derive(Debug)]
pub struct Recorder {
    only: BTreeSet<u32>,
    assembler: Assembler,
    jobs: Jobs,
    windows: Windows,
    delays: DelayMeter,
    delays_read_ns: u64,
    durations: DurationMeter,
    durations_read_ns: u64,
    preexisting: PreexistingComms,
    comm_sizes: RecordedSizes,
    counted: VecDeque<Line>,
    /// Ids of the stacks that have a line.
    stacks: HashSet<u64>,
    processes: Vec<Process>,
    unranked: Vec<u32>,
    observed: BTreeSet<u32>,
    ended: Vec<(u64, u32)>,
    left_out: BTreeSet<u32>,
    written_ns: Option<u64>,
    counts: Counts,
}

impl Recorder {
    /// Creates a recorder of `only` these processes, or of all if there are none, from `now_ns` on.
    pub fn new(only: &[u32], processes: Processes, now_ns: u64) -> Self {
        Self {
            only: only.iter().copied().collect(),
            assembler: Assembler::with_patience(PATIENCE_NS),
            delays: DelayMeter::new(processes.clone()),
            delays_read_ns: now_ns,
            durations: DurationMeter::default(),
            durations_read_ns: now_ns,
            jobs: Jobs::new(processes),
            windows: Windows::new(now_ns),
            preexisting: PreexistingComms::default(),
            comm_sizes: RecordedSizes::default(),
            counted: VecDeque::new(),
            stacks: HashSet::new(),
            processes: Vec::new(),
            unranked: Vec::new(),
            observed: BTreeSet::new(),
            ended: Vec::new(),
            left_out: BTreeSet::new(),
            written_ns: None,
            counts: Counts::default(),
        }
    }

    /// Returns the processes recorded so far.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Returns the recorded processes that call the GPU's libraries, but not NCCL.
    pub fn unranked(&self) -> &[u32] {
        &self.unranked
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        Counts {
            unplaced: self.counts.unplaced + self.jobs.unplaced(),
            ..self.counts
        }
    }

    /// Stops waiting for calls to return: the next poll is the last.
    pub fn stop_waiting(&mut self) {
        self.assembler.stop_waiting();
    }

    /// Returns whether the counters have to be read with this poll: periodically, and before an
    /// exited process is removed.
    pub fn is_window_due(&self, polled: &PollResult) -> bool {
        !polled.exited.is_empty()
            || polled.until_ns.saturating_sub(self.windows.read_ns()) >= WINDOW_NS
    }

    /// Returns whether the delays have to be read with this poll: each second, and before an exited
    /// process is removed.
    pub fn are_delays_due(&self, polled: &PollResult) -> bool {
        !polled.exited.is_empty()
            || polled.until_ns.saturating_sub(self.delays_read_ns) >= DELAYS_NS
    }

    /// Adds the delays of all processes so far, before the poll result of the same time is
    /// recorded.
    pub fn push_delays(&mut self, until_ns: u64, counted: &[(DelayKey, DelaySum)]) {
        self.delays_read_ns = until_ns;
        let is_counted = |pid: &u32| counted.iter().any(|(key, _)| key.tgid == *pid);
        let unranked = self.unranked.iter().copied().filter(is_counted);
        let pids = self.jobs.announced().chain(unranked);
        let measured = self.delays.measure(until_ns, Some(counted), pids);
        self.counted.extend(measured.iter().map(Line::from_delays));
    }

    /// Returns the delays that no longer grow and can be removed from the kernel.
    pub fn take_idle_delays(&mut self) -> BTreeSet<DelayKey> {
        self.delays.take_idle()
    }

    /// Adds the durations of all calls so far, if a second has passed since the last time or a
    /// process has exited, before the poll result of the same time is recorded. Returns those since
    /// the last time.
    pub fn push_durations(
        &mut self,
        polled: &PollResult,
        counted: &Histograms,
    ) -> Vec<CallDurations> {
        let since_ns = polled.until_ns.saturating_sub(self.durations_read_ns);
        if polled.exited.is_empty() && since_ns < DELAYS_NS {
            return Vec::new();
        }
        self.durations_read_ns = polled.until_ns;
        let measured = self.durations.measure(polled.until_ns, counted);
        for durations in &measured {
            self.add_unranked(durations.pid);
        }
        self.counted
            .extend(measured.iter().map(Line::from_durations));
        measured
    }

    /// Adds samples of stacks up to `until_ns`, before the poll result of the same time is recorded.
    pub fn push_samples(&mut self, until_ns: u64, samples: Vec<StackSample>) {
        let lines = samples.into_iter().map(|sample| {
            let ts_ns = until_ns;
            Line::from_samples(&StackSample { ts_ns, ..sample })
        });
        self.counted.extend(lines);
    }

    /// Returns the communicators, by process and pointer, that were created before the recording
    /// began and are due to be read from memory.
    pub fn due_reads(&mut self) -> Vec<(u32, u64)> {
        self.preexisting.due()
    }

    /// Adds a condition outside of the recorded processes, such as the sharing of their GPUs.
    pub fn push_condition(&mut self, event: &Event) {
        if let Event::Delays(sample) = event
            && (self.is_recorded(sample.pid) || self.unranked().contains(&sample.pid))
        {
            self.counted.push_back(Line::from_delays(sample));
        }
    }

    /// Adds a state that was read.
    pub fn push_state(&mut self, state: CommState) {
        self.preexisting.push(state);
    }

    /// Fills in rank and size of the communicators that splits have made, before the poll result is
    /// recorded: the calls do not contain them. `read` reads them in the memory of a process, at a
    /// pointer.
    pub fn size_comms(
        &mut self,
        polled: &mut PollResult,
        read: impl Fn(u32, u64) -> Option<RankAndSize>,
    ) {
        self.comm_sizes.fill_in(&mut polled.returned, read);
    }

    /// Records a poll result, the counters if they were read, and the number of events lost since
    /// the beginning; returns the new lines.
    pub fn record(
        &mut self,
        polled: &PollResult,
        sums: Option<&[FunctionSum]>,
        lost: u64,
    ) -> Vec<u8> {
        for record in &polled.returned {
            self.observe(record);
        }
        if let Some(sums) = sums {
            self.counted
                .extend(self.windows.update(polled.until_ns, sums));
        }
        if lost > self.counts.lost {
            let events = lost - self.counts.lost;
            self.counted.push_back(Line::lost(polled.until_ns, events));
            self.counts.lost = lost;
            self.preexisting.restart_reads();
        }
        let states = self.preexisting.take_until(u64::MAX);
        let has_more = !(polled.plugin_records.is_empty() && states.is_empty());
        self.counted.extend(states.iter().map(Line::from_state));
        self.counted.extend(
            polled
                .plugin_records
                .iter()
                .filter_map(Line::from_plugin_record),
        );
        if has_more {
            self.counted.make_contiguous().sort_by_key(|line| line.ts);
        }
        let mut text = Vec::new();
        for seen in self.assembler.assemble(polled) {
            self.write_call(&seen, &mut text);
        }
        self.write_counted(self.assembler.until_ns(), &mut text);
        self.write_quiet_line(&mut text);
        self.ended
            .extend(polled.exited.iter().map(|pid| (polled.now_ns, *pid)));
        self.forget_ended();
        text
    }

    /// Removes an exited process and returns whether it was ever observed.
    pub fn take_observed(&mut self, pid: u32) -> bool {
        self.observed.remove(&pid) || self.unranked.contains(&pid)
    }

    fn wants(&self, pid: u32) -> bool {
        self.only.is_empty() || self.only.contains(&pid)
    }

    /// Determines the placement of a process at its first call: it may have exited when its line is
    /// written.
    fn observe(&mut self, record: &CallRecord) {
        let pid = record.tgid;
        self.observed.insert(pid);
        if !self.wants(pid) {
            return;
        }
        let init = match functions::call_kind(record) {
            Some(CallKind::CommInit(init)) => Some(init),
            _ => None,
        };
        if let Some(Event::Started(started)) = self.jobs.observe(pid, init, record.entered_ns) {
            self.add(started.process);
        }
    }

    fn add(&mut self, process: Process) {
        let known = self.processes.iter().find(|known| known.pid == process.pid);
        match known {
            Some(known) if *known == process => {}
            None if self.processes.len() < MAX_PROCESSES => self.processes.push(process),
            _ => {
                self.left_out.insert(process.pid);
                self.counts.left_out += 1;
            }
        }
    }

    /// Adds a process that has not called NCCL.
    fn add_unranked(&mut self, pid: u32) {
        let is_new = !self.observed.contains(&pid) && !self.unranked.contains(&pid);
        if is_new && self.wants(pid) && self.unranked.len() < MAX_UNRANKED {
            self.unranked.push(pid);
        }
    }

    /// Returns whether the events of a process are recorded.
    pub fn is_recorded(&self, pid: u32) -> bool {
        self.unranked.contains(&pid) || self.jobs.is_announced(pid) && !self.left_out.contains(&pid)
    }

    fn write_call(&mut self, seen: &CallEvent, text: &mut Vec<u8>) {
        let record = seen.record();
        let (part, is_first) = match seen {
            CallEvent::Complete(_) => (Part::Whole, true),
            CallEvent::Entered(_) => (Part::Entry, true),
            CallEvent::Returned(_) => (Part::Return, false),
        };
        let Some(function) =
            functions::by_number(record.op).filter(|_| self.is_recorded(record.tgid))
        else {
            return;
        };
        let line = Line::from_call(part, record, function);
        self.write_counted(line.at_ns(), text);
        if is_first {
            let is_operation = matches!(function.effect, functions::Effect::Operation(_));
            self.counts.calls += 1;
            if is_operation && record.comm_id == 0 {
                self.counts.unknown_comm_ops += 1;
                self.preexisting.record_use(record.tgid, record.comm);
            } else if is_operation || function.effect == functions::Effect::EndsComm {
                self.preexisting.remove(record.tgid, record.comm);
            }
        }
        self.write(&line, text);
    }

    /// Writes the counted windows up to `until_ns`.
    fn write_counted(&mut self, until_ns: u64, text: &mut Vec<u8>) {
        while let Some(line) = self.counted.pop_front_if(|line| line.ts <= until_ns) {
            if line.pid.is_none_or(|pid| self.is_recorded(pid)) {
                self.counts.windows += u64::from(line.is_window());
                if let Some(stack) = &line.sampled
                    && self.stacks.insert(stack.id())
                {
                    self.write(&Line::from_stack(line.ts, stack), text);
                }
                self.write(&line, text);
            }
        }
    }

    fn write_quiet_line(&mut self, text: &mut Vec<u8>) {
        let until_ns = self.assembler.until_ns();
        let is_due = |since_ns: u64| until_ns.saturating_sub(since_ns) >= QUIET_NS;
        if self.written_ns.is_some_and(is_due) {
            self.write(&Line::quiet(until_ns), text);
        }
    }

    fn write(&mut self, line: &Line, text: &mut Vec<u8>) {
        line.append_to(text);
        self.written_ns = self.written_ns.max(Some(line.at_ns()));
    }

    /// Removes the processes that have exited and whose lines are all written.
    fn forget_ended(&mut self) {
        let until_ns = self.assembler.until_ns();
        let gone: Vec<(u64, u32)> = self
            .ended
            .extract_if(.., |(ended_ns, _)| *ended_ns <= until_ns)
            .collect();
        for (_, pid) in gone {
            let was_placed = self.jobs.is_announced(pid);
            let was_known = self.jobs.forget(pid);
            self.counts.unplaced += usize::from(was_known && !was_placed);
            self.left_out.remove(&pid);
            self.assembler.forget(pid);
            self.windows.forget(pid);
            self.delays.forget(pid);
            self.durations.forget(pid);
            self.preexisting.forget(pid);
            self.comm_sizes.forget(pid);
        }
    }
}

#[cfg(test)]
mod tests;
