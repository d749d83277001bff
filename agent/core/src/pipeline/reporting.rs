//! Reports of the progress of a process.

use crate::pipeline::Pipeline;

/// Time after the last operation of a process from which on it may have stalled, nanoseconds: longer than the
/// steps of most jobs; and until which: what hangs is known by then, and others are idle.
const STILL_NS: u64 = 5_000_000_000;
const IDLE_NS: u64 = 60_000_000_000;

impl Pipeline {
    /// Sets whether the process is stopped by a signal or a debugger.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.progress.set_stopped(is_stopped);
    }

    /// Reports the progress of the process if due at `now_ns` of the source's clock.
    ///
    /// The driver calls this even when the process does nothing: silence is what a hang looks like.
    pub fn tick(&mut self, now_ns: u64) {
        self.release_rows(now_ns);
        self.operation_sums.tick(now_ns);
        self.host_waits.tick(now_ns);
        if self.progress.is_due(now_ns) {
            self.report_progress(now_ns);
        }
    }

    /// Sets how many operations the GPU has begun and not ended, as read since `read_ns`; `None` if that is
    /// unknown. NCCL counts wrongly after a CUDA graph was captured, and then reports ends too early.
    pub fn set_running(&mut self, running: Option<u64>, read_ns: u64) {
        let running = running.filter(|_| self.replaying.is_empty());
        self.progress.set_running(running, read_ns);
    }

    /// Returns whether the process has issued nothing for some seconds, but not for a minute.
    pub fn is_still(&self, now_ns: u64) -> bool {
        self.still_ns(now_ns)
            .is_some_and(|still_ns| still_ns < IDLE_NS)
    }

    /// Returns the time for which the process has issued nothing, nanoseconds; `None` until that is some seconds.
    pub fn still_ns(&self, now_ns: u64) -> Option<u64> {
        let still_ns = now_ns.saturating_sub(self.progress.last_entry_ns()?);
        (still_ns >= STILL_NS).then_some(still_ns)
    }

    pub(super) fn report_progress(&mut self, now_ns: u64) {
        let profile = self.iteration_pattern.profile();
        let role = self.iteration_pattern.role();
        for (index, comm) in self.table.indexed() {
            let is_reported = Some(comm.id) == self.job
                || Some(index) == self.iteration_pattern.primary()
                || profile.is_some_and(|profile| profile.ops.contains_key(&index));
            if is_reported {
                self.points
                    .extend(self.progress.point(index, comm, role, now_ns));
            }
        }
    }
}
