//! Handles: numbers that NCCL stores as pointers. They are never dereferenced, so a stale or
//! invalid handle, or one of another process, finds nothing and does no harm.

/// Kind of object behind a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Communicator.
    Comm = 1,
    /// Operation on a communicator.
    Operation = 2,
    /// Part of an operation on one channel.
    Channel = 3,
}

/// Slot in a table, and generation of its occupant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Generation of the slot's occupant.
    pub(crate) generation: u32,
    /// Slot.
    pub(crate) slot: u16,
    /// Channel of a [`Kind::Channel`].
    pub(crate) channel: u8,
    /// Kind of the object.
    pub(crate) kind: Kind,
}

impl Handle {
    /// Converts to a number. Never 0, which NCCL takes for null.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32
            | u64::from(self.slot) << 16
            | u64::from(self.channel) << 8
            | self.kind as u64
    }

    /// Converts a number back; none when it is not a handle of this kind.
    pub(crate) fn from_bits(bits: u64, kind: Kind) -> Option<Self> {
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
    fn a_handle_survives_a_round_trip() {
        let handle = Handle {
            generation: 0xdead_beef,
            slot: 4095,
            channel: 63,
            kind: Kind::Channel,
        };
        assert_eq!(
            Handle::from_bits(handle.to_bits(), Kind::Channel),
            Some(handle)
        );
    }

    #[test]
    fn handles_of_another_kind_and_pointers_are_rejected() {
        let handle = Handle {
            generation: 7,
            slot: 1,
            channel: 0,
            kind: Kind::Comm,
        };
        assert_eq!(Handle::from_bits(handle.to_bits(), Kind::Operation), None);
        for pointer in [0, 0x7fff_1234_5678_u64, u64::MAX] {
            assert_eq!(Handle::from_bits(pointer, Kind::Comm), None, "{pointer:x}");
        }
    }
}
