//! Decompression of bodies.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::accept::IngestError;
use crate::budget::Reservation;

/// Number of bytes decompressed per memory reservation.
const STEP: usize = 64 * 1024;

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// All compressions.
    pub(super) const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Returns the name on both transports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Memory per decompressed byte, in bytes: the buffer grows by doubling, and zstd also keeps a
    /// window of up to 128 MiB (gzip: 32 KiB).
    const fn growth(self) -> usize {
        match self {
            Self::Gzip => 2,
            Self::Zstd => 3,
        }
    }

    /// Decompresses a body to at most `limit` bytes. Memory is reserved step by step,
    /// because the size is not known before.
    pub(super) fn decompress(
        self,
        compressed: &[u8],
        limit: usize,
        memory: &mut Reservation,
    ) -> Result<Bytes, IngestError> {
        match self {
            Self::Gzip => self.read_all(MultiGzDecoder::new(compressed), limit, memory),
            Self::Zstd => {
                let decoder = zstd::Decoder::with_buffer(compressed);
                self.read_all(
                    decoder.map_err(|error| self.stream_error(&error))?,
                    limit,
                    memory,
                )
            }
        }
    }

    fn read_all(
        self,
        mut decoder: impl Read,
        limit: usize,
        memory: &mut Reservation,
    ) -> Result<Bytes, IngestError> {
        let mut decompressed = Vec::new();
        loop {
            memory.grow(STEP * self.growth())?;
            let mut step = decoder.by_ref().take(STEP as u64);
            let read = step.read_to_end(&mut decompressed);
            let read = read.map_err(|error| self.stream_error(&error))?;
            if decompressed.len() > limit {
                return Err(IngestError::TooLarge { limit });
            }
            if read < STEP {
                return Ok(Bytes::from(decompressed));
            }
        }
    }

    fn stream_error(self, error: &io::Error) -> IngestError {
        let name = self.name();
        IngestError::Unreadable(format!("invalid {name} stream: {error}"))
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
    use crate::memory_account::MemoryAccount;

    /// Compresses the bytes.
    pub(in crate::otlp) fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut compressed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                compressed.write_all(bytes).unwrap();
                compressed.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn decompress(
        compression: Compression,
        compressed: &[u8],
        limit: usize,
    ) -> Result<Bytes, IngestError> {
        let mut memory = Budget::new(usize::MAX).reserve(&MemoryAccount::Unknown);
        compression.decompress(compressed, limit, &mut memory)
    }

    #[test]
    fn a_body_of_the_maximum_size_is_decompressed_and_a_larger_one_is_not() {
        for compression in Compression::ALL {
            let compressed = compress(compression, &[7; 1_000]);
            assert_eq!(
                decompress(compression, &compressed, 1_000).unwrap().len(),
                1_000
            );
            let over = decompress(compression, &compressed, 999).unwrap_err();
            assert_eq!(over.code(), Code::TooLarge);
        }
    }

    #[test]
    fn concatenated_streams_are_decompressed_as_one_body() {
        for compression in Compression::ALL {
            let mut compressed = compress(compression, b"one ");
            compressed.extend(compress(compression, b"two"));
            assert_eq!(
                &*decompress(compression, &compressed, 100).unwrap(),
                b"one two"
            );
        }
    }

    #[test]
    fn a_truncated_or_damaged_stream_is_refused() {
        for compression in Compression::ALL {
            let mut compressed = compress(compression, &[7; 1_000]);
            let cut = decompress(compression, &compressed[..compressed.len() - 1], 10_000);
            assert_eq!(cut.unwrap_err().code(), Code::Invalid);
            compressed[0] ^= 1;
            let damaged = decompress(compression, &compressed, 10_000);
            assert_eq!(damaged.unwrap_err().code(), Code::Invalid);
        }
    }

    #[test]
    fn a_decompression_bomb_is_refused_at_the_limit() {
        for compression in Compression::ALL {
            // 64 MiB of zeros in a few kilobytes.
            let bomb = compress(compression, &vec![0; 64 << 20]);
            assert!(bomb.len() < 400_000);
            let refused = decompress(compression, &bomb, 10_000).unwrap_err();
            assert_eq!(refused.code(), Code::TooLarge);
        }
    }

    #[test]
    fn a_decompression_bomb_gets_no_memory_beyond_the_budget() {
        for compression in Compression::ALL {
            let bomb = compress(compression, &vec![0; 64 << 20]);
            let budget = Budget::new(20 * STEP);
            let mut memory = budget.reserve(&MemoryAccount::Unknown);
            let refused = compression
                .decompress(&bomb, 32 << 20, &mut memory)
                .unwrap_err();
            let is_too_large = matches!(
                refused,
                IngestError::OverBudget(OverBudget::TooLarge { .. })
            );
            assert!(is_too_large, "{refused:?}");
            assert!(budget.used() <= 10 * STEP);
        }
    }

    #[test]
    fn a_huge_window_is_refused() {
        // Magic number, no flags, a window of 2^31 bytes, one last raw block without content.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
        let refused = decompress(Compression::Zstd, &frame, 10_000).unwrap_err();
        assert_eq!(refused.code(), Code::Invalid);
    }
}
