//! Reports to `NVSentinel`: an event when a GPU of this host becomes or ceases to be a culprit.
//!
//! It works on levels: what `NVSentinel` has accepted is compared with the latest statement of
//! Echo, and the difference is sent until it is accepted. So nothing is queued, and what begins and
//! ends during an outage is not sent. An event that is sent again has the same identity. What a
//! killed agent has reported ends with the event for all GPUs that the next one sends when Echo
//! names no culprit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::protocol::datamodels::HealthEvents;
use crate::protocol::datamodels::platform_connector_client::PlatformConnectorClient;
use crate::sentinel::events::{Reported, Sender};
use crate::standing::{Standing, Standings};

mod events;

/// Version of events and of lists of events.
const VERSION: u32 = 1;

/// Time for the answer to one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Shortest and longest time before the next attempt, before jitter.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Error of the path of a socket.
#[derive(Debug, Error)]
#[error("--nvsentinel-socket {path} is no path of a socket")]
pub struct SentinelError {
    path: String,
}

/// What `NVSentinel` may do with the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Store and export them.
    #[default]
    StoreOnly,
    /// Change the state of the cluster.
    Execute,
}

/// Counts of reports. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SentinelCounts(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl SentinelCounts {
    /// Events that were accepted.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Attempts that failed, and were or will be repeated.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }
}

/// Sends changes of the standing to `NVSentinel`.
#[derive(Debug)]
pub struct Sentinel {
    client: PlatformConnectorClient<Channel>,
    sender: Sender,
    reported: Reported,
    counts: SentinelCounts,
}

impl Sentinel {
    /// Creates a reporter to the socket of the platform connector, as `node`. Connects when there
    /// is something to report.
    ///
    /// # Errors
    ///
    /// Fails if the path cannot be an address.
    pub fn new((socket, node): (&Path, &str), strategy: Strategy) -> Result<Self, SentinelError> {
        let path = socket.display().to_string();
        let endpoint = Endpoint::try_from(format!("unix://{path}"));
        let endpoint = endpoint.map_err(|_invalid| SentinelError { path })?;
        let sender = Sender {
            node: node.to_owned(),
            strategy,
        };
        Ok(Self {
            client: PlatformConnectorClient::new(endpoint.connect_lazy()),
            sender,
            reported: Reported::default(),
            counts: SentinelCounts::default(),
        })
    }

    /// Returns the counts.
    pub fn counts(&self) -> SentinelCounts {
        self.counts.clone()
    }

    /// Reports until it is dropped.
    pub async fn run(mut self, mut standings: Standings) {
        let mut delays = backoff();
        loop {
            if self.report(standings.now()).await {
                delays = backoff();
                standings.changed().await;
            } else {
                let delay = delays.next().unwrap_or(RETRY.1);
                sleep(delay).await;
            }
        }
    }

    /// Reports what has changed. Returns false if that has to be tried again.
    async fn report(&mut self, standing: Standing) -> bool {
        let Standing::Culprits(culprits) = standing else {
            return true;
        };
        let next = Reported::new(culprits);
        let events = next.changes_since(&self.reported, &self.sender);
        let n_events = events.len() as u64;
        if n_events == 0 {
            return true;
        }
        let request = HealthEvents {
            version: VERSION,
            events,
        };
        let sent = timeout(TIMEOUT, self.client.health_event_occurred_v1(request)).await;
        let error = match sent {
            Ok(Ok(_accepted)) => {
                self.counts.0.sent.fetch_add(n_events, Ordering::Relaxed);
                tracing::info!(
                    events = n_events,
                    "NVSentinel has the standing of this host"
                );
                self.reported = next;
                return true;
            }
            Ok(Err(status)) => status.code().to_string(),
            Err(_elapsed) => format!("no answer within {} s", TIMEOUT.as_secs()),
        };
        if self.counts.0.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("NVSentinel does not accept events: {error}; further attempts follow");
        }
        false
    }
}

fn backoff() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(RETRY.0)
        .with_max_delay(RETRY.1)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests;
