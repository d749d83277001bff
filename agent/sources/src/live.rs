//! Live source: GPU jobs of this host while they run.

pub(crate) mod assemble;
pub(crate) mod comms;
pub(crate) mod delays;
pub(crate) mod durations;
mod evidence;
mod in_flight;
pub(crate) mod jobs;
mod measure;
pub(crate) mod plugin_records;
pub(crate) mod preexisting;
pub(crate) mod sizes;
mod stop;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fleet_agent_bpf::layout::{CallRecord, Losses, SlotTable};
use fleet_agent_core::event::{Call, CallKind, CommInit, Ended, Entered, Event, Lost, Process};

use crate::functions;
use crate::live::assemble::{Assembler, CallEvent};
use crate::live::comms::{CommChange, KnownComms};
use crate::live::delays::DelayMeter;
use crate::live::durations::DurationMeter;
use crate::live::evidence::Evidence;
pub use crate::live::in_flight::{InFlight, InFlightTable};
use crate::live::jobs::Jobs;
use crate::live::plugin_records::PluginRecordQueue;
use crate::live::preexisting::PreexistingComms;
use crate::live::sizes::CommSizes;
pub use crate::live::stop::Stop;
use crate::process::Processes;
use crate::source::{EventSource, SourceError};
use crate::watch::{Health, PollResult, ProbedCalls, Watch, Watched};

/// Default interval between readings of the kernel's counters.
pub const EVIDENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Live source, which watches this host until a stop is requested.
#[derive(Debug)]
pub struct Live {
    watch: Watch,
    assembler: Assembler,
    jobs: Jobs,
    comms: KnownComms,
    sizes: CommSizes,
    evidence: Evidence,
    delays: DelayMeter,
    durations: DurationMeter,
    plugin_records: PluginRecordQueue,
    slot_tables: BTreeMap<u32, SlotTable>,
    preexisting: PreexistingComms,
    out: VecDeque<Event>,
    stop: Stop,
    lost_before: Losses,
    losses: Losses,
    ending: Vec<Ended>,
    evidence_interval: Duration,
    measured_ns: u64,
    has_polled: bool,
}

impl Live {
    /// Creates the source of a watch.
    pub fn new(watch: Watch, processes: Processes, stop: Stop) -> Self {
        let mut live = Self {
            lost_before: watch.reported_losses(),
            losses: Losses::default(),
            watch,
            assembler: Assembler::default(),
            delays: DelayMeter::new(processes.clone()),
            durations: DurationMeter::default(),
            jobs: Jobs::new(processes),
            comms: KnownComms::default(),
            sizes: CommSizes::default(),
            evidence: Evidence::default(),
            plugin_records: PluginRecordQueue::default(),
            slot_tables: BTreeMap::new(),
            preexisting: PreexistingComms::default(),
            out: VecDeque::new(),
            ending: Vec::new(),
            stop,
            evidence_interval: EVIDENCE_INTERVAL,
            measured_ns: 0,
            has_polled: false,
        };
        live.restore();
        live
    }

    /// Sets the interval between readings of the kernel's counters.
    #[must_use]
    pub fn with_evidence_every(mut self, interval: Duration) -> Self {
        self.evidence_interval = interval;
        self
    }

    /// Returns the health of the watch.
    pub fn health(&self) -> Health {
        self.watch.health()
    }

    /// Returns the probed files and the processes that map them.
    pub fn watched(&self) -> Vec<Watched> {
        self.watch.watched()
    }

    /// Returns the calls in flight of the watched processes.
    pub fn calls(&self) -> ProbedCalls {
        self.watch.calls()
    }

    /// Returns the losses of the watch since it began.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Returns the number of files that were not inspected when they were mapped, because of the
    /// rate limit.
    pub const fn deferred_files(&self) -> u64 {
        self.watch.deferred_files()
    }

    /// Returns where the operations in flight of each process with the NCCL profiler plugin are.
    pub fn in_flight_tables(&self) -> Vec<InFlightTable> {
        let tables = self.slot_tables.iter();
        let table = |(pid, slots): (&u32, &SlotTable)| InFlightTable {
            pid: *pid,
            slots: *slots,
        };
        tables.map(table).collect()
    }

    /// Returns the number of processes that call NCCL and whose rank is unknown.
    pub fn unplaced(&self) -> usize {
        self.jobs.unplaced()
    }

    /// Returns the time up to which all events were yielded, nanoseconds of the events' clock.
    pub fn now_ns(&self) -> u64 {
        self.assembler.until_ns()
    }

    /// Returns the next event of the last poll; `None` if another poll is due.
    pub fn next_pending(&mut self) -> Option<Event> {
        self.out.pop_front()
    }

