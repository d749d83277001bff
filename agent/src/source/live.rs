//! The GPU jobs of this host, while they run.

mod assemble;
mod evidence;
mod jobs;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fleet_agent_bpf::layout::Losses;

use crate::event::{Call, CallKind, Ended, Entered, Event, Lost, Process};
use crate::functions;
use crate::process::Processes;
use crate::source::live::assemble::{Assembler, Seen};
use crate::source::live::evidence::Evidence;
use crate::source::live::jobs::Jobs;
use crate::source::{EventSource, SourceError};
use crate::watch::{Health, Look, Watch};

/// Time between two readings of what is summed up in the kernel, nanoseconds.
const EVIDENCE_NS: u64 = 1_000_000_000;

/// Asks a live source to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The source ends with its next look.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches this host until it is asked to stop.
#[derive(Debug)]
pub struct Live {
    watch: Watch,
    assembler: Assembler,
    jobs: Jobs,
    evidence: Evidence,
    out: VecDeque<Event>,
    ending: BTreeSet<u32>,
    stop: Stop,
    losses: Losses,
    measured_ns: u64,
    has_looked: bool,
}

impl Live {
    /// The source of a watch.
    pub fn new(watch: Watch, processes: Processes, stop: Stop) -> Self {
        let mut live = Self {
            losses: watch.losses(),
            watch,
            assembler: Assembler::default(),
            jobs: Jobs::new(processes),
            evidence: Evidence::default(),
            out: VecDeque::new(),
            ending: BTreeSet::new(),
            stop,
            measured_ns: 0,
            has_looked: false,
        };
        live.take_over();
        live
    }

    /// How the watch is doing.
    pub fn health(&self) -> Health {
        self.watch.health()
    }

    /// What the watch could not tell so far.
    pub fn losses(&self) -> Losses {
        self.losses
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
    pub fn pending(&mut self) -> Option<Event> {
        self.out.pop_front()
    }

    /// Waits for something to happen, at most for a twentieth of a second; false when the source was asked to end.
    pub fn look(&mut self) -> bool {
        if std::mem::replace(&mut self.has_looked, true) && self.stop.is_asked() {
            return false;
        }
        let look = self.watch.look();
        self.take(&look);
        true
    }

    /// Ends the watch and leaves nothing of it in the kernel.
    pub fn clear(self) {
        self.watch.clear();
    }

    /// Communicators of processes that an agent before this one has watched, so that their operations go on where they are.
    fn take_over(&mut self) {
        let now_ns = crate::watch::now_ns();
        for comm in self.watch.comms() {
            let init = jobs::init(&comm);
            self.out
                .extend(self.jobs.meet(comm.tgid, Some(init), now_ns));
            if self.jobs.knows(comm.tgid) {
                self.out.push_back(Event::Call(Call {
                    ts_ns: now_ns,
                    dur_ns: 0,
                    pid: comm.tgid,
                    tid: comm.tgid,
                    kind: CallKind::CommInit(init),
                }));
            }
        }
    }

    fn take(&mut self, look: &Look) {
        for seen in self.assembler.take(look) {
            self.tell(&seen);
        }
        self.count_losses(look.until_ns);
        if look.until_ns.saturating_sub(self.measured_ns) >= EVIDENCE_NS {
            self.measure(look.until_ns);
        }
        // The last calls of a process may have to wait for the next look, and it is not gone before they are told.
        self.ending.extend(&look.exited);
        let assembler = &self.assembler;
        let gone: Vec<u32> = self
            .ending
            .extract_if(.., |pid| !assembler.holds(*pid))
            .collect();
        for pid in gone {
            self.end(pid, look.until_ns);
        }
    }

    fn tell(&mut self, seen: &Seen) {
        let record = seen.record();
        let Some(kind) = functions::call_kind(record) else {
            return;
        };
        let init = match kind {
            CallKind::CommInit(init) if matches!(seen, Seen::Call(_) | Seen::Returned(_)) => {
                Some(init)
            }
            _ => None,
        };
        self.out
            .extend(self.jobs.meet(record.tgid, init, record.entered_ns));
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
            Seen::Call(_) => Event::Call(call),
            Seen::Returned(_) => Event::Returned(call),
            Seen::Entered(_) => Event::Entered(Entered {
                ts_ns,
                pid,
                tid,
                kind,
            }),
        });
    }

    fn count_losses(&mut self, ts_ns: u64) {
        let losses = self.watch.losses();
        let events = losses.events().saturating_sub(self.losses.events());
        if events > 0 {
            self.out.push_back(Event::Lost(Lost { ts_ns, events }));
        }
        self.losses = losses;
    }

    fn measure(&mut self, ts_ns: u64) {
        self.measured_ns = ts_ns;
        let (sums, host) = (self.watch.sums(), self.watch.host_sums());
        let retransmits = self.watch.tcp_retransmits();
        let measured = self
            .evidence
            .measure(ts_ns, &sums, host.as_deref(), retransmits);
        let known = measured
            .into_iter()
            .filter(|measured| self.jobs.knows(measured.pid));
        self.out.extend(known.map(Event::Activity));
    }

    fn end(&mut self, pid: u32, ts_ns: u64) {
        if self.jobs.knows(pid) {
            // What it did in its last moments was counted, and goes with it.
            self.measure(ts_ns);
            self.out.push_back(Event::Ended(Ended { ts_ns, pid }));
        }
        if self.jobs.left(pid) {
            self.watch.forget(pid);
            self.assembler.left(pid);
            self.evidence.left(pid);
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
            if let Some(event) = self.pending() {
                return Ok(Some(event));
            }
            if !self.look() {
                return Ok(None);
            }
        }
    }
}
