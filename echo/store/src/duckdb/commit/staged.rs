//! Rows of one group before they are committed.

use std::collections::{BTreeSet, HashMap};
use std::ptr;
use std::sync::Arc;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::{Event, EventBatch, Origin};
use echo_core::units::Hour;

use crate::duckdb::batch_dedup::Entry;
use crate::duckdb::dictionary::series::{Series, series_id};
use crate::duckdb::dictionary::{Entries, find, origin_id};
use crate::duckdb::rows::events::EventRow;
use crate::duckdb::rows::identity::LedgerRow;
use crate::hours::hours_of;

/// Rows of one group.
#[derive(Debug, Default)]
pub(super) struct Staged<'g> {
    pub(super) events: Vec<EventRow<'g>>,
    pub(super) entries: Entries,
    pub(super) ledger: Vec<LedgerRow>,
    pub(super) output: DetectorOutput,
    /// Ids of origins by address: the events of a batch share a few.
    origin_ids: HashMap<*const Origin, u64>,
}

impl<'g> Staged<'g> {
    /// Stages detector output without batches.
    pub(super) fn with(output: DetectorOutput) -> Self {
        Self {
            output,
            ..Self::default()
        }
    }

    /// Adds a batch whose events are numbered after `last_event`. Returns the number of its last
    /// event.
    pub(super) fn add(
        &mut self,
        batch: &'g EventBatch,
        mut last_event: u64,
        stored: &Entries,
    ) -> u64 {
        self.events.reserve(batch.events.len());
        for event in &batch.events {
            last_event += 1;
            let row = EventRow {
                id: last_event,
                received: batch.received,
                origin: self.origin(&event.origin, stored),
                series: self.series(event, stored),
                event,
            };
            self.events.push(row);
        }
        self.ledger.push(LedgerRow {
            entry: Entry::from_key(&batch.key),
            received: batch.received,
            last_event,
        });
        last_event
    }

    /// Hours in which costs change.
    pub(super) fn touched(&self) -> BTreeSet<Hour> {
        let events = self.events.iter().map(|row| row.event.timestamp);
        let lost = self.output.lost.iter();
        hours_of(events.chain(lost.map(|lost| lost.interval.from())))
    }

    fn series(&mut self, event: &Event, stored: &Entries) -> u64 {
        let new = &self.entries.series;
        let known = |id| stored.series.get(&id).or_else(|| new.get(&id));
        let entry = find(series_id(event), known, |known| known.has(event));
        if !entry.is_known {
            let series = Arc::new(Series::from_event(event));
            self.entries.series.insert(entry.id, series);
        }
        entry.id
    }

    fn origin(&mut self, origin: &Arc<Origin>, stored: &Entries) -> u64 {
        let address = ptr::from_ref::<Origin>(origin);
        if let Some(id) = self.origin_ids.get(&address) {
            return *id;
        }
        let new = &self.entries.origins;
        let known = |id| stored.origins.get(&id).or_else(|| new.get(&id));
        let entry = find(origin_id(origin), known, |known| known == origin);
        if !entry.is_known {
            self.entries.origins.insert(entry.id, Arc::clone(origin));
        }
        self.origin_ids.insert(address, entry.id);
        entry.id
    }
}

#[cfg(test)]
mod tests;
