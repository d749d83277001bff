//! Operations in flight, in the memory of the NCCL profiler plugin.

use crate::layout::PluginRecord;

/// Size of a slot in the supported layout, bytes.
const SLOT_BYTES: usize = 104;
/// Maximum number of slots.
const MAX_SLOTS: u64 = 4096;
/// Kind of a record about the slots.
const SLOTS: u32 = 5;
/// Generation of a free slot, and of one that is being filled.
const UNUSED: [u32; 2] = [0, u32::MAX];

/// Where the slots are in the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotTable {
    /// Address.
    pub address: u64,
    /// Size of all slots, bytes.
    pub bytes: usize,
}

/// Operation in flight: counterpart of the plugin's `Slot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationInFlight {
    /// Its number; another operation has another one.
    pub generation: u32,
    /// What the GPU does with it.
    pub stage: Stage,
}

/// What a GPU does with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has not begun it.
    Queued,
    /// It has begun it, and no part of it has ended.
    Running,
    /// Parts of it have ended. NCCL does not report the ends of all parts of some operations.
    PartlyEnded,
}

impl SlotTable {
    /// Returns whether a record is about the slots.
    pub const fn is_announced_by(record: &PluginRecord) -> bool {
        record.what == SLOTS
    }

    /// Returns the table that a plugin announces; `None` for another record, for another layout, and if some
    /// operations have no slot.
    pub fn announced(record: &PluginRecord) -> Option<Self> {
        let is_known = record.what == SLOTS
            && record.count != 0
            && record.seq <= MAX_SLOTS
            && record.nccl_seq == SLOT_BYTES as u64;
        let slots = usize::try_from(record.seq).ok().filter(|_| is_known)?;
        Some(Self {
            address: record.count,
            bytes: slots.checked_mul(SLOT_BYTES)?,
        })
    }
}

impl OperationInFlight {
    /// Parses the memory of a table.
    pub fn parse(table: &[u8]) -> impl Iterator<Item = Self> {
        let (slots, _) = table.as_chunks::<SLOT_BYTES>();
        slots.iter().filter_map(|slot| {
            let long = |at: usize| Some(u64::from_ne_bytes(*slot.get(at..)?.first_chunk()?));
            let generation = u32::try_from(long(0)? >> 32).ok()?;
            let (start_ns, stopped) = (long(80)?, long(96)?);
            let stage = match (start_ns, stopped) {
                (_, 1..) => Stage::PartlyEnded,
                (0, _) => Stage::Queued,
                _ => Stage::Running,
            };
            (!UNUSED.contains(&generation)).then_some(Self { generation, stage })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_runs_from_its_begin_until_its_first_channel_stops_and_free_slots_are_skipped() {
        let slot = |generation: u64, start_ns: u64, stopped: u64| {
            let mut bytes = [0; SLOT_BYTES];
            bytes[..8].copy_from_slice(&(generation << 32).to_ne_bytes());
            bytes[80..88].copy_from_slice(&start_ns.to_ne_bytes());
            bytes[96..].copy_from_slice(&stopped.to_ne_bytes());
            bytes
        };
        let free = [slot(0, 5, 0), slot(u64::from(u32::MAX), 5, 0)];
        let used = [slot(7, 0, 0), slot(8, 5, 0), slot(9, 5, 0b10)];
        let table = [&free[..], &used].concat().concat();
        let found = OperationInFlight::parse(&table).map(|own| (own.generation, own.stage));
        let found: Vec<(u32, Stage)> = found.collect();
        let expected = [
            (7, Stage::Queued),
            (8, Stage::Running),
            (9, Stage::PartlyEnded),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_table_of_another_layout_is_not_read() {
        let announced = PluginRecord {
            what: SLOTS,
            count: 0x7000,
            seq: 4096,
            nccl_seq: 104,
            ..PluginRecord::default()
        };
        let table = SlotTable::announced(&announced).unwrap();
        assert_eq!((table.address, table.bytes), (0x7000, 4096 * 104));
        let others: [fn(&mut PluginRecord); 4] = [
            |record| record.nccl_seq = 112,
            |record| record.seq = 4097,
            |record| record.count = 0,
            |record| record.what = 2,
        ];
        for change in others {
            let mut record = announced;
            change(&mut record);
            assert_eq!(SlotTable::announced(&record), None);
        }
    }
}
