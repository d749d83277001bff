//! Metrics of actions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::policy::Policy;
use crate::record::{Outcome, Record};
use crate::state::State;

/// Counts of actions. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ActionCounts(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    outcomes: BTreeMap<(String, Outcome), u64>,
    consumers: BTreeMap<String, Load>,
    is_killed: bool,
}

/// What a consumer has, and what waits for it.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    open: usize,
    queued: usize,
}

impl Counts {
    fn set_state(&mut self, consumers: BTreeMap<String, Load>, is_killed: bool) {
        self.consumers = consumers;
        self.is_killed = is_killed;
    }
}

impl ActionCounts {
    /// Counts an outcome.
    pub(crate) fn count(&self, record: &Record) {
        let key = (record.consumer.clone(), record.outcome);
        *self.counts().outcomes.entry(key).or_default() += 1;
    }

    /// Records the current state. Consumers of the policy have counts from then on.
    pub(crate) fn observe(&self, policy: &Policy, state: &State, is_killed: bool) {
        let load = |name: &String| {
            let open = state.open.iter().filter(|one| one.consumer == *name);
            let load = Load {
                open: open.count(),
                queued: state.n_queued(name),
            };
            (name.clone(), load)
        };
        let consumers = policy.consumers.keys().map(load).collect();
        self.counts().set_state(consumers, is_killed);
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for ActionCounts {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.counts().encode(encoder)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of actions are far below 2^53"
)]
impl Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Actions by what became of them; in shadow mode nothing is sent";
        let mut family = encoder.encode_descriptor("actions", help, None, kind)?;
        for name in self.consumers.keys() {
            for outcome in Outcome::ALL {
                let count = self.outcomes.get(&(name.clone(), outcome));
                let labels = [("consumer", name.as_str()), ("outcome", outcome.name())];
                let count = ConstCounter::new(count.copied().unwrap_or(0));
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        type Value = fn(&Load) -> usize;
        let gauges: [(&str, &str, Value); 2] = [
            (
                "actions_open",
                "Actions in force, in any mode",
                |load: &Load| load.open,
            ),
            (
                "actions_queued",
                "Deliveries that wait for their consumer",
                |load: &Load| load.queued,
            ),
        ];
        let kind = ConstGauge::new(0.0).metric_type();
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (consumer, load) in &self.consumers {
                let labels = [("consumer", consumer.as_str())];
                let gauge = ConstGauge::new(value(load) as f64);
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        let killed = ConstGauge::new(f64::from(u8::from(self.is_killed)));
        let help = "1 while the kill switch of actions is on";
        let kind = killed.metric_type();
        killed.encode(encoder.encode_descriptor("actions_kill_switch", help, None, kind)?)
    }
}
