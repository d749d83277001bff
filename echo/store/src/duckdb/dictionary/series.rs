//! Series: the fields that points have in common regardless of their sender. Metric, unit, and for
//! blocks of collectives the communicator, operation, role and clock.

use std::sync::Arc;

use echo_core::ids::{CommId, MetricName, Op, RoleId};
use echo_core::model::event::{Event, Source};
use xxhash_rust::xxh64::xxh64;

/// Series. Ranks that run the same operations share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::duckdb) struct Series {
    /// Metric.
    pub(in crate::duckdb) metric: MetricName,
    /// Unit, empty if the sender gave none.
    pub(in crate::duckdb) unit: Arc<str>,
    /// Collectives that the points describe, if any.
    pub(in crate::duckdb) collectives: Option<Collectives>,
}

/// Collectives of a series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::duckdb) struct Collectives {
    /// Communicator.
    pub(in crate::duckdb) comm: CommId,
    /// Operation.
    pub(in crate::duckdb) op: Option<Op>,
    /// Role of the ranks, if the sender knows it.
    pub(in crate::duckdb) role: Option<RoleId>,
    /// Clock that measured them.
    pub(in crate::duckdb) source: Source,
}

impl Series {
    /// Series of an event.
    pub(in crate::duckdb) fn from_event(event: &Event) -> Self {
        Self {
            metric: event.metric.clone(),
            unit: Arc::clone(&event.unit),
            collectives: event.block.as_ref().map(|block| Collectives {
                comm: block.comm,
                op: block.op.clone(),
                role: block.role,
                source: block.source,
            }),
        }
    }

    /// Returns true if an event belongs to the series.
    pub(in crate::duckdb) fn has(&self, event: &Event) -> bool {
        let has_block = match (&self.collectives, &event.block) {
            (Some(known), Some(block)) => {
                known.comm == block.comm
                    && known.op == block.op
                    && known.role == block.role
                    && known.source == block.source
            }
            (known, block) => known.is_none() && block.is_none(),
        };
        has_block && self.metric == event.metric && self.unit == event.unit
    }
}

/// Hash of all fields of the event's series, each seeded by those before.
pub(in crate::duckdb) fn series_id(event: &Event) -> u64 {
    let named = xxh64(
        event.unit.as_bytes(),
        xxh64(event.metric.as_str().as_bytes(), 0),
    );
    let Some(block) = &event.block else {
        return named;
    };
    let op = block
        .op
        .as_ref()
        .map(|op| xxh64(op.as_str().as_bytes(), named));
    let role = block.role.map(RoleId::value);
    let flags = u64::from(op.is_some())
        | u64::from(role.is_some()) << 1
        | u64::from(block.source == Source::Device) << 2;
    let mut numbers = [0; 24];
    let parts = [block.comm.value(), role.unwrap_or(0), flags];
    for (bytes, part) in numbers.chunks_exact_mut(8).zip(parts) {
        bytes.copy_from_slice(&part.to_le_bytes());
    }
    xxh64(&numbers, op.unwrap_or(named))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use echo_core::ids::{CommId, RoleId};
    use echo_core::model::event::{Block, Event, Reading, Source};

    use super::{Series, series_id};
    use crate::contract::sample::{bare_origin, gauge, origin, wait};

    #[test]
    fn every_field_of_a_series_changes_its_id() {
        let base = wait(&origin("prod", "node-1", 0), 10);
        let with = |change: fn(&mut Block)| {
            let mut event = base.clone();
            event.block.iter_mut().for_each(change);
            event
        };
        let named = |metric, unit: &str| Event {
            unit: unit.into(),
            ..gauge(&bare_origin("prod", "n"), metric, 0, Reading::Int(1))
        };
        let all = [
            base.clone(),
            with(|block| block.comm = CommId::new(7)),
            with(|block| block.op = None),
            with(|block| block.op = "other".parse().ok()),
            with(|block| block.role = Some(RoleId::new(0))),
            with(|block| block.role = Some(RoleId::new(1))),
            with(|block| block.source = Source::Device),
            Event {
                block: None,
                ..base.clone()
            },
            named("a", "bc"),
            named("ab", "c"),
            named("ab", ""),
        ];
        let ids: BTreeSet<_> = all.iter().map(series_id).collect();
        assert_eq!(ids.len(), all.len());
        for (expected, event) in all.iter().enumerate() {
            let series = Series::from_event(event);
            let members = all.iter().enumerate();
            let members = members.filter(|(_, event)| series.has(event));
            assert_eq!(
                members.map(|(index, _)| index).collect::<Vec<_>>(),
                [expected]
            );
        }
    }

    #[test]
    fn ranks_with_the_same_operations_share_a_series() {
        let [first, second] = [0, 1].map(|rank| wait(&origin("prod", "node-1", rank), 10));
        assert_eq!(series_id(&first), series_id(&second));
        assert_eq!(Series::from_event(&first), Series::from_event(&second));
    }

    #[test]
    fn an_id_is_the_same_on_every_machine() {
        let event = gauge(&bare_origin("prod", "n"), "m", 0, Reading::Int(1));
        assert_eq!(
            series_id(&event),
            17_921_146_856_390_263_032,
            "existing databases contain it"
        );
    }
}
