//! The GPU jobs of this host, while they run.

pub(crate) mod assemble;
mod comms;
mod evidence;
pub(crate) mod jobs;
pub(crate) mod plugin_records;
pub(crate) mod preexisting;
mod sizes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fleet_agent_bpf::layout::{CallRecord, Losses};
use fleet_agent_core::event::{
    ActivitySample, Call, CallKind, CommInit, Ended, Entered, Event, Lost, Process,
};

use crate::functions;
use crate::live::assemble::{Assembler, CallEvent};
use crate::live::comms::{CommChange, KnownComms};
use crate::live::evidence::Evidence;
use crate::live::jobs::Jobs;
use crate::live::plugin_records::PluginRecordQueue;
use crate::live::preexisting::PreexistingComms;
use crate::live::sizes::CommSizes;
use crate::process::Processes;
use crate::source::{EventSource, SourceError};
use crate::watch::{Health, PollResult, Watch, Watched};

/// Time between two readings of what is summed up in the kernel, nanoseconds.
const EVIDENCE_NS: u64 = 1_000_000_000;

/// Asks a live source to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The source ends with its next look.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches this host until it is asked to stop.
#[derive(Debug)]
pub struct Live {
    watch: Watch,
    assembler: Assembler,
    jobs: Jobs,
    comms: KnownComms,
    sizes: CommSizes,
    evidence: Evidence,
    plugin_records: PluginRecordQueue,
    preexisting: PreexistingComms,
    out: VecDeque<Event>,
    stop: Stop,
    lost_before: Losses,
    losses: Losses,
    ending: Vec<Ended>,
    measured_ns: u64,
    has_polled: bool,
}

impl Live {
    /// The source of a watch.
    pub fn new(watch: Watch, processes: Processes, stop: Stop) -> Self {
        let mut live = Self {
            lost_before: watch.reported_losses(),
            losses: Losses::default(),
            watch,
            assembler: Assembler::default(),
            jobs: Jobs::new(processes),
            comms: KnownComms::default(),
            sizes: CommSizes::default(),
            evidence: Evidence::default(),
            plugin_records: PluginRecordQueue::default(),
            preexisting: PreexistingComms::default(),
            out: VecDeque::new(),
            ending: Vec::new(),
            stop,
            measured_ns: 0,
            has_polled: false,
        };
        live.restore();
        live
    }

    /// How the watch is doing.
    pub fn health(&self) -> Health {
        self.watch.health()
    }

    /// The files that are probed, and who maps them.
    pub fn watched(&self) -> Vec<Watched> {
        self.watch.watched()
    }

    /// What the watch could not tell since it began.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Files that were not looked into when they were mapped, because too many were.
    pub const fn deferred_files(&self) -> u64 {
        self.watch.deferred_files()
    }

    /// Processes that call NCCL and whose rank nobody knows.
    pub fn unplaced(&self) -> usize {
        self.jobs.unplaced()
    }

    /// When the last look was, nanoseconds of the events' clock.
    pub fn now_ns(&self) -> u64 {
        self.assembler.until_ns()
    }

    /// The next event, if the last look saw another one; otherwise one more look is due.
    pub fn next_pending(&mut self) -> Option<Event> {
        self.out.pop_front()
    }

    /// Waits for something to happen, at most for a twentieth of a second; false when the source was asked to end.
    pub fn poll(&mut self) -> bool {
        if std::mem::replace(&mut self.has_polled, true) && self.stop.is_requested() {
            return false;
        }
        let polled = self.watch.poll();
        self.process(&polled);
        true
    }

    /// Ends the watch and leaves nothing of it in the kernel.
    pub fn clear(self) {
        self.watch.clear();
    }

    /// Communicators of processes that an agent before this one has watched, so that their operations go on where they are. What was
    /// counted before now is not told: nobody knows how much of it that agent has told.
    fn restore(&mut self) {
        // Before anything that the ring still holds from the time without an agent.
        let ts_ns = 0;
        for comm in self.watch.comms() {
            self.emit_existing_comm(comm.tgid, jobs::comm_init(&comm), ts_ns);
        }
        let _reported = self.evidence(ts_ns);
    }

