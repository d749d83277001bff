//! GPU of each process, and the time that the clocks of each GPU are throttled.
//!
//! The driver is called on its own thread: a call to a GPU that has fallen off the bus may never
//! return, and then blocks only that thread. The caller times out and gets no response, and neither
//! do later requests.

mod choice;
mod files;
mod limits;
mod nvml;

use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use fleet_agent_sources::placement::Place;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::gpu::choice::choose;
use crate::gpu::files::Files;
use crate::gpu::limits::Limits;
use crate::gpu::nvml::Library;

/// Requests that can wait for the driver.
const INBOX: usize = 64;

/// Timeout of a request. Eight healthy GPUs take about 50 ms.
const PATIENCE: Duration = Duration::from_secs(1);

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
    fn users(&mut self, index: u32) -> Vec<User>;

    /// Throttling of a GPU's clocks.
    fn limits(&mut self, index: u32) -> Option<Limit>;
}

/// A process that has memory on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Process id.
    pub pid: u32,
    /// Memory of the process on the GPU, bytes; 0 when unknown.
    pub bytes: u64,
}

/// Throttling of a GPU's clocks, as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// Time throttled since the driver was loaded, nanoseconds by reason. Several reasons can
    /// overlap.
    Totals(Vec<(&'static str, u64)>),
    /// Reasons active now.
    Now(Vec<&'static str>),
}

/// GPUs of the host. Without a driver there are none.
#[derive(Debug)]
pub struct Gpus {
    inbox: mpsc::Sender<Question>,
}

#[derive(Debug)]
enum Question {
    Of {
        pid: u32,
        place: Box<Place>,
        answer: oneshot::Sender<Option<Gpu>>,
    },
    All {
        answer: oneshot::Sender<Vec<Gpu>>,
    },
    Throttled {
        now_ns: u64,
        answer: oneshot::Sender<Vec<Throttled>>,
    },
}

impl Gpus {
    /// Opens NVML if its library can be loaded, else the driver's files below `proc`.
    pub fn open(proc: &Path) -> Self {
        let proc = proc.to_owned();
        Self::with(move || match Library::open() {
            Some(library) => Box::new(library),
            None => Box::new(Files::below(&proc)),
        })
    }

    /// Runs the driver that `open` returns on a new thread. `open` is called again when a process
    /// is looked up and there are no GPUs: the driver may be loaded after the agent starts, or be
    /// reloaded.
    pub fn with(mut open: impl FnMut() -> Box<dyn Driver> + Send + 'static) -> Self {
        let (inbox, mut questions) = mpsc::channel(INBOX);
        let answer = move || {
            let mut host = Host {
                driver: open(),
                limits: Limits::default(),
            };
            while let Some(question) = questions.blocking_recv() {
                host.answer(question, &mut open);
            }
        };
        if let Err(error) = Builder::new().name("gpu".to_owned()).spawn(answer) {
            tracing::warn!("cannot start the GPU driver thread, so GPUs stay unknown: {error}");
        }
        Self { inbox }
    }

    /// Returns all GPUs, by index; none when the driver does not respond.
    pub async fn all(&self) -> Option<Vec<Gpu>> {
        self.ask(|answer| Question::All { answer }).await
    }

    /// Returns the GPU that a process uses, if it can be determined. A process that has not used
    /// its GPU yet is assigned by the devices that its environment allows, so call this when the
    /// process joins a communicator, not when it starts.
    pub async fn of(&self, pid: u32, place: &Place) -> Option<Gpu> {
        let place = Box::new(place.clone());
        self.ask(|answer| Question::Of { pid, place, answer })
            .await
            .flatten()
    }

    /// Returns the time throttled of each GPU at `now_ns` of a monotonic clock, nanoseconds; none
    /// when the driver does not respond. GPUs that do not report throttling are left out. It takes
    /// about 5 ms per GPU (H100), so call it every five seconds at most.
    pub async fn throttled(&self, now_ns: u64) -> Option<Vec<Throttled>> {
        self.ask(|answer| Question::Throttled { now_ns, answer })
            .await
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.inbox.try_send(question(sender)).ok()?;
        timeout(PATIENCE, answer).await.ok()?.ok()
    }
}

struct Host {
    driver: Box<dyn Driver>,
    limits: Limits,
}

impl Host {
    fn answer(&mut self, question: Question, open: &mut impl FnMut() -> Box<dyn Driver>) {
        // A caller that has timed out has dropped its end, and the request is skipped.
        match question {
            Question::Of { pid, place, answer } if !answer.is_closed() => {
                if self.driver.gpus().is_empty() {
                    self.driver = open();
                }
                let _gone = answer.send(self.of(pid, &place));
            }
            Question::All { answer } if !answer.is_closed() => {
                let _gone = answer.send(self.driver.gpus());
            }
            Question::Throttled { now_ns, answer } if !answer.is_closed() => {
                let _gone = answer.send(self.throttled(now_ns));
            }
            Question::Of { .. } | Question::All { .. } | Question::Throttled { .. } => {}
        }
    }

    fn of(&mut self, pid: u32, place: &Place) -> Option<Gpu> {
        let gpus = self.driver.gpus();
        let used = gpus.iter().filter_map(|gpu| {
            let users = self.driver.users(gpu.index);
            let own = users.iter().filter(|user| user.pid == pid);
            Some((gpu.index, own.map(|user| user.bytes).max()?))
        });
        let used: Vec<(u32, u64)> = used.collect();
        let index = choose(&gpus, &used, place)?;
        gpus.into_iter().find(|gpu| gpu.index == index)
    }

    fn throttled(&mut self, now_ns: u64) -> Vec<Throttled> {
        let mut all = Vec::new();
        for gpu in self.driver.gpus() {
            if let Some(limit) = self.driver.limits(gpu.index) {
                let (total_ms, reasons) = self.limits.add(gpu.index, &limit, now_ns);
                all.push(Throttled {
                    gpu,
                    total_ms,
                    reasons,
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
