//! One batch as a file: a header of fixed length, then the request as it is sent.
//!
//! ```text
//! magic 8 | instance 8 | number 8 | points 8 | length of the request 8 | XXH3 of all other bytes 8 | request
//! ```
//!
//! Integers are little-endian. Each layout has its own magic, and files with an unknown one are
//! rejected.

use std::io::{self, Read};

use bytes::{Buf, BufMut, Bytes};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use crate::encoded::EncodedBatch;

const MAGIC: u64 = u64::from_le_bytes(*b"fleetsp1");

/// Length of a header.
pub(super) const HEADER_BYTES: u64 = 48;

/// Damage of a file.
#[derive(Debug, Error)]
pub(super) enum Damage {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file has another magic.
    #[error("not a batch of this agent version")]
    Foreign,
    /// The file is too short or too long.
    #[error("{found} bytes instead of {expected}")]
    Length { expected: u64, found: u64 },
    /// The contents have changed.
    #[error("checksum mismatch")]
    Checksum,
}

/// Header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    instance: u64,
    number: u64,
    pub(super) points: u64,
    request_bytes: u64,
    checksum: u64,
}

impl Header {
    /// Reads only the header.
    pub(super) fn read(file: impl Read) -> Result<Self, Damage> {
        let mut bytes = Vec::new();
        file.take(HEADER_BYTES).read_to_end(&mut bytes)?;
        Self::parse(&mut bytes.as_slice())
    }

    fn parse(bytes: &mut impl Buf) -> Result<Self, Damage> {
        let found = bytes.remaining() as u64;
        if bytes.try_get_u64_le() != Ok(MAGIC) {
            return Err(Damage::Foreign);
        }
        let mut next = || {
            let expected = HEADER_BYTES;
            let number = bytes.try_get_u64_le().ok();
            number.ok_or(Damage::Length { expected, found })
        };
        Ok(Self {
            instance: next()?,
            number: next()?,
            points: next()?,
            request_bytes: next()?,
            checksum: next()?,
        })
    }

    fn compute_checksum(&self, request: &[u8]) -> u64 {
        let mut sum = Xxh3::new();
        for number in [self.instance, self.number, self.points, self.request_bytes] {
            sum.update(&number.to_le_bytes());
        }
        sum.update(request);
        sum.digest()
    }
}

/// Encodes the header for `batch`.
pub(super) fn encode_header(batch: &EncodedBatch) -> Vec<u8> {
    let header = Header {
        instance: batch.instance,
        number: batch.number,
        points: batch.points,
        request_bytes: batch.request.len() as u64,
        checksum: 0,
    };
    let mut bytes = Vec::new();
    for number in [
        MAGIC,
        header.instance,
        header.number,
        header.points,
        header.request_bytes,
        header.compute_checksum(&batch.request),
    ] {
        bytes.put_u64_le(number);
    }
    bytes
}

/// Parses the contents of a file.
pub(super) fn parse(file: &Bytes) -> Result<EncodedBatch, Damage> {
    let mut request = file.clone();
    let header = Header::parse(&mut request)?;
    if request.len() as u64 != header.request_bytes {
        return Err(Damage::Length {
            expected: header.request_bytes.saturating_add(HEADER_BYTES),
            found: file.len() as u64,
        });
    }
    if header.compute_checksum(&request) != header.checksum {
        return Err(Damage::Checksum);
    }
    Ok(EncodedBatch {
        instance: header.instance,
        number: header.number,
        points: header.points,
        request,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(batch: &EncodedBatch) -> Vec<u8> {
        let mut bytes = encode_header(batch);
        bytes.extend_from_slice(&batch.request);
        bytes
    }

    fn batch() -> EncodedBatch {
        EncodedBatch {
            instance: 7,
            number: 8,
            points: 9,
            request: Bytes::from_static(b"request"),
        }
    }

    #[test]
    fn a_header_has_the_declared_length() {
        assert_eq!(encode_header(&batch()).len() as u64, HEADER_BYTES);
    }

    proptest! {
        #[test]
        fn a_batch_survives_a_round_trip(ids: [u64; 3], request: Vec<u8>) {
            let [instance, number, points] = ids;
            let batch = EncodedBatch { instance, number, points, request: request.into() };
            let bytes = file(&batch);
            prop_assert_eq!(Header::read(bytes.as_slice()).unwrap().points, points);
            prop_assert_eq!(parse(&bytes.into()).unwrap(), batch);
        }

        #[test]
        fn arbitrary_and_corrupted_bytes_are_rejected(bytes: Vec<u8>, at in 0_usize..55, to: u8) {
            prop_assert!(parse(&bytes.into()).is_err());
            let mut changed = file(&batch());
            prop_assume!(changed[at] != to);
            changed[at] = to;
            prop_assert!(parse(&changed.into()).is_err());
        }

        #[test]
        fn truncated_and_extended_files_are_rejected(kept in 0_usize..55, more in 1_usize..9) {
            let whole = file(&batch());
            prop_assert!(parse(&whole[..kept].to_vec().into()).is_err());
            let longer = [whole, vec![0; more]].concat();
            prop_assert!(parse(&longer.into()).is_err());
        }
    }
}
