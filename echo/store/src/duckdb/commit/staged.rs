//! The rows of one group in the making.

use std::collections::{BTreeSet, HashMap};
use std::ptr;
use std::sync::Arc;

use echo_core::model::conclusion::Conclusions;
use echo_core::model::event::{EventBatch, Origin};
use echo_core::units::Hour;

use crate::duckdb::dictionary::{Entries, name_id, origin_id};
use crate::duckdb::ledger::Entry;
use crate::duckdb::rows::events::EventRow;
use crate::duckdb::rows::identity::LedgerRow;
use crate::hours::hours_of;

/// The rows of one group.
#[derive(Debug, Default)]
pub(super) struct Staged<'g> {
    pub(super) events: Vec<EventRow<'g>>,
    pub(super) entries: Entries,
    pub(super) ledger: Vec<LedgerRow>,
    pub(super) conclusions: Conclusions,
    /// Ids of origins by address: the events of a batch share a few.
    origin_ids: HashMap<*const Origin, u64>,
}

impl<'g> Staged<'g> {
    /// A group of these conclusions, and no batch yet.
    pub(super) fn with(conclusions: Conclusions) -> Self {
        Self {
            conclusions,
            ..Self::default()
        }
    }

    /// Adds a batch whose events are numbered from `last_event` on. Returns the number of the last.
    pub(super) fn add(
        &mut self,
        batch: &'g EventBatch,
        mut last_event: u64,
        stored: &Entries,
    ) -> u64 {
        self.events.reserve(batch.events.len());
        for event in &batch.events {
            last_event += 1;
            let op = event.block.as_ref().and_then(|block| block.op.as_ref());
            let row = EventRow {
                id: last_event,
                received: batch.received,
                origin: self.origin(&event.origin, stored),
                metric: self.name(event.metric.as_str(), stored),
                unit: self.name(&event.unit, stored),
                op: op.map(|op| self.name(op.as_str(), stored)),
                event,
            };
            self.events.push(row);
        }
        self.ledger.push(LedgerRow {
            entry: Entry::of(&batch.key),
            received: batch.received,
            last_event,
        });
        last_event
    }

    /// The hours that costs change in.
    pub(super) fn touched(&self) -> BTreeSet<Hour> {
        let events = self.events.iter().map(|row| row.event.timestamp);
        let lost = self.conclusions.lost.iter();
        hours_of(events.chain(lost.map(|lost| lost.interval.from())))
    }

    fn name(&mut self, name: &str, stored: &Entries) -> u64 {
        let id = name_id(name);
        if !stored.names.contains_key(&id) {
            self.entries
                .names
                .entry(id)
                .or_insert_with(|| Arc::from(name));
        }
        id
    }

    fn origin(&mut self, origin: &Arc<Origin>, stored: &Entries) -> u64 {
        let address = ptr::from_ref::<Origin>(origin);
        if let Some(id) = self.origin_ids.get(&address) {
            return *id;
        }
        let id = origin_id(origin);
        if !stored.origins.contains_key(&id) {
            self.entries.origins.insert(id, Arc::clone(origin));
        }
        self.origin_ids.insert(address, id);
        id
    }
}
