//! Events: what differs between two standings. Their identity (node, check, GPU, error code) is the
//! same for the beginning and the end.

use std::collections::BTreeMap;

use fleet_proto::policy::Culprit;
use jiff::Timestamp;

use crate::protocol::datamodels::{Entity, HealthEvent, ProcessingStrategy};
use crate::sentinel::{Strategy, VERSION};
use crate::standing::describe;

/// Who reports, and what may be done about it.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) node: String,
    pub(super) strategy: Strategy,
}

/// Culprits by GPU, as accepted by the receiver. A GPU that is not known has an empty name.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Reported(Option<BTreeMap<String, Culprit>>);

impl Reported {
    /// Takes the most severe culprit of each GPU.
    pub(super) fn new(culprits: Vec<Culprit>) -> Self {
        let mut by_gpu = BTreeMap::new();
        for culprit in culprits {
            by_gpu.entry(culprit.gpu_uuid.clone()).or_insert(culprit);
        }
        Self(Some(by_gpu))
    }

    /// Returns the events after which the receiver knows this instead of `before`.
    pub(super) fn changes_since(&self, before: &Self, sender: &Sender) -> Vec<HealthEvent> {
        let none = BTreeMap::new();
        let now = self.0.as_ref().unwrap_or(&none);
        let earlier = before.0.as_ref().unwrap_or(&none);
        let is_new = |(gpu, culprit): &(&String, &Culprit)| {
            earlier.get(*gpu).map(fingerprint) != Some(fingerprint(culprit))
        };
        let raised = now.iter().filter(is_new);
        let raised = raised.map(|(gpu, culprit)| sender.unhealthy(gpu, culprit));
        // Without a name of its own, a GPU is cleared with all others.
        let is_over = |gpu: &&String| !gpu.is_empty() && !now.contains_key(*gpu);
        let cleared = earlier.keys().filter(is_over);
        let cleared = cleared.map(|gpu| sender.healthy(Some(gpu)));
        let is_first = before.0.is_none();
        let is_clear = now.is_empty() && (is_first || !earlier.is_empty());
        let all_clear = is_clear.then(|| sender.healthy(None));
        raised.chain(cleared).chain(all_clear).collect()
    }
}

/// What has to differ for a culprit to be reported again.
fn fingerprint(culprit: &Culprit) -> (&str, &str, &str) {
    (&culprit.incident_id, &culprit.severity, &culprit.class)
}