    /// Tells of a communicator that was made some time ago, if its size is known.
    fn emit_existing_comm(&mut self, pid: u32, init: CommInit, ts_ns: u64) {
        let Some(init) = self.sized(pid, init) else {
            // Whatever was at its address is not there any more.
            if let Some(pointer) = init.comm.filter(|pointer| self.comms.remove(pid, *pointer)) {
                let comm = Some(pointer);
                self.emit_call(pid, ts_ns, CallKind::CommDestroy { comm });
            }
            return;
        };
        self.comms.insert(pid, init);
        self.out.extend(self.jobs.observe(pid, Some(init), ts_ns));
        self.emit_call(pid, ts_ns, CallKind::CommInit(init));
    }

    /// Tells something of a process that no call of its own told.
    fn emit_call(&mut self, pid: u32, ts_ns: u64, kind: CallKind) {
        if self.jobs.knows(pid) {
            self.out.push_back(Event::Call(Call {
                ts_ns,
                dur_ns: 0,
                pid,
                tid: pid,
                kind,
            }));
        }
    }

    /// A communicator with its rank and size, as the call or the memory of its process tells.
    fn sized(&mut self, pid: u32, init: CommInit) -> Option<CommInit> {
        let in_memory = |init: &CommInit| self.watch.comm_rank_and_size(pid, init.comm?);
        if self.sizes.needs_check(pid) {
            for known in self.comms.of(pid).chain(Some(&init)) {
                self.sizes.compare(pid, known, in_memory(known));
            }
        }
        let found = (init.nranks == 0).then(|| in_memory(&init)).flatten();
        self.sizes.sized(pid, init, found)
    }

    fn process(&mut self, polled: &PollResult) {
        for pid in &polled.found {
            self.jobs.record_library(*pid);
        }
        self.plugin_records.extend(&polled.plugin_records);
        self.read_preexisting();
        for seen in self.assembler.assemble(polled) {
            self.emit_plugin_records(seen.at_ns());
            self.emit_call_event(&seen);
        }
        self.emit_plugin_records(self.assembler.until_ns());
        self.count_losses(polled.until_ns);
        if polled.until_ns.saturating_sub(self.measured_ns) >= EVIDENCE_NS {
            self.measure(polled.until_ns);
        }
        // What a process did last is told first, and that may take one more look.
        let (over, ending) = self
            .ending
            .iter()
            .partition(|ended| ended.ts_ns <= polled.until_ns);
        self.ending = ending;
        let over: Vec<Ended> = over;
        for ended in over {
            self.end(ended);
        }
        let ts_ns = polled.now_ns;
        if !polled.detached.is_empty() {
            // Nobody knows what they have called since.
            let events = polled.detached.len() as u64;
            self.out.push_back(Event::Lost(Lost { ts_ns, events }));
        }
        let over = polled.exited.iter().chain(&polled.detached);
        self.ending
            .extend(over.map(|pid| Ended { ts_ns, pid: *pid }));
    }

    fn emit_call_event(&mut self, seen: &CallEvent) {
        let record = seen.record();
        let Some(mut kind) = functions::call_kind(record) else {
            return;
        };
        let mut init = None;
        match (&mut kind, seen) {
            // It counts from its return, and only then says which rank the process is.
            (CallKind::CommInit(_), CallEvent::Entered(_)) => return,
            (CallKind::CommInit(joined), _) => {
                let Some(sized) = self.sized(record.tgid, *joined) else {
                    return;
                };
                self.comms.insert(record.tgid, sized);
                (*joined, init) = (sized, Some(sized));
            }
            (CallKind::CommDestroy { .. }, _) => {
                self.comms.remove(record.tgid, record.comm);
                self.preexisting.remove(record.tgid, record.comm);
            }
            // What returns may do so after its communicator was aborted.
            (CallKind::Operation(_), CallEvent::Complete(_) | CallEvent::Entered(_)) => {
                self.check_comm(record)
            }
            _ => {}
        }
        self.out
            .extend(self.jobs.observe(record.tgid, init, record.entered_ns));
        if !self.jobs.knows(record.tgid) {
            return;
        }
        let (ts_ns, pid, tid) = (record.entered_ns, record.tgid, record.tid);
        let call = Call {
            ts_ns,
            dur_ns: record.duration_ns,
            pid,
            tid,
            kind,
        };
        self.out.push_back(match seen {
            CallEvent::Complete(_) => Event::Call(call),
            CallEvent::Returned(_) => Event::Returned(call),
            CallEvent::Entered(_) => Event::Entered(Entered {
                ts_ns,
                pid,
                tid,
                kind,
            }),
        });
    }

