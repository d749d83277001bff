//! What goes on around the processes of a host: its RDMA ports, and the clocks of their GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use fleet_agent_core::event::{Activity, ActivitySample};

use crate::gpu::Gpus;
use crate::rdma::Rdma;

/// Time between two readings, nanoseconds: the driver takes some milliseconds for each GPU.
const EVERY_NS: u64 = 5_000_000_000;

/// Reads it, for the processes that are followed.
#[derive(Debug)]
pub(super) struct Ambient {
    rdma: Rdma,
    gpu_of: BTreeMap<u32, Option<u32>>,
    throttled_ms: BTreeMap<u32, f64>,
    read_ns: u64,
}

impl Ambient {
    /// Of the host whose `/sys` that is.
    pub(super) fn below(sys: &Path) -> Self {
        Self {
            rdma: Rdma::below(sys),
            gpu_of: BTreeMap::new(),
            throttled_ms: BTreeMap::new(),
            read_ns: 0,
        }
    }

    /// Follows a process on a GPU, if that is known.
    pub(super) fn came(&mut self, pid: u32, gpu: Option<u32>) {
        self.gpu_of.insert(pid, gpu);
    }

    /// Forgets a process.
    pub(super) fn left(&mut self, pid: u32) {
        self.gpu_of.remove(&pid);
    }

    /// Whether it is time to read.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        !self.gpu_of.is_empty() && now_ns.saturating_sub(self.read_ns) >= EVERY_NS
    }

    /// What happened since the last reading, for each process.
    pub(super) async fn measure(&mut self, gpus: &Gpus, now_ns: u64) -> Vec<ActivitySample> {
        self.read_ns = now_ns;
        let rdma_errors = self.rdma.read().map(|increases| increases.total());
        let throttled_ns = self.throttled(gpus, now_ns).await;
        let measured = self.gpu_of.iter().map(|(pid, gpu)| ActivitySample {
            ts_ns: now_ns,
            pid: *pid,
            activity: Activity {
                rdma_errors,
                throttled_ns: gpu.and_then(|gpu| throttled_ns.get(&gpu).copied()),
                ..Activity::default()
            },
        });
        measured
            .filter(|measured| measured.activity != Activity::default())
            .collect()
    }

    /// Nanoseconds since the last reading in which the clocks of each GPU were held down. The first reading has nothing to be
    /// compared with.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of some seconds, never below 0, and the cast saturates"
    )]
    async fn throttled(&mut self, gpus: &Gpus, now_ns: u64) -> BTreeMap<u32, u64> {
        let mut since = BTreeMap::new();
        for throttled in gpus.throttled(now_ns).await.unwrap_or_default() {
            let index = throttled.gpu.index;
            if let Some(before_ms) = self.throttled_ms.insert(index, throttled.total_ms) {
                since.insert(
                    index,
                    ((throttled.total_ms - before_ms).max(0.0) * 1e6) as u64,
                );
            }
        }
        since
    }
}
