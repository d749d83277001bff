//! GPU of each process, and the time that the clocks of each GPU are throttled.
//!
//! The driver is called on its own thread: a call to a GPU that has fallen off the bus may never
//! return, and then blocks only that thread. The caller times out and gets no response, and neither
//! do later requests.

mod choice;
mod files;
mod nvml;
mod readings;
mod sharing;
mod throttle;

use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use fleet_agent_sources::placement::Placement;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::gpu::choice::choose;
use crate::gpu::files::ProcFiles;
use crate::gpu::nvml::Library;
pub use crate::gpu::readings::DeviceReadings;
pub use crate::gpu::sharing::{ComputeTime, ComputeTimes, Utilization};
use crate::gpu::throttle::ThrottleTimes;

/// Requests that can wait for the driver.
const MAX_REQUESTS: usize = 64;

/// Timeout of a request. Eight healthy GPUs take about 50 ms.
const TIMEOUT: Duration = Duration::from_secs(1);

/// One GPU of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Index in the driver, from 0 in PCI bus order.
    pub index: u32,
    /// UUID with the prefix `GPU-`; none before the driver knows it.
    pub uuid: Option<String>,
    /// Model name, such as `NVIDIA H100 80GB HBM3`.
    pub model: Option<String>,
}

/// Time that the clocks of a GPU were throttled.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttled {
    /// The GPU.
    pub gpu: Gpu,
    /// Time throttled since the first reading, for reasons other than idleness or clock settings,
    /// milliseconds.
    pub total_ms: f64,
    /// Reasons since the previous reading.
    pub reasons: Vec<&'static str>,
}

/// GPU driver. Values that it does not provide are left out; calls can take long.
pub trait Driver: Send {
    /// All GPUs, by index.
    fn gpus(&mut self) -> Vec<Gpu>;

    /// Processes that have memory on a GPU.
    fn processes(&mut self, index: u32) -> Vec<GpuProcess>;

    /// Samples of how much each process computes on a GPU, later than an instant, microseconds of the
    /// driver's clock; none where the driver does not measure it.
    fn utilization(&mut self, _index: u32, _later_than_us: u64) -> Option<Vec<Utilization>> {
        None
    }

    /// Throttling of a GPU's clocks.
    fn throttling(&mut self, index: u32) -> Option<Throttling>;

    /// State of a GPU now.
    fn readings(&mut self, gpu: &Gpu) -> DeviceReadings {
        DeviceReadings::unknown(gpu)
    }
}

/// A process that has memory on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// Process id.
    pub pid: u32,
    /// Memory of the process on the GPU, bytes; 0 when unknown.
    pub bytes: u64,
}

