//! Running sender, with a receiver that can be unreachable.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_agent_core::batch::{Batch, Resource, ResourcePoints, ResourceVerdicts, VerdictBatch};
use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId, Point, Value};
use fleet_agent_core::verdict::{Mode, SelfVerdict, State};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::delivery::Outbox;
use crate::delivery::report::Report;
use crate::encoded::EncodedBatch;
use crate::sender::{Sender, Settings, ShutdownHandle};
use crate::spool::Spool;
use crate::vitals::{Amount, Loss, Vitals};
use crate::{Ack, Export, ExportError, Forward};

/// Responses of a receiver.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) is_away: bool,
    pub(super) answers: VecDeque<ExportError>,
    pub(super) attempts: Vec<(u64, u64)>,
    pub(super) stored: Vec<(u64, u64)>,
    pub(super) verdicts: u64,
    /// Response time, else 20 ms.
    pub(super) response_time: Option<Duration>,
}

/// Receiver that can be unreachable.
#[derive(Debug, Clone, Default)]
pub(super) struct Receiver(pub(super) Arc<Mutex<Answers>>, u64);

impl Receiver {
    pub(super) fn away() -> Self {
        let receiver = Self::default();
        receiver.0.lock().unwrap().is_away = true;
        receiver
    }

    /// Returns the same receiver, as another agent instance sends to it.
    pub(super) fn from(&self, instance: u64) -> Self {
        Self(Arc::clone(&self.0), instance)
    }

    pub(super) fn comes_back(&self) {
        self.0.lock().unwrap().is_away = false;
    }

    pub(super) fn stored(&self) -> Vec<u64> {
        let state = self.0.lock().unwrap();
        state.stored.iter().map(|(_, number)| *number).collect()
    }

    pub(super) fn attempts(&self) -> Vec<u64> {
        let state = self.0.lock().unwrap();
        state.attempts.iter().map(|(_, number)| *number).collect()
    }

    fn answer(&self) -> Result<Ack, ExportError> {
        let mut state = self.0.lock().unwrap();
        if state.is_away {
            return Err(later("away"));
        }
        state
            .answers
            .pop_front()
            .map_or_else(|| Ok(Ack::default()), Err)
    }
}

pub(super) fn later(reason: &str) -> ExportError {
    ExportError::Later {
        after: None,
        reason: reason.to_owned(),
    }
}

impl Export for Receiver {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        self.forward(&self.encode(batch)).await
    }

    async fn export_verdicts(&self, batch: &VerdictBatch) -> Result<Ack, ExportError> {
        let ack = self.answer()?;
        self.0.lock().unwrap().verdicts += batch.n_verdicts() as u64;
        Ok(ack)
    }
}

impl Forward for Receiver {
    fn encode(&self, batch: &Batch) -> EncodedBatch {
        EncodedBatch {
            instance: self.1,
            number: batch.number,
            points: batch.n_points() as u64,
            request: batch.number.to_string().into(),
        }
    }

    async fn forward(&self, batch: &EncodedBatch) -> Result<Ack, ExportError> {
        assert_eq!(batch.request, batch.number.to_string());
        let key = (batch.instance, batch.number);
        let response_time = {
            let mut state = self.0.lock().unwrap();
            state.attempts.push(key);
            state.response_time.unwrap_or(Duration::from_millis(20))
        };
        tokio::time::sleep(response_time).await;
        let ack = self.answer()?;
        self.0.lock().unwrap().stored.push(key);
        Ok(ack)
    }
}

pub(super) fn block() -> Block {
    Block {
        comm: CommId::new(1),
        comm_rank: 0,
        comm_nranks: 2,
        source: fleet_agent_core::signal::Source::Host,
        op: Op::AllReduce,
        seq_first: 0,
        seq_last: 0,
        iterations: None,
        role: None,
    }
}

pub(super) fn resource() -> Resource {
    Resource {
        cluster: "c".to_owned(),
        node: "n".to_owned(),
        job: None,
        gpu_model: None,
        gpu_uuid: None,
        pod: None,
        namespace: None,
        rank: Some(0),
        world_size: Some(2),
        pid: 1,
    }
}

/// Batch of ten points.
pub(super) fn batch(number: u64) -> Batch {
    let point = Point {
        metric: fleet_proto::metric::PERIOD,
        start_ns: 0,
        time_ns: 0,
        block: block(),
        value: Value::Gauge(1.0),
    };
    Batch {
        number,
        resources: vec![ResourcePoints {
            resource: resource(),
            points: vec![point; 10],
        }],
        reports: Vec::new(),
        agent_counters: None,
    }
}

pub(super) fn verdict(number: u64) -> VerdictBatch {
    let verdict = SelfVerdict {
        time_ns: 0,
        block: block(),
        state: State::Raised,
        mode: Mode::Local,
        measure: None,
        policy_version: None,
    };
    VerdictBatch {
        number,
        resources: vec![ResourceVerdicts {
            resource: resource(),
            verdicts: vec![verdict],
        }],
    }
}

pub(super) const SETTINGS: Settings = Settings {
    queue_points: 100,
    spool_after: Duration::from_secs(5),
};

/// Running sender.
pub(super) struct Agent {
    pub(super) outbox: Outbox,
    pub(super) shutdown: ShutdownHandle,
    pub(super) vitals: Arc<Vitals>,
    pub(super) running: JoinHandle<Report>,
}

impl Agent {
    #[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
    pub(super) fn start(receiver: &Receiver, spool: Option<Spool>) -> Self {
        let (outbox, shutdown, sender) = Sender::new(receiver.clone(), SETTINGS, spool);
        Self {
            outbox,
            shutdown,
            vitals: sender.vitals(),
            running: tokio::spawn(sender.run()),
        }
    }

    pub(super) fn spooling(receiver: &Receiver, dir: &Path) -> Self {
        Self::start(receiver, Some(Spool::open(dir, 1 << 20).unwrap()))
    }

    /// Sends one batch per second, with the numbers of `range`.
    pub(super) async fn send(&mut self, range: std::ops::RangeInclusive<u64>) {
        for number in range {
            assert!(self.outbox.send(batch(number)).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(super) async fn wait_until(&self, condition: impl Fn(&Vitals) -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..100_000 {
            if condition(&self.vitals) {
                return;
            }
            ticks.tick().await;
        }
        panic!("waited in vain: {:?}", self.vitals.read());
    }

    pub(super) async fn end(self, limit: Duration) -> Report {
        self.shutdown.stop_within(limit);
        drop(self.outbox);
        self.running.await.unwrap()
    }
}

pub(super) fn lost(vitals: &Vitals, loss: Loss) -> Amount {
    vitals.read().lost[&loss]
}

pub(super) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}