impl Sender {
    fn unhealthy(&self, gpu: &str, culprit: &Culprit) -> HealthEvent {
        let metadata = [
            ("incident_id", culprit.incident_id.clone()),
            ("job", culprit.job.clone()),
            ("rank", culprit.rank.to_string()),
            ("class", culprit.class.clone()),
            ("severity", culprit.severity.clone()),
            ("lag_ms", format!("{:.1}", culprit.lag_ms)),
        ];
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value));
        HealthEvent {
            message: describe(culprit),
            metadata: metadata.into(),
            ..self.event(Some(gpu).filter(|gpu| !gpu.is_empty()))
        }
    }

    fn healthy(&self, gpu: Option<&str>) -> HealthEvent {
        HealthEvent {
            is_healthy: true,
            message: "no straggler".to_owned(),
            ..self.event(gpu)
        }
    }

    fn event(&self, gpu: Option<&str>) -> HealthEvent {
        let entity = gpu.map(|gpu| Entity {
            entity_type: "GPU_UUID".to_owned(),
            entity_value: gpu.to_owned(),
        });
        let now = Timestamp::now();
        let strategy = match self.strategy {
            Strategy::StoreOnly => ProcessingStrategy::StoreOnly,
            Strategy::Execute => ProcessingStrategy::ExecuteRemediation,
        };
        HealthEvent {
            version: VERSION,
            agent: "fleet-echo".to_owned(),
            component_class: "GPU".to_owned(),
            check_name: "GpuStraggler".to_owned(),
            is_fatal: false,
            is_healthy: false,
            message: String::new(),
            error_code: vec!["GPU_STRAGGLER".to_owned()],
            entities_impacted: entity.into_iter().collect(),
            metadata: std::collections::HashMap::new(),
            generated_timestamp: Some(prost_types::Timestamp {
                seconds: now.as_second(),
                nanos: now.subsec_nanosecond(),
            }),
            node_name: self.node.clone(),
            processing_strategy: strategy.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use fleet_proto::policy::Culprit;

    use super::{Reported, Sender};
    use crate::sample::{NODE, culprit};
    use crate::sentinel::Strategy;

    /// Events after the first list, whether each is healthy, and its GPU.
    fn changes(before: Option<&[Culprit]>, now: &[Culprit]) -> Vec<(bool, Option<String>)> {
        let sender = Sender {
            node: NODE.to_owned(),
            strategy: Strategy::StoreOnly,
        };
        let before = before.map_or_else(Reported::default, |list| Reported::new(list.to_vec()));
        let events = Reported::new(now.to_vec()).changes_since(&before, &sender);
        let short = events.into_iter().map(|event| {
            let entity = event.entities_impacted.into_iter().next();
            (event.is_healthy, entity.map(|entity| entity.entity_value))
        });
        short.collect()
    }

    #[expect(clippy::unnecessary_wraps, reason = "as in an event")]
    fn gpu(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn each_gpu_begins_and_ends_by_itself_and_the_last_end_is_of_all() {
        let [a, b] = ["GPU-a", "GPU-b"].map(culprit);
        let both = [a.clone(), b.clone()];
        assert_eq!(
            changes(Some(&[]), &both),
            [(false, gpu("GPU-a")), (false, gpu("GPU-b"))]
        );
        assert_eq!(changes(Some(&both), &both), []);
        assert_eq!(changes(Some(&both), from_ref(&b)), [(true, gpu("GPU-a"))]);
        assert_eq!(
            changes(Some(&[b]), &[]),
            [(true, gpu("GPU-b")), (true, None)]
        );
        assert_eq!(changes(Some(&[]), &[]), []);
    }

    #[test]
    fn the_first_statement_of_a_healthy_host_ends_what_an_earlier_agent_reported() {
        assert_eq!(changes(None, &[]), [(true, None)]);
        assert_eq!(changes(None, &[culprit("GPU-a")]), [(false, gpu("GPU-a"))]);
    }

    #[test]
    fn a_gpu_without_a_name_is_reported_for_the_node_and_ends_with_all() {
        let (unnamed, named) = (culprit(""), culprit("GPU-a"));
        assert_eq!(changes(Some(&[]), from_ref(&unnamed)), [(false, None)]);
        let both = [unnamed.clone(), named.clone()];
        assert_eq!(changes(Some(&both), &[named]), []);
        assert_eq!(changes(Some(&[unnamed]), &[]), [(true, None)]);
    }

    #[test]
    fn another_severity_is_reported_and_another_lag_is_not() {
        let before = [culprit("GPU-a")];
        let mut now = culprit("GPU-a");
        now.lag_ms = 99.0;
        assert_eq!(changes(Some(&before), &[now.clone()]), []);
        now.severity = "warn".to_owned();
        assert_eq!(changes(Some(&before), &[now]), [(false, gpu("GPU-a"))]);
    }

    #[test]
    fn an_event_is_stored_only_unless_the_strategy_is_to_execute() {
        for (strategy, number) in [(Strategy::StoreOnly, 2), (Strategy::Execute, 1)] {
            let sender = Sender {
                node: NODE.to_owned(),
                strategy,
            };
            let event = sender.unhealthy("GPU-a", &culprit("GPU-a"));
            assert_eq!((event.processing_strategy, event.is_fatal), (number, false));
            assert_eq!(event.metadata["incident_id"], "00000000000000ab");
        }
    }
}
