//! Slots of the operations in flight, in the memory of the NCCL profiler plugin.

use crate::layout::PluginRecord;

/// Size of a slot in the supported layout, bytes.
const SLOT_BYTES: usize = 104;
/// Maximum number of slots.
const MAX_SLOTS: u64 = 1 << 16;
/// Kind of a record about a collective, and of one about the slots.
const COLLECTIVE: u32 = 2;
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

/// Collective in flight: counterpart of the plugin's `Slot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotInUse {
    /// NCCL's hash of the communicator.
    pub comm_id: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Whether the GPU has begun it.
    pub has_begun: bool,
}

impl SlotTable {
    /// Returns the table that a plugin announces; `None` for another record, and for another layout.
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

impl SlotInUse {
    /// Parses the collectives in the memory of a table.
    pub fn parse(table: &[u8]) -> impl Iterator<Item = Self> {
        let (slots, _) = table.as_chunks::<SLOT_BYTES>();
        slots.iter().filter_map(|slot| {
            let int = |at: usize| Some(u32::from_ne_bytes(*slot.get(at..)?.first_chunk()?));
            let long = |at: usize| Some(u64::from_ne_bytes(*slot.get(at..)?.first_chunk()?));
            let generation = u32::try_from(long(0)? >> 32).ok()?;
            let is_used = !UNUSED.contains(&generation) && int(12)? == COLLECTIVE;
            is_used.then_some(Self {
                comm_id: long(40)?,
                rank: int(16)?,
                has_begun: long(80)? != 0,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_parsed_and_free_slots_and_transfers_are_not() {
        let slot = |generation: u64, kind: u32, start_ns: u64| {
            let mut bytes = [0; SLOT_BYTES];
            bytes[..8].copy_from_slice(&(generation << 32).to_ne_bytes());
            bytes[12..16].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&3_u32.to_ne_bytes());
            bytes[40..48].copy_from_slice(&0xcafe_u64.to_ne_bytes());
            bytes[80..88].copy_from_slice(&start_ns.to_ne_bytes());
            bytes
        };
        let free = [
            slot(0, 2, 5),
            slot(u64::from(u32::MAX), 2, 5),
            slot(7, 3, 5),
        ];
        let table = [&free[..], &[slot(7, 2, 0), slot(8, 2, 5)]]
            .concat()
            .concat();
        let used = |has_begun| SlotInUse {
            comm_id: 0xcafe,
            rank: 3,
            has_begun,
        };
        let found: Vec<SlotInUse> = SlotInUse::parse(&table).collect();
        assert_eq!(found, [used(false), used(true)]);
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
        let other = PluginRecord {
            nccl_seq: 112,
            ..announced
        };
        let huge = PluginRecord {
            seq: 1 << 40,
            ..announced
        };
        let none = PluginRecord {
            count: 0,
            ..announced
        };
        for record in [
            other,
            huge,
            none,
            PluginRecord {
                what: 2,
                ..announced
            },
        ] {
            assert_eq!(SlotTable::announced(&record), None);
        }
    }
}