    /// Waits for events, at most for a twentieth of a second; returns false when a stop was
    /// requested.
    pub fn poll(&mut self) -> bool {
        if std::mem::replace(&mut self.has_polled, true) && self.stop.is_requested() {
            return false;
        }
        let polled = self.watch.poll();
        self.process(&polled);
        true
    }

    /// Ends the watch and removes all of its state from the kernel.
    pub fn clear(self) {
        self.watch.clear();
    }

    /// Restores the communicators of processes that an earlier agent watched, so that their
    /// operations continue where they are. Counters up to now are discarded, since it is unknown
    /// how much of them that agent has reported.
    fn restore(&mut self) {
        // Before all events that the ring still holds from the time without an agent.
        let ts_ns = 0;
        for comm in self.watch.comms() {
            self.emit_existing_comm(comm.tgid, jobs::comm_init(&comm), ts_ns);
        }
        self.discard_counters(ts_ns);
    }

    /// Emits a communicator that was created earlier, if its size is known.
    fn emit_existing_comm(&mut self, pid: u32, init: CommInit, ts_ns: u64) {
        let Some(init) = self.sized(pid, init) else {
            // The previous communicator at its address no longer exists.
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

    /// Emits a call on behalf of a process.
    fn emit_call(&mut self, pid: u32, ts_ns: u64, kind: CallKind) {
        if self.jobs.is_announced(pid) {
            self.out.push_back(Event::Call(Call {
                ts_ns,
                dur_ns: 0,
                pid,
                tid: pid,
                kind,
            }));
        }
    }

    /// Returns a communicator with its rank and size, from the call or from the memory of its
    /// process.
    fn sized(&mut self, pid: u32, init: CommInit) -> Option<CommInit> {
        let read = |pointer| self.watch.comm_rank_and_size(pid, pointer);
        self.sizes
            .complete((pid, init), self.comms.of_process(pid).copied(), read)
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
        let since_ns = polled.until_ns.saturating_sub(self.measured_ns);
        if Duration::from_nanos(since_ns) >= self.evidence_interval {
            self.measure(polled.until_ns);
        }
        // The last events of a process come first, which may take one more poll.
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
            // Their calls since then are unknown.
            let events = polled.detached.len() as u64;
            self.out.push_back(Event::Lost(Lost { ts_ns, events }));
        }
        let exited = polled
            .exited
            .iter()
            .map(|pid| (*pid, self.watch.exit(*pid)));
        let detached = polled.detached.iter().map(|pid| (*pid, None));
        let over = exited.chain(detached);
        self.ending
            .extend(over.map(|(pid, exit)| Ended { ts_ns, pid, exit }));
    }

    fn emit_call_event(&mut self, seen: &CallEvent) {
        let record = seen.record();
        let Some(mut kind) = functions::call_kind(record) else {
            return;
        };
        let mut init = None;
        match (&mut kind, seen) {
            // A new communicator takes effect at its return, and only then is its rank known.
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
            // A call may return after its communicator was aborted.
            (CallKind::Operation(_), CallEvent::Complete(_) | CallEvent::Entered(_)) => {
                self.check_comm(record);
            }
            _ => {}
        }
        self.out
            .extend(self.jobs.observe(record.tgid, init, record.entered_ns));
        if !self.jobs.is_announced(record.tgid) {
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

    /// Reads the state of communicators that were created before tracing began.
    fn read_preexisting(&mut self) {
        for (pid, pointer) in self.preexisting.due() {
            if let Some(state) = self.watch.comm_state(pid, pointer) {
                self.preexisting.push(state);
            }
        }
    }

    /// Emits plugin records and communicator states up to some time.
    fn emit_plugin_records(&mut self, until_ns: u64) {
        for state in self.preexisting.take_until(until_ns) {
            if self.jobs.is_announced(state.pid) {
                self.out.push_back(Event::CommState(state));
            }
        }
        for record in self.plugin_records.take_until(until_ns) {
            let init = plugin_records::comm_init(&record);
            if init.is_some() {
                let started = self.jobs.observe(record.tgid, init, record.seen_ns);
                self.out.extend(started);
            }
            if self.jobs.is_announced(record.tgid) {
                if SlotTable::is_announced_by(&record) {
                    self.slot_tables.remove(&record.tgid);
                }
                let slots = SlotTable::announced(&record);
                self.slot_tables
                    .extend(slots.map(|slots| (record.tgid, slots)));
                self.out.extend(plugin_records::event(&record));
            }
        }
    }

    /// Checks an operation's communicator against the known ones.
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
}

impl EventSource for Live {
    /// Processes are announced by events.
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
