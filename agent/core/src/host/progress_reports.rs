//! Progress that was reported without probes.

use crate::batch::{Batch, ResourcePoints};
use crate::host::resources::job_name;
use crate::host::{BATCH_POINTS, Host};

impl Host {
    /// Returns whether a traced process has joined a communicator of this size with this rank, so
    /// that its progress is reported from its calls.
    pub fn has_comm(&self, pid: u32, rank: u32, size: u32) -> bool {
        let pipeline = self.pipelines.get(&pid);
        pipeline.is_some_and(|pipeline| pipeline.has_comm(rank, size))
    }

    /// Returns the job of a traced process, if known.
    pub fn job(&self, pid: u32) -> Option<String> {
        let pipeline = self.pipelines.get(&pid)?;
        job_name(&self.identity, self.labels.get(&pid), pipeline)
    }

    /// Returns the batches that deliver these points, whose times are Unix nanoseconds.
    pub fn batches(&mut self, mut resources: Vec<ResourcePoints>) -> Vec<Batch> {
        let mut batches = Vec::new();
        while !resources.is_empty() {
            let rest = resources.split_off(resources.len().min(BATCH_POINTS));
            self.batches += 1;
            batches.push(Batch {
                number: self.batches,
                resources,
                reports: Vec::new(),
                agent_counters: None,
            });
            resources = rest;
        }
        batches
    }
}
