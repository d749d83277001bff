//! Handles: numbers that pass for pointers with NCCL. They are never dereferenced, so a stale one, one of another process or a
//! made-up one finds nothing and does no harm.

/// What a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A communicator.
    Comm = 1,
    /// An operation on it.
    Operation = 2,
    /// The part of an operation that one channel does.
    Channel = 3,
}

/// Place in a table, and which of its occupants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Which occupant of the place.
    pub(crate) generation: u32,
    /// The place.
    pub(crate) slot: u16,
    /// Channel of a [`Kind::Channel`].
    pub(crate) channel: u8,
    /// What it stands for.
    pub(crate) kind: Kind,
}

impl Handle {
    /// The number. Never 0, which NCCL takes for none.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32
            | u64::from(self.slot) << 16
            | u64::from(self.channel) << 8
            | self.kind as u64
    }

    /// Reads a number back; none where it is none of these.
    pub(crate) fn of_bits(bits: u64, kind: Kind) -> Option<Self> {
        let [kind_bits, channel, slot_low, slot_high, generation @ ..] = bits.to_le_bytes();
        (u64::from(kind_bits) == kind as u64).then_some(Self {
            generation: u32::from_le_bytes(generation),
            slot: u16::from_le_bytes([slot_low, slot_high]),
            channel,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_back_as_what_it_was() {
        let handle = Handle {
            generation: 0xdead_beef,
            slot: 4095,
            channel: 63,
            kind: Kind::Channel,
        };
        assert_eq!(
            Handle::of_bits(handle.to_bits(), Kind::Channel),
            Some(handle)
        );
    }

    #[test]
    fn a_handle_of_another_kind_and_a_pointer_are_none() {
        let handle = Handle {
            generation: 7,
            slot: 1,
            channel: 0,
            kind: Kind::Comm,
        };
        assert_eq!(Handle::of_bits(handle.to_bits(), Kind::Operation), None);
        for pointer in [0, 0x7fff_1234_5678_u64, u64::MAX] {
            assert_eq!(Handle::of_bits(pointer, Kind::Comm), None, "{pointer:x}");
        }
    }
}
