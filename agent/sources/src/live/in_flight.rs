//! Operations in flight of a process: the NCCL profiler plugin keeps them in the memory of the process.

use std::io;

use fleet_agent_bpf::layout::{OperationInFlight, SlotTable, Stage};

use crate::process::Processes;

/// Where the NCCL profiler plugin of a process keeps its operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightTable {
    /// Process.
    pub pid: u32,
    pub(super) slots: SlotTable,
}

impl InFlightTable {
    /// Reads the operations; an error if the memory cannot be read. A process that hangs can block this.
    pub fn read(&self, processes: &Processes) -> io::Result<InFlight> {
        let memory = processes.memory(self.pid, self.slots.address, self.slots.bytes)?;
        Ok(InFlight(OperationInFlight::parse(&memory).collect()))
    }
}

/// Operations in flight at a reading.
#[derive(Debug, PartialEq, Eq)]
pub struct InFlight(Vec<OperationInFlight>);

impl InFlight {
    /// Number of those that the GPU has begun and not ended. 0 is known only if others are queued, which shows
    /// that the process records its operations, and if no end was missed.
    pub fn n_running(&self) -> Option<usize> {
        let in_stage = |stage: Stage| self.0.iter().filter(|own| own.stage == stage).count();
        let running = in_stage(Stage::Running);
        let is_none = in_stage(Stage::Queued) > 0 && in_stage(Stage::PartlyEnded) == 0;
        (running > 0 || is_none).then_some(running)
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    fn in_flight(stages: &[Stage]) -> InFlight {
        let operations = (1..).zip(stages);
        let operations = operations.map(|(generation, stage)| OperationInFlight {
            generation,
            stage: *stage,
        });
        InFlight(operations.collect())
    }

    #[test]
    fn a_gpu_is_in_no_operation_only_if_some_are_queued_and_all_ends_are_known() {
        use Stage::{PartlyEnded, Queued, Running};
        let n_running = |stages: &[Stage]| in_flight(stages).n_running();
        assert_eq!(n_running(&[Queued, Queued]), Some(0));
        assert_eq!(n_running(&[Running, Queued]), Some(1));
        assert_eq!(n_running(&[PartlyEnded, Running]), Some(1));
        assert_eq!(n_running(&[PartlyEnded, Queued]), None);
        assert_eq!(n_running(&[]), None);
    }

    #[test]
    fn operations_are_read_from_the_memory_of_a_process_and_a_table_that_is_gone_is_an_error() {
        let mut slots = vec![0_u64; 2 * 13];
        (slots[13], slots[23]) = (7 << 32, 5);
        let mut table = InFlightTable {
            pid: process::id(),
            slots: SlotTable {
                address: slots.as_ptr().addr() as u64,
                bytes: slots.len() * 8,
            },
        };
        let processes = Processes::new("/proc");
        assert_eq!(table.read(&processes).unwrap().n_running(), Some(1));
        table.slots.address = 8;
        assert!(table.read(&processes).is_err());
    }
}
