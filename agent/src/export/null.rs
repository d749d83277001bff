//! The end that takes everything and keeps nothing, to measure what lies before it.

use crate::export::{Ack, Batch, Export, ExportError, VerdictBatch};

/// Takes every batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

impl Export for Null {
    async fn export(&self, _batch: &Batch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }

    async fn tell(&self, _batch: &VerdictBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}
