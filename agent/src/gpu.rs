//! Which GPU a process uses, and what holds the clocks of the GPUs down.
//!
//! The driver is asked on a thread of its own: a GPU that has fallen off its bus can keep a call for good, and only the
//! thread waits for it. Whoever asks gets no answer then, and no later question is put.

mod choice;
mod files;
mod limits;
mod nvml;

use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use fleet_agent_sources::placement::Placement;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::gpu::choice::choose;
use crate::gpu::files::Files;
use crate::gpu::limits::Limits;
use crate::gpu::nvml::Library;

/// Questions that may wait for the driver.
const INBOX: usize = 64;

/// How long an answer is waited for. Eight GPUs take some 50 ms when they are well.
const PATIENCE: Duration = Duration::from_secs(1);

/// One GPU of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Number by the driver, from 0 in the order of the bus.
    pub index: u32,
    /// Unique identity, as `GPU-` and a UUID; none before the driver knows it.
    pub uuid: Option<String>,
    /// Model, such as `NVIDIA H100 80GB HBM3`.
    pub model: Option<String>,
}

/// How long the clocks of a GPU were held down.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttled {
    /// The GPU.
    pub gpu: Gpu,
    /// Time since it was first read in which something other than idleness or a setting held its clocks down, milliseconds.
    pub total_ms: f64,
    /// What did so since the last time that this was read.
    pub reasons: Vec<&'static str>,
}

/// What a driver tells. What it cannot tell is left out; calls may take long.
pub trait Driver: Send {
    /// All GPUs, by index.
    fn gpus(&mut self) -> Vec<Gpu>;

    /// The processes that have memory on a GPU.
    fn users(&mut self, index: u32) -> Vec<User>;

    /// What holds its clocks down.
    fn limits(&mut self, index: u32) -> Option<Limit>;
}

/// A process that has memory on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The process.
    pub pid: u32,
    /// Its memory there, bytes; 0 when unknown.
    pub bytes: u64,
}

/// What holds the clocks of a GPU down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// Since the driver was loaded, by reason, nanoseconds. Several reasons may hold at once.
    Totals(Vec<(&'static str, u64)>),
    /// At this moment.
    Now(Vec<&'static str>),
}

/// The GPUs of the host. Without a driver every answer is none.
#[derive(Debug)]
pub struct Gpus {
    inbox: mpsc::Sender<Question>,
}

#[derive(Debug)]
enum Question {
    Of {
        pid: u32,
        place: Box<Placement>,
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
    /// Asks NVML where its library can be loaded, else the driver's files below `proc`.
    pub fn open(proc: &Path) -> Self {
        let proc = proc.to_owned();
        Self::with(move || match Library::open() {
            Some(library) => Box::new(library),
            None => Box::new(Files::below(&proc)),
        })
    }

    /// Asks what `open` gives, on a new thread. It is called again when a process is asked for and there are no GPUs: the
    /// driver may come later than the agent, and go.
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
            tracing::warn!("GPUs stay unknown: no thread can be started: {error}");
        }
        Self { inbox }
    }

    /// All GPUs, by index; none when the driver does not answer.
    pub async fn all(&self) -> Option<Vec<Gpu>> {
        self.ask(|answer| Question::All { answer }).await
    }

    /// The GPU that a process uses, as far as it can be told. A process that has not touched its GPU yet is judged by what
    /// its environment allows it, so ask when it joins a communicator rather than when it starts.
    pub async fn of(&self, pid: u32, place: &Placement) -> Option<Gpu> {
        let place = Box::new(place.clone());
        self.ask(|answer| Question::Of { pid, place, answer })
            .await
            .flatten()
    }

    /// How long each GPU was held down, at `now_ns` of a monotonic clock in nanoseconds; none when the driver does not
    /// answer, and without those GPUs of which it cannot tell. It takes about 5 ms of each GPU (H100), and should not be
    /// asked more often than every five seconds.
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
        // Whoever has lost patience has dropped the other end, and is not worth the driver's time either.
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

    fn of(&mut self, pid: u32, place: &Placement) -> Option<Gpu> {
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
