//! Compressed bodies: which kinds are taken, and how they are unpacked.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::accept::IngestError;
use crate::budget::Held;

/// What is unpacked before more memory is taken, bytes.
const STEP: usize = 64 * 1024;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Every kind.
    pub(super) const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// The name that both transports have for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Memory that a byte takes while it is unpacked, in bytes: in a buffer that grows by doubling; zstd keeps beside it
    /// what the following may refer to, up to 128 MiB, where gzip goes back 32 KiB.
    const fn growth(self) -> usize {
        match self {
            Self::Gzip => 2,
            Self::Zstd => 3,
        }
    }

    /// What a body holds, unless that is more than `limit` bytes. Memory is taken as it is unpacked, because before that
    /// nobody knows how much it is.
    pub(super) fn unpack(
        self,
        packed: &[u8],
        limit: usize,
        held: &mut Held,
    ) -> Result<Bytes, IngestError> {
        match self {
            Self::Gzip => self.read(MultiGzDecoder::new(packed), limit, held),
            Self::Zstd => {
                let decoder = zstd::Decoder::with_buffer(packed);
                self.read(decoder.map_err(|error| self.broken(&error))?, limit, held)
            }
        }
    }

    fn read(
        self,
        mut unpacker: impl Read,
        limit: usize,
        held: &mut Held,
    ) -> Result<Bytes, IngestError> {
        let mut unpacked = Vec::new();
        loop {
            held.grow(STEP * self.growth())?;
            let mut step = unpacker.by_ref().take(STEP as u64);
            let read = step.read_to_end(&mut unpacked);
            let read = read.map_err(|error| self.broken(&error))?;
            if unpacked.len() > limit {
                return Err(IngestError::TooLarge { limit });
            }
            if read < STEP {
                return Ok(Bytes::from(unpacked));
            }
        }
    }

    fn broken(self, error: &io::Error) -> IngestError {
        let name = self.name();
        IngestError::Unreadable(format!("the {name} stream is broken: {error}"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use echo_core::error::{Code, Coded};
    use flate2::write::GzEncoder;

    use super::{Compression, STEP};
    use crate::accept::IngestError;
    use crate::budget::{Budget, OverBudget};
    use crate::memory_account::Sender;

    /// The bytes, compressed.
    pub(in crate::otlp) fn pack(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packed.write_all(bytes).unwrap();
                packed.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn unpack(compression: Compression, packed: &[u8], limit: usize) -> Result<Bytes, IngestError> {
        let mut held = Budget::new(usize::MAX).hold(&Sender::Unknown);
        compression.unpack(packed, limit, &mut held)
    }

    #[test]
    fn what_is_at_the_limit_is_unpacked_and_what_is_over_it_is_not() {
        for compression in Compression::ALL {
            let packed = pack(compression, &[7; 1_000]);
            assert_eq!(unpack(compression, &packed, 1_000).unwrap().len(), 1_000);
            let over = unpack(compression, &packed, 999).unwrap_err();
            assert_eq!(over.code(), Code::TooLarge);
        }
    }

    #[test]
    fn bodies_in_several_parts_are_put_together() {
        for compression in Compression::ALL {
            let mut packed = pack(compression, b"one ");
            packed.extend(pack(compression, b"two"));
            assert_eq!(&*unpack(compression, &packed, 100).unwrap(), b"one two");
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_or_damaged_is_refused() {
        for compression in Compression::ALL {
            let mut packed = pack(compression, &[7; 1_000]);
            let cut = unpack(compression, &packed[..packed.len() - 1], 10_000);
            assert_eq!(cut.unwrap_err().code(), Code::Invalid);
            packed[0] ^= 1;
            let damaged = unpack(compression, &packed, 10_000);
            assert_eq!(damaged.unwrap_err().code(), Code::Invalid);
        }
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        for compression in Compression::ALL {
            // 64 MiB of nothing in a few kilobytes.
            let bomb = pack(compression, &vec![0; 64 << 20]);
            assert!(bomb.len() < 400_000);
            let refused = unpack(compression, &bomb, 10_000).unwrap_err();
            assert_eq!(refused.code(), Code::TooLarge);
        }
    }

    #[test]
    fn a_bomb_gets_no_memory_beyond_the_budget() {
        for compression in Compression::ALL {
            let bomb = pack(compression, &vec![0; 64 << 20]);
            let budget = Budget::new(20 * STEP);
            let mut held = budget.hold(&Sender::Unknown);
            let refused = compression.unpack(&bomb, 32 << 20, &mut held).unwrap_err();
            let is_too_large = matches!(
                refused,
                IngestError::OverBudget(OverBudget::TooLarge { .. })
            );
            assert!(is_too_large, "{refused:?}");
            assert!(budget.taken() <= 10 * STEP);
        }
    }

    #[test]
    fn a_window_that_no_sender_needs_is_refused() {
        // Magic number, no flags, a window of 2^31 bytes, one last raw block without content.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
        let refused = unpack(Compression::Zstd, &frame, 10_000).unwrap_err();
        assert_eq!(refused.code(), Code::Invalid);
    }
}
