//! Compressed bodies: which kinds are taken, what memory they need, and how they are unpacked where the transport
//! does not do it.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::accept::IngestError;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The name that both transports have for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Most memory that unpacking a message takes, if it may not hold more than `limit` bytes.
    ///
    /// What was unpacked last is what the following may refer to: gzip goes back 32 KiB, zstd up to 128 MiB, which it
    /// keeps beside the message, but never fills with more than has been unpacked.
    pub(super) const fn memory(self, limit: usize) -> usize {
        match self {
            Self::Gzip => limit,
            Self::Zstd => limit.saturating_mul(2),
        }
    }

    /// What a body holds, unless that is more than `limit` bytes.
    pub(super) fn unpack(self, packed: &[u8], limit: usize) -> Result<Bytes, IngestError> {
        let mut unpacked = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        let read = match self {
            Self::Gzip => MultiGzDecoder::new(packed)
                .take(most)
                .read_to_end(&mut unpacked),
            Self::Zstd => zstd::Decoder::with_buffer(packed)
                .and_then(|decoder| decoder.take(most).read_to_end(&mut unpacked)),
        };
        read.map_err(|error| {
            let name = self.name();
            IngestError::Unreadable(format!("the {name} stream is broken: {error}"))
        })?;
        if unpacked.len() > limit {
            return Err(IngestError::TooLarge { limit });
        }
        Ok(Bytes::from(unpacked))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use echo_core::error::{Code, Coded};
    use flate2::write::GzEncoder;

    use super::Compression;

    pub(in crate::otlp) const ALL: [Compression; 2] = [Compression::Gzip, Compression::Zstd];

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

    #[test]
    fn what_is_at_the_limit_is_unpacked_and_what_is_over_it_is_not() {
        for compression in ALL {
            let packed = pack(compression, &[7; 1_000]);
            assert_eq!(compression.unpack(&packed, 1_000).unwrap().len(), 1_000);
            let over = compression.unpack(&packed, 999).unwrap_err();
            assert_eq!(over.code(), Code::TooLarge);
        }
    }

    #[test]
    fn bodies_in_several_parts_are_put_together() {
        for compression in ALL {
            let mut packed = pack(compression, b"one ");
            packed.extend(pack(compression, b"two"));
            assert_eq!(&*compression.unpack(&packed, 100).unwrap(), b"one two");
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_or_damaged_is_refused() {
        for compression in ALL {
            let mut packed = pack(compression, &[7; 1_000]);
            let cut = compression.unpack(&packed[..packed.len() - 1], 10_000);
            assert_eq!(cut.unwrap_err().code(), Code::Invalid);
            packed[0] ^= 1;
            let damaged = compression.unpack(&packed, 10_000);
            assert_eq!(damaged.unwrap_err().code(), Code::Invalid);
        }
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        for compression in ALL {
            // 64 MiB of nothing in a few kilobytes.
            let bomb = pack(compression, &vec![0; 64 << 20]);
            assert!(bomb.len() < 400_000);
            let refused = compression.unpack(&bomb, 10_000).unwrap_err();
            assert_eq!(refused.code(), Code::TooLarge);
        }
    }

    #[test]
    fn a_window_that_no_sender_needs_is_refused() {
        // Magic number, no flags, a window of 2^31 bytes, one last raw block without content.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
        let refused = Compression::Zstd.unpack(&frame, 10_000).unwrap_err();
        assert_eq!(refused.code(), Code::Invalid);
    }
}
