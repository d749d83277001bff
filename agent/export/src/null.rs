//! Exporter that accepts and discards everything, to measure the stages before it.

use bytes::Bytes;
use fleet_agent_core::batch::{Batch, VerdictBatch};

use crate::encoded::EncodedBatch;
use crate::{Ack, Export, ExportError, Forward};

/// Accepts every batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

impl Export for Null {
    async fn export(&self, _batch: &Batch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }

    async fn export_verdicts(&self, _batch: &VerdictBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}

impl Forward for Null {
    fn encode(&self, batch: &Batch) -> EncodedBatch {
        EncodedBatch {
            instance: 0,
            number: batch.number,
            points: batch.n_points() as u64,
            request: Bytes::new(),
        }
    }

    async fn forward(&self, _batch: &EncodedBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}