/// Throttling of a GPU's clocks, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Throttling {
    /// Time throttled since the driver was loaded, nanoseconds by reason. Several reasons can
    /// overlap.
    Totals(Vec<(&'static str, u64)>),
    /// Reasons active now.
    Now(Vec<&'static str>),
}

/// GPUs of the host. Without a driver there are none.
#[derive(Debug, Clone)]
pub struct Gpus {
    inbox: mpsc::Sender<Request>,
}

#[derive(Debug)]
enum Request {
    ForProcess {
        pid: u32,
        place: Box<Placement>,
        reply: oneshot::Sender<Option<Gpu>>,
    },
    All {
        reply: oneshot::Sender<Vec<Gpu>>,
    },
    Readings {
        reply: oneshot::Sender<Vec<DeviceReadings>>,
    },
    Throttled {
        now_ns: u64,
        reply: oneshot::Sender<Vec<Throttled>>,
    },
    ComputeTimes {
        now_ns: u64,
        reply: oneshot::Sender<Vec<ComputeTime>>,
    },
}

impl Gpus {
    /// Opens NVML if its library can be loaded, else the driver's files below `proc`.
    pub fn open(proc: &Path) -> Self {
        let proc = proc.to_owned();
        Self::with_driver(move || match Library::open() {
            Some(library) => Box::new(library),
            None => Box::new(ProcFiles::new(&proc)),
        })
    }

    /// Runs the driver that `open` returns on a new thread. `open` is called again when a process
    /// is looked up and there are no GPUs: the driver may be loaded after the agent starts, or be
    /// reloaded.
    pub fn with_driver(mut open: impl FnMut() -> Box<dyn Driver> + Send + 'static) -> Self {
        let (inbox, mut requests) = mpsc::channel(MAX_REQUESTS);
        let run = move || {
            let mut worker = Worker {
                driver: open(),
                throttle_times: ThrottleTimes::default(),
                compute_times: ComputeTimes::default(),
            };
            while let Some(request) = requests.blocking_recv() {
                worker.handle(request, &mut open);
            }
        };
        if let Err(error) = Builder::new().name("gpu".to_owned()).spawn(run) {
            tracing::warn!("cannot start the GPU driver thread, so GPUs stay unknown: {error}");
        }
        Self { inbox }
    }

    /// Returns all GPUs, by index; none when the driver does not respond.
    pub async fn all(&self) -> Option<Vec<Gpu>> {
        self.call(|reply| Request::All { reply }).await
    }

    /// Returns the GPU that a process uses, if it can be determined. A process that has not used
    /// its GPU yet is assigned by the devices that its environment allows, so call this when the
    /// process joins a communicator, not when it starts.
    pub async fn for_process(&self, pid: u32, place: &Placement) -> Option<Gpu> {
        let place = Box::new(place.clone());
        self.call(|reply| Request::ForProcess { pid, place, reply })
            .await
            .flatten()
    }

    /// Returns the time throttled of each GPU at `now_ns` of a monotonic clock, nanoseconds; none
    /// when the driver does not respond. GPUs that do not report throttling are left out. It takes
    /// about 5 ms per GPU (H100), so call it every five seconds at most.
    pub async fn throttled(&self, now_ns: u64) -> Option<Vec<Throttled>> {
        self.call(|reply| Request::Throttled { now_ns, reply })
            .await
    }

    /// Returns how long each process that has memory on a GPU computed on it since the previous call,
    /// at `now_ns` of a monotonic clock; none when the driver does not respond. GPUs whose driver
    /// does not measure it are left out.
    pub async fn compute_times(&self, now_ns: u64) -> Option<Vec<ComputeTime>> {
        self.call(|reply| Request::ComputeTimes { now_ns, reply })
            .await
    }

    /// Returns the state of each GPU; none when the driver does not respond. It takes some
    /// milliseconds per GPU.
    pub async fn readings(&self) -> Option<Vec<DeviceReadings>> {
        self.call(|reply| Request::Readings { reply }).await
    }

    async fn call<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (sender, reply) = oneshot::channel();
        self.inbox.try_send(request(sender)).ok()?;
        timeout(TIMEOUT, reply).await.ok()?.ok()
    }
}

struct Worker {
    driver: Box<dyn Driver>,
    throttle_times: ThrottleTimes,
    compute_times: ComputeTimes,
}

impl Worker {
    fn handle(&mut self, request: Request, open: &mut impl FnMut() -> Box<dyn Driver>) {
        // A caller that has timed out has dropped its end, and the request is skipped.
        match request {
            Request::ForProcess { pid, place, reply } if !reply.is_closed() => {
                if self.driver.gpus().is_empty() {
                    self.driver = open();
                }
                let _timed_out = reply.send(self.for_process(pid, &place));
            }
            Request::All { reply } if !reply.is_closed() => {
                let _timed_out = reply.send(self.driver.gpus());
            }
            Request::Readings { reply } if !reply.is_closed() => {
                let gpus = self.driver.gpus();
                let readings = gpus.iter().map(|gpu| self.driver.readings(gpu));
                let _timed_out = reply.send(readings.collect());
            }
            Request::Throttled { now_ns, reply } if !reply.is_closed() => {
                let _timed_out = reply.send(self.throttled(now_ns));
            }
            Request::ComputeTimes { now_ns, reply } if !reply.is_closed() => {
                let _timed_out = reply.send(self.compute_times(now_ns));
            }
            Request::ForProcess { .. }
            | Request::All { .. }
            | Request::Readings { .. }
            | Request::Throttled { .. }
            | Request::ComputeTimes { .. } => {}
        }
    }

    fn for_process(&mut self, pid: u32, place: &Placement) -> Option<Gpu> {
        let gpus = self.driver.gpus();
        let used = gpus.iter().filter_map(|gpu| {
            let processes = self.driver.processes(gpu.index);
            let own = processes.iter().filter(|process| process.pid == pid);
            Some((gpu.index, own.map(|process| process.bytes).max()?))
        });
        let used: Vec<(u32, u64)> = used.collect();
        let index = choose(&gpus, &used, place)?;
        gpus.into_iter().find(|gpu| gpu.index == index)
    }

    fn throttled(&mut self, now_ns: u64) -> Vec<Throttled> {
        let mut all = Vec::new();
        for gpu in self.driver.gpus() {
            if let Some(throttling) = self.driver.throttling(gpu.index) {
                let (total_ms, reasons) =
                    self.throttle_times.record(gpu.index, &throttling, now_ns);
                all.push(Throttled {
                    gpu,
                    total_ms,
                    reasons,
                });
            }
        }
        all
    }

    fn compute_times(&mut self, now_ns: u64) -> Vec<ComputeTime> {
        let mut all = Vec::new();
        for gpu in self.driver.gpus() {
            let later_than_us = self.compute_times.newest_us(gpu.index);
            if let Some(samples) = self.driver.utilization(gpu.index, later_than_us) {
                let listed = self.driver.processes(gpu.index);
                let times = self
                    .compute_times
                    .record(gpu.index, &listed, &samples, now_ns);
                all.extend(times);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
