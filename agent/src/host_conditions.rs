//! Conditions outside the processes of a host: losses of its RDMA ports, and throttling and sharing of
//! its GPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use fleet_agent_core::event::{Activity, ActivitySample, DelaySample, Delays, Event, TaskTime};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval};

use crate::gpu::{ComputeTime, Gpus};
use crate::rdma::Rdma;

/// Interval of the readings, nanoseconds: the driver takes some milliseconds per GPU.
const INTERVAL_NS: u64 = 5_000_000_000;

/// Maximum number of changes, and of readings, that wait.
const MAX_QUEUED: usize = 4096;

/// Reads the conditions for the ranks that are traced, and the sharing of GPUs for all processes.
#[derive(Debug)]
pub(crate) struct HostConditions {
    rdma: Rdma,
    gpu_of: BTreeMap<u32, Option<u32>>,
    throttled_ms: BTreeMap<u32, f64>,
    read_ns: u64,
}

impl HostConditions {
    /// Uses the ports below `sys`, the mount point of `/sys`.
    pub(crate) fn new(sys: &Path) -> Self {
        Self {
            rdma: Rdma::new(sys),
            gpu_of: BTreeMap::new(),
            throttled_ms: BTreeMap::new(),
            read_ns: 0,
        }
    }

    /// Adds a process, with the index of its GPU if it is known.
    pub(crate) fn add_process(&mut self, pid: u32, gpu: Option<u32>) {
        self.gpu_of.insert(pid, gpu);
    }

    /// Removes a process and returns whether it was traced.
    pub(crate) fn remove_process(&mut self, pid: u32) -> bool {
        self.gpu_of.remove(&pid).is_some()
    }

    /// Returns whether a reading is due.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.read_ns) >= INTERVAL_NS
    }

    /// Returns what happened since the previous reading, per process.
    pub(crate) async fn measure(
        &mut self,
        gpus: &Gpus,
        processes: &Processes,
        now_ns: u64,
    ) -> Vec<Event> {
        let from_ns = std::mem::replace(&mut self.read_ns, now_ns);
        let rdma_errors = self.rdma.read().map(|increases| increases.total());
        let throttled_ns = self.throttled_ns(gpus, now_ns).await;
        let measured = self.gpu_of.iter().map(|(pid, gpu)| ActivitySample {
            from_ns,
            ts_ns: now_ns,
            pid: *pid,
            activity: Activity {
                rdma_errors,
                throttled_ns: gpu.and_then(|gpu| throttled_ns.get(&gpu).copied()),
                ..Activity::default()
            },
        });
        let measured = measured.filter(|measured| measured.activity != Activity::default());
        let mut events: Vec<Event> = measured.map(Event::Activity).collect();
        let times = gpus.compute_times(now_ns).await.unwrap_or_default();
        let of_ranks = self
            .gpu_of
            .iter()
            .filter_map(|(pid, gpu)| Some((*pid, (*gpu)?)));
        // A process without a rank may have memory on GPUs on which it does not compute.
        let others = times.iter().filter(|time| time.ns > 0);
        let others = others.map(|time| (time.pid, time.gpu));
        let others = others.filter(|(pid, _)| !self.gpu_of.contains_key(pid));
        for (pid, gpu) in of_ranks.chain(others) {
            let delays = Delays {
                gpu_shared_by: neighbours(pid, gpu, &times, processes),
                ..Delays::default()
            };
            if delays.gpu_shared_by.is_some() {
                events.push(Event::Delays(Box::new(DelaySample {
                    from_ns,
                    ts_ns: now_ns,
                    pid,
                    delays,
                })));
            }
        }
        events
    }

    /// Nanoseconds since the previous reading in which each GPU was throttled. The first reading
    /// only sets the baseline.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of some seconds, never below 0, and the cast saturates"
    )]
    async fn throttled_ns(&mut self, gpus: &Gpus, now_ns: u64) -> BTreeMap<u32, u64> {
        let mut since = BTreeMap::new();
        for throttled in gpus.throttled(now_ns).await.unwrap_or_default() {
            let index = throttled.gpu.index;
            if let Some(before_ms) = self.throttled_ms.insert(index, throttled.total_ms) {
                since.insert(
                    index,
                    ((throttled.total_ms - before_ms).max(0.0) * 1e6) as u64,
                );
            }
        }
        since
    }
}

/// The same readings beside a command that watches this host on a thread of its own: a driver that takes
/// long delays no event.
#[derive(Debug)]
pub(crate) struct ConditionsBeside {
    ranks: Sender<RankChange>,
    measured: Receiver<Event>,
}