    /// Reads communicators that were made before tracing began.
    fn read_preexisting(&mut self) {
        for (pid, pointer) in self.preexisting.due() {
            if let Some(state) = self.watch.comm_state(pid, pointer) {
                self.preexisting.push(state);
            }
        }
    }

    /// Tells what plugins told and memory said up to some time.
    fn emit_plugin_records(&mut self, until_ns: u64) {
        for state in self.preexisting.take_until(until_ns) {
            if self.jobs.knows(state.pid) {
                self.out.push_back(Event::CommState(state));
            }
        }
        for record in self.plugin_records.take_until(until_ns) {
            let init = plugin_records::comm_init(&record);
            if init.is_some() {
                let started = self.jobs.observe(record.tgid, init, record.seen_ns);
                self.out.extend(started);
            }
            if self.jobs.knows(record.tgid) {
                self.out.extend(plugin_records::event(&record));
            }
        }
    }

    /// Takes what an operation says of its communicator.
    fn check_comm(&mut self, record: &CallRecord) {
        let (pid, ts_ns) = (record.tgid, record.entered_ns);
        if record.comm_id == 0 {
            self.preexisting.record_use(pid, record.comm);
        } else {
            self.preexisting.remove(pid, record.comm);
        }
        match self.comms.change_in(record) {
            Some(CommChange::Made(init)) => self.emit_existing_comm(pid, init, ts_ns),
            Some(CommChange::Unknown) => {
                self.comms.remove(pid, record.comm);
                let comm = Some(record.comm);
                self.emit_call(pid, ts_ns, CallKind::CommDestroy { comm });
            }
            None => {}
        }
    }

    fn count_losses(&mut self, ts_ns: u64) {
        let now = self.watch.losses();
        let losses = now.since(&self.lost_before);
        let events = losses.events().saturating_sub(self.losses.events());
        if events > 0 {
            self.out.push_back(Event::Lost(Lost { ts_ns, events }));
            self.preexisting.restart_reads();
        }
        if losses != self.losses {
            self.watch.mark_losses_reported(&now);
        }
        self.losses = losses;
    }

    fn measure(&mut self, ts_ns: u64) {
        self.measured_ns = ts_ns;
        let measured = self.evidence(ts_ns);
        let known = measured
            .into_iter()
            .filter(|measured| self.jobs.knows(measured.pid));
        self.out.extend(known.map(Event::Activity));
    }

    fn evidence(&mut self, ts_ns: u64) -> Vec<ActivitySample> {
        let (sums, host) = (self.watch.sums(), self.watch.host_sums());
        let retransmits = self.watch.tcp_retransmits();
        self.evidence
            .measure(ts_ns, &sums, host.as_deref(), retransmits)
    }

    fn end(&mut self, ended: Ended) {
        let pid = ended.pid;
        if self.jobs.knows(pid) {
            // What it did in its last moments was counted, and goes with it.
            self.measure(ended.ts_ns);
            self.out.push_back(Event::Ended(ended));
        }
        let was_known = self.jobs.forget(pid);
        // A process may have called NCCL without anything to tell of it.
        if was_known || self.watch.is_traced(pid) {
            self.watch.forget(pid);
            self.assembler.forget(pid);
            self.evidence.forget(pid);
            self.comms.forget(pid);
            self.sizes.forget(pid);
            self.plugin_records.forget(pid);
            self.preexisting.forget(pid);
        }
    }
}

impl EventSource for Live {
    /// Processes come and go as events.
    fn processes(&self) -> &[Process] {
        &[]
    }

    fn next_event(&mut self) -> Result<Option<Event>, SourceError> {
        loop {
            if let Some(event) = self.next_pending() {
                return Ok(Some(event));
            }
            if !self.poll() {
                return Ok(None);
            }
        }
    }
}
