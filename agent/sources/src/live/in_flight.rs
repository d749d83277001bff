//! Operations in flight of a process: the NCCL profiler plugin keeps them in the memory of the process.

use std::io;

use fleet_agent_bpf::layout::{OperationInFlight, SlotTable};

use crate::process::Processes;

/// Where the NCCL profiler plugin of a process keeps its operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightTable {
    /// Process.
    pub pid: u32,
    pub(super) slots: SlotTable,
}

impl InFlightTable {
    /// Reads the operations. A process that hangs can block this.
    pub fn read(&self, processes: &Processes) -> io::Result<InFlight> {
        let memory = processes.memory(self.pid, self.slots.address, self.slots.bytes)?;
        Ok(InFlight(OperationInFlight::parse(&memory).collect()))
    }
}

/// Operations in flight at a reading.
#[derive(Debug, PartialEq, Eq)]
pub struct InFlight(Vec<OperationInFlight>);

impl InFlight {
    /// Number of those that the GPU has begun and not ended.
    pub fn n_running(&self) -> usize {
        self.0.iter().filter(|own| own.is_running).count()
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn operations_are_read_from_the_memory_of_another_process_and_a_table_that_is_gone_is_an_error()
    {
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
        assert_eq!(table.read(&processes).unwrap().n_running(), 1);
        table.slots.address = 8;
        assert!(table.read(&processes).is_err());
    }
}
