//! Closing hours: costs are added by the writer thread, so that nothing can be stored in an hour
//! while it is closed.

use std::collections::BTreeSet;

use echo_core::units::Nanos;

use crate::duckdb::commit::Session;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::hours;
use crate::hours::{Closed, ClosingHour, revised};

impl Session {
    /// Adds the costs of an hour, unless the hour has changed meanwhile or its costs are unchanged.
    pub(super) fn close_hour(&mut self, closing: ClosingHour) -> EngineResult<Closed> {
        let due = closing.due;
        if !self.shared.hours.is_untouched(&due) {
            return Ok(Closed::Touched);
        }
        let now = self.shared.clock.now();
        let transaction = self.connection.transaction()?;
        let known = hours::latest(&transaction, due.hour)?;
        let added = revised(&known, closing.rows);
        hours::append(&transaction, &added, now)?;
        hours::forget_due(&transaction, due.hour)?;
        transaction.commit()?;
        self.shared.backlog.add(added.len() as u64);
        let has_rows = !(known.is_empty() && added.is_empty());
        self.shared.hours.close(due.hour, has_rows);
        if added.is_empty() {
            return Ok(Closed::Same);
        }
        let clusters: BTreeSet<_> = added.iter().map(|(_, row)| &row.cluster).collect();
        Ok(Closed::Revised(clusters.len()))
    }

    /// Deletes closed hours that begin before `cutoff`.
    pub(super) fn forget_hours(&self, cutoff: Nanos) -> EngineResult<()> {
        hours::forget_before(&self.connection, cutoff)?;
        self.shared.hours.forget_before(cutoff);
        Ok(())
    }
}
