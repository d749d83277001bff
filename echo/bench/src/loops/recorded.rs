//! Real training loops recorded on GPUs: `testdata/recordings/real-loops`.

use std::fs::File;
use std::path::Path;

use fleet_agent_sources::recording::Recording;

use super::verdict::{Expected, Truth};

/// A recorded loop.
#[derive(Debug, Clone, Copy)]
pub struct RecordedLoop {
    /// File name without `.jsonl.gz`.
    pub name: &'static str,
    /// Expected report.
    pub expected: Expected,
    /// Host clock at the first line, nanoseconds.
    began_ns: u64,
    /// Start and end of the fault according to the rows, nanoseconds of the host clock.
    fault_ns: (u64, u64),
    /// Cost according to the rows, GPU-seconds: ranks x steps x extra time per step.
    lost_gpu_s: f64,
    /// True if the detector is known to say nothing about it.
    pub is_missed: bool,
}

/// All recorded loops. Times and costs follow from the operations: see the README beside the files.
pub const LOOPS: [RecordedLoop; 12] = [
    RecordedLoop {
        name: "hf-ddp-loader1",
        expected: Expected::Rank(1),
        began_ns: 286_391_976_538,
        fault_ns: (316_140_000_000, 336_160_000_000),
        lost_gpu_s: 14.7,
        is_missed: false,
    },
    RecordedLoop {
        name: "ga4-loader1",
        expected: Expected::Rank(1),
        began_ns: 147_503_671_995,
        fault_ns: (171_330_000_000, 187_330_000_000),
        lost_gpu_s: 13.0,
        is_missed: false,
    },
    RecordedLoop {
        name: "fsdp-cpu1",
        expected: Expected::Rank(1),
        began_ns: 426_870_477_034,
        fault_ns: (450_700_000_000, 466_700_000_000),
        lost_gpu_s: 23.3,
        is_missed: false,
    },
    // Two ranks share each GPU, and pauses of a quarter of a second explain half of the loss.
    RecordedLoop {
        name: "ddp4-pulse3",
        expected: Expected::RankOrCondition(3),
        began_ns: 359_811_111_171,
        fault_ns: (383_500_000_000, 399_400_000_000),
        lost_gpu_s: 6.5,
        is_missed: true,
    },
    RecordedLoop {
        name: "evals10-healthy",
        expected: Expected::Nothing,
        began_ns: 438_450_097_961,
        fault_ns: (u64::MAX, u64::MAX),
        lost_gpu_s: 0.0,
        is_missed: false,
    },
    RecordedLoop {
        name: "pp-cpu1",
        expected: Expected::RankOrCondition(1),
        began_ns: 35_120_679_409,
        fault_ns: (66_700_000_000, 82_750_000_000),
        lost_gpu_s: 10.0,
        is_missed: false,
    },
    // Most operations lack GPU times. The GPU stays slow after the neighbour has gone: the cost counts to the end of the recording.
    RecordedLoop {
        name: "lit-neighbour0",
        expected: Expected::Rank(0),
        began_ns: 266_185_722_322,
        fault_ns: (292_590_000_000, 316_624_279_088),
        lost_gpu_s: 7.5,
        is_missed: true,
    },
    // The wait of an operation inside a group does not show in its GPU times.
    RecordedLoop {
        name: "pp-neighbour0",
        expected: Expected::RankOrCondition(0),
        began_ns: 300_717_009_417,
        fault_ns: (342_621_000_000, 364_708_000_000),
        lost_gpu_s: 17.3,
        is_missed: false,
    },
    RecordedLoop {
        name: "ddp4-loader2",
        expected: Expected::Rank(2),
        began_ns: 474_155_610_396,
        fault_ns: (513_864_000_000, 535_865_000_000),
        lost_gpu_s: 32.6,
        is_missed: false,
    },
    // The recording has no lines while the rank is stopped, so the agent sends no progress reports. The
    // first one afterwards tells how long ago the ranks issued their last operations.
    RecordedLoop {
        name: "ddp4-stop1",
        expected: Expected::RankOrCondition(1),
        began_ns: 382_149_966_112,
        fault_ns: (426_615_000_000, 448_616_000_000),
        lost_gpu_s: 87.5,
        is_missed: false,
    },
    RecordedLoop {
        name: "attached/hf-ddp-loader1",
        expected: Expected::Rank(1),
        began_ns: 286_397_976_538,
        fault_ns: (316_140_000_000, 336_160_000_000),
        lost_gpu_s: 14.7,
        is_missed: false,
    },
    RecordedLoop {
        name: "attached/fsdp-cpu1",
        expected: Expected::Rank(1),
        began_ns: 426_876_477_034,
        fault_ns: (450_700_000_000, 466_700_000_000),
        lost_gpu_s: 23.3,
        is_missed: false,
    },
];

impl RecordedLoop {
    /// Opens the recording in the folder of test data.
    pub fn open(&self, testdata: &Path) -> anyhow::Result<Recording> {
        let path = testdata
            .join("recordings/real-loops")
            .join(format!("{}.jsonl.gz", self.name));
        Ok(Recording::new(
            &path.display().to_string(),
            File::open(&path)?,
        )?)
    }

    /// Ground truth.
    pub const fn truth(&self) -> Truth {
        let (start, end) = self.fault_ns;
        Truth {
            expected: self.expected,
            when_ns: start.saturating_sub(self.began_ns)..end.saturating_sub(self.began_ns),
            lost_gpu_s: Some(self.lost_gpu_s),
        }
    }
}