#[derive(Debug)]
enum RankChange {
    Started(u32),
    Ended(u32),
}

impl ConditionsBeside {
    /// Returns what the command uses, and the readings at an interval, which end when it is dropped.
    pub(crate) fn new(every: Duration) -> (Self, impl Future<Output = ()>) {
        let (ranks, changes) = mpsc::channel(MAX_QUEUED);
        let (events, measured) = mpsc::channel(MAX_QUEUED);
        let readings = read_conditions(every, changes, events);
        (Self { ranks, measured }, readings)
    }

    /// Adds and removes ranks.
    pub(crate) fn on_event(&self, event: &Event) {
        match event {
            Event::Started(started) => self.add_process(started.process.pid),
            Event::Ended(ended) => self.remove_process(ended.pid),
            _ => {}
        }
    }

    /// Adds a rank.
    pub(crate) fn add_process(&self, pid: u32) {
        // Only a driver that does not answer lets the queue become full.
        let _full = self.ranks.try_send(RankChange::Started(pid));
    }

    /// Removes a process.
    pub(crate) fn remove_process(&self, pid: u32) {
        let _full = self.ranks.try_send(RankChange::Ended(pid));
    }

    /// Takes what was measured since the last call.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.measured.try_recv().ok()).collect()
    }
}

/// Runs a command beside its readings, which end with it: a driver that does not answer must not hold up
/// the end.
pub(crate) async fn with_readings<T>(
    command: impl Future<Output = T>,
    readings: impl Future<Output = ()>,
) -> T {
    let mut command = pin!(command);
    tokio::select! {
        done = &mut command => done,
        () = readings => command.await,
    }
}

async fn read_conditions(
    every: Duration,
    mut changes: Receiver<RankChange>,
    events: Sender<Event>,
) {
    let (gpus, processes) = (Gpus::open(Path::new("/proc")), Processes::new("/proc"));
    let mut conditions = HostConditions::new(Path::new("/sys"));
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            _now = ticks.tick() => {
                for event in conditions.measure(&gpus, &processes, now_ns()).await {
                    let _ended = events.send(event).await;
                }
                continue;
            }
        };
        match change {
            Some(RankChange::Started(pid)) => {
                let place = processes.placement(pid).unwrap_or_default();
                let gpu = gpus.for_process(pid, &place).await;
                conditions.add_process(pid, gpu.map(|gpu| gpu.index));
            }
            Some(RankChange::Ended(pid)) => {
                conditions.remove_process(pid);
            }
            None => return,
        }
    }
}

/// Returns the other processes that computed on the GPU of a process; `None` if the driver does not
/// list the process itself. In a container it may list process ids of another namespace, where the
/// process would be taken for its own neighbour.
fn neighbours(
    pid: u32,
    gpu: u32,
    times: &[ComputeTime],
    processes: &Processes,
) -> Option<Vec<TaskTime>> {
    let on_gpu = || times.iter().filter(|time| time.gpu == gpu);
    on_gpu().find(|time| time.pid == pid)?;
    let others = on_gpu().filter(|time| time.pid != pid && time.ns > 0);
    let others = others.map(|time| TaskTime {
        task: match processes.program(time.pid) {
            Some(program) => format!("{program} (PID {})", time.pid),
            None => format!("PID {}", time.pid),
        },
        cpu: None,
        ns: time.ns,
        switches: 0,
    });
    Some(others.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[(u32, u32, u64)]) -> Vec<ComputeTime> {
        let time = |(gpu, pid, ns): &(u32, u32, u64)| ComputeTime {
            gpu: *gpu,
            pid: *pid,
            ns: *ns,
        };
        of.iter().map(time).collect()
    }

    fn named(pid: u32, gpu: u32, times: &[ComputeTime]) -> Option<Vec<String>> {
        let found = neighbours(pid, gpu, times, &Processes::new("/nonexistent"))?;
        Some(found.into_iter().map(|task| task.task).collect())
    }

    #[test]
    fn the_neighbours_of_a_process_are_those_that_compute_on_its_gpu() {
        let times = times(&[(0, 7, 5), (1, 7, 0), (1, 8, 3), (1, 9, 0)]);
        assert_eq!(named(7, 0, &times), Some(vec![]));
        assert_eq!(named(7, 1, &times), Some(vec!["PID 8".to_owned()]));
    }

    #[test]
    fn a_process_that_the_driver_does_not_list_has_no_known_neighbours() {
        assert_eq!(named(4, 1, &times(&[(1, 8, 3)])), None);
    }
}
