//! Load generator with many senders, each with one request in flight, like an agent.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};
use tonic::codec::CompressionEncoding;

use crate::message::{Sender, Shape};
use crate::table::times;
use crate::template::Template;
use crate::wire::{Client, Target};

/// Delay before a failed request is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Load on a receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Shape of the points.
    pub(crate) shape: Shape,
    /// Points of a request.
    pub(crate) points: u32,
    /// Senders, each with one request in flight.
    pub(crate) nodes: u32,
    /// Clusters, which have equal parts of the senders.
    pub(crate) clusters: u32,
    /// Connections, which the senders share evenly.
    pub(crate) connections: u32,
    /// Points per second of all senders; `None` sends as soon as the last request is acknowledged.
    pub(crate) rate: Option<f64>,
    /// Compression of the requests.
    pub(crate) compression: Option<CompressionEncoding>,
    /// Times of the events; `None` for those at which they are sent.
    pub(crate) times: Option<Times>,
    /// Number of the first round, so that a later load continues an earlier one on the same receiver.
    pub(crate) first_round: u64,
}

/// Times of the rounds, nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Time of the first round.
    pub(crate) first_ns: u64,
    /// Time from one round to the next.
    pub(crate) step_ns: u64,
}

impl Times {
    /// Time of a round.
    pub(crate) const fn of(self, round: u64) -> u64 {
        self.first_ns + self.step_ns * round
    }
}

impl Load {
    /// Closed-loop load: four connections with two requests in flight on each.
    pub(crate) const fn closed(shape: Shape, points: u32) -> Self {
        Self {
            shape,
            points,
            nodes: 8,
            clusters: 1,
            connections: 4,
            rate: None,
            compression: None,
            times: None,
            first_round: 0,
        }
    }

    /// Points of a request, which may be fewer than configured.
    pub(crate) fn real_points(&self) -> u32 {
        self.sender(0).real_points()
    }

    const fn sender(&self, node: u32) -> Sender {
        Sender {
            shape: self.shape,
            points: self.points,
            cluster: node % self.clusters,
            node: node / self.clusters,
            nodes: self.nodes / self.clusters,
        }
    }

    /// Interval between two requests of a sender.
    fn period(&self) -> Option<Duration> {
        let points_per_round = f64::from(self.nodes) * f64::from(self.real_points());
        self.rate
            .map(|rate| Duration::from_secs_f64(points_per_round / rate))
    }
}

/// Acknowledged requests.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Points acknowledged.
    pub(crate) points: u64,
    /// Points rejected in acknowledged requests.
    pub(crate) rejected: u64,
    /// Bytes of the requests before compression.
    pub(crate) bytes: u64,
    /// Attempts that failed, by code.
    pub(crate) failures: BTreeMap<String, u64>,
    /// Time from when a request was due to its acknowledgement, microseconds.
    pub(crate) acks: Histogram<u64>,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            points: 0,
            rejected: 0,
            bytes: 0,
            failures: BTreeMap::new(),
            acks: times()?,
        })
    }

    /// Describes rejected points and failed attempts for a table.
    pub(crate) fn problems(&self) -> String {
        let mut text = String::new();
        if self.rejected > 0 {
            // Writing to a string cannot fail.
            let _written = write!(text, "{} points rejected ", self.rejected);
        }
        for (code, attempts) in &self.failures {
            let _written = write!(text, "{attempts} times {code} ");
        }
        if text.is_empty() {
            "none".to_owned()
        } else {
            text.trim_end().to_owned()
        }
    }
}

/// Running senders.
#[derive(Debug)]
pub(crate) struct Generator {
    shared: Arc<Shared>,
    senders: JoinSet<anyhow::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    load: Load,
    begin: Instant,
    stopped: AtomicBool,
    next_round: AtomicU64,
    tally: Mutex<Tally>,
}

impl Generator {
    /// Opens the connections and begins to send.
    pub(crate) async fn start(load: Load, target: &Target) -> anyhow::Result<Self> {
        let mut channels = Vec::new();
        for _ in 0..load.connections {
            channels.push(target.connect().await?);
        }
        let templates = (0..load.nodes).map(|node| Template::new(load.sender(node)));
        let templates = templates.collect::<anyhow::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            load,
            begin: Instant::now(),
            stopped: AtomicBool::new(false),
            next_round: AtomicU64::new(load.first_round),
            tally: Mutex::new(Tally::new()?),
        });
        let mut senders = JoinSet::new();
        let start = unix_ns();
        for ((template, channel), node) in
            templates.into_iter().zip(channels.iter().cycle()).zip(0..)
        {
            let instance = format!("load/{node}/{start:x}");
            let client = Client::new(target, channel.clone(), &instance, load.compression)?;
            senders.spawn(Arc::clone(&shared).send(node, client, template));
        }
        Ok(Self { shared, senders })
    }

    /// Takes the tally of requests acknowledged since the last call.
    pub(crate) fn take_tally(&self) -> anyhow::Result<Tally> {
        let mut tally = self.shared.tally();
        Ok(std::mem::replace(&mut tally, Tally::new()?))
    }

    /// Points acknowledged since the tally was last taken.
    pub(crate) fn points(&self) -> u64 {
        self.shared.tally().points
    }

    /// Waits for requests in flight. Returns the tally since the last call, and the next round.
    pub(crate) async fn stop(mut self) -> anyhow::Result<(Tally, u64)> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        while let Some(sender) = self.senders.join_next().await {
            sender.context("a sender broke off")??;
        }
        let next_round = self.shared.next_round.load(Ordering::Relaxed);
        Ok((self.take_tally()?, next_round))
    }
}

impl Shared {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        self: Arc<Self>,
        node: u32,
        mut client: Client,
        template: Template,
    ) -> anyhow::Result<()> {
        let mut round = self.load.first_round;
        while let Some(due) = self.wait(node, round).await {
            let time_ns = self
                .load
                .times
                .map_or_else(unix_ns, |times| times.of(round));
            let body = template.request(round, time_ns);
            while !self.stopped.load(Ordering::Relaxed) {
                match client.send(round, body.clone()).await {
                    Ok(rejected) => {
                        self.acknowledged(&template, rejected, due.elapsed());
                        break;
                    }
                    Err(status) => {
                        let code = format!("{:?}", status.code());
                        *self.tally().failures.entry(code).or_default() += 1;
                        sleep(RETRY_AFTER).await;
                    }
                }
            }
            round += 1;
            self.next_round.fetch_max(round, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until a request is due; returns that time, or `None` when the generator stops.
    async fn wait(&self, node: u32, round: u64) -> Option<Instant> {
        let due = self.load.period().map_or_else(Instant::now, |period| {
            let share = f64::from(node) / f64::from(self.load.nodes);
            let rounds = u32::try_from(round - self.load.first_round).unwrap_or(u32::MAX);
            self.begin + period.mul_f64(f64::from(rounds) + share)
        });
        sleep_until(due.into()).await;
        (!self.stopped.load(Ordering::Relaxed)).then_some(due)
    }

    fn acknowledged(&self, template: &Template, rejected: u64, took: Duration) {
        let mut tally = self.tally();
        tally.points += template.points();
        tally.rejected += rejected;
        tally.bytes += template.bytes() as u64;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tally.acks.saturating_record(micros);
    }
}

/// Time now, nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
