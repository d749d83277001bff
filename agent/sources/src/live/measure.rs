//! Readings of the kernel's counters, at intervals and at the end of a process.

use std::collections::BTreeSet;

use fleet_agent_core::event::{ActivitySample, Ended, Event};

use crate::live::Live;
use crate::watch::Histograms;

impl Live {
    /// Emits what the kernel has counted since the last reading, of ranks and, if they are watched, of
    /// processes without one.
    pub(super) fn measure(&mut self, ts_ns: u64) {
        self.measured_ns = ts_ns;
        let histograms = self.watch.histograms();
        let measured = self.evidence(ts_ns, &histograms);
        let unranked: BTreeSet<u32> = measured
            .iter()
            .map(|measured| measured.pid)
            .filter(|pid| !self.jobs.is_announced(*pid) && self.watch.is_measured(*pid))
            .collect();
        let known = measured.into_iter().filter(|measured| {
            self.jobs.is_announced(measured.pid) || unranked.contains(&measured.pid)
        });
        self.out.extend(known.map(Event::Activity));
        let delays = self.delays.measure(
            ts_ns,
            self.watch.delays().as_deref(),
            self.jobs.announced().chain(unranked),
        );
        let delays = delays
            .into_iter()
            .map(|sample| Event::Delays(Box::new(sample)));
        self.out.extend(delays);
        self.watch.remove_delays(&self.delays.take_idle());
        for durations in self.durations.measure(ts_ns, &histograms) {
            if self.watch.measures_all() || self.jobs.is_announced(durations.pid) {
                self.out
                    .push_back(Event::CallDurations(Box::new(durations)));
            }
        }
    }

    /// Discards what the kernel has counted so far.
    pub(super) fn discard_counters(&mut self, ts_ns: u64) {
        let histograms = self.watch.histograms();
        let _reported = self.evidence(ts_ns, &histograms);
        let _reported = self.durations.measure(ts_ns, &histograms);
    }

    fn evidence(&mut self, ts_ns: u64, histograms: &Histograms) -> Vec<ActivitySample> {
        let (mut sums, host) = (self.watch.sums(), self.watch.host_sums());
        sums.extend(histograms.sums());
        let retransmits = self.watch.tcp_retransmits();
        self.evidence
            .measure(ts_ns, &sums, host.as_deref(), retransmits)
    }

    /// Ends a process: its last activity was counted, and would be removed with it.
    pub(super) fn end(&mut self, ended: Ended) {
        let pid = ended.pid;
        let is_measured = self.watch.is_measured(pid);
        // Many processes without NCCL may end at the same time, and one reading is enough.
        if self.jobs.is_announced(pid) || is_measured && self.measured_ns < ended.ts_ns {
            self.measure(ended.ts_ns);
        }
        if self.jobs.is_announced(pid) || is_measured {
            self.out.push_back(Event::Ended(ended));
        }
        let was_known = self.jobs.forget(pid);
        // A process may have called NCCL without any reported event.
        if was_known || is_measured || self.watch.is_traced(pid) {
            self.watch.forget(pid);
            self.assembler.forget(pid);
            self.evidence.forget(pid);
            self.delays.forget(pid);
            self.durations.forget(pid);
            self.comms.forget(pid);
            self.sizes.forget(pid);
            self.plugin_records.forget(pid);
            self.slot_tables.remove(&pid);
            self.preexisting.forget(pid);
        }
    }
}
