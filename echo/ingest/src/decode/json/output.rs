//! The bytes of a protobuf message, written field by field, up to a limit.

use serde::de::Error;

/// What has been written.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    limit: usize,
}

/// Types of fields on the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

impl Output {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Whether more was written than fits.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes.len() > self.limit
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn varint<E: Error>(&mut self, number: u32, value: u64) -> Result<(), E> {
        self.key(number, VARINT);
        self.push(value);
        self.check()
    }

    pub(super) fn fixed64<E: Error>(&mut self, number: u32, bits: u64) -> Result<(), E> {
        self.key(number, FIXED64);
        self.bytes.extend_from_slice(&bits.to_le_bytes());
        self.check()
    }

    pub(super) fn fixed32<E: Error>(&mut self, number: u32, bits: u32) -> Result<(), E> {
        self.key(number, FIXED32);
        self.bytes.extend_from_slice(&bits.to_le_bytes());
        self.check()
    }

    pub(super) fn delimited<E: Error>(&mut self, number: u32, content: &[u8]) -> Result<(), E> {
        self.key(number, LENGTH);
        self.push(length(content));
        self.bytes.extend_from_slice(content);
        self.check()
    }

    /// Begins a message inside; where its content starts is what [`Self::end`] asks for.
    pub(super) fn begin<E: Error>(&mut self, number: u32) -> Result<usize, E> {
        self.key(number, LENGTH);
        // One byte for the length, which is enough for most messages.
        self.bytes.push(0);
        self.check()?;
        Ok(self.bytes.len())
    }

    /// Ends the message whose content starts there.
    pub(super) fn end<E: Error>(&mut self, start: usize) -> Result<(), E> {
        let content = length(self.bytes.get(start..).unwrap_or_default());
        let mut varint = [0; 10];
        prost::encoding::encode_varint(content, &mut varint.as_mut_slice());
        let n_bytes = prost::encoding::encoded_len_varint(content);
        let bytes = varint.into_iter().take(n_bytes);
        drop(self.bytes.splice(start - 1..start, bytes));
        self.check()
    }

    fn key(&mut self, number: u32, kind: u32) {
        self.push(u64::from((number << 3) | kind));
    }

    fn push(&mut self, value: u64) {
        prost::encoding::encode_varint(value, &mut self.bytes);
    }

    fn check<E: Error>(&self) -> Result<(), E> {
        if self.is_full() {
            return Err(E::custom("the request is too large"));
        }
        Ok(())
    }
}

fn length(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}
