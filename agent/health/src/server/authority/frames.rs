//! Frames of HTTP/2 from a client (RFC 9113): which bytes are blocks of compressed fields.

use crate::server::authority::fields::Fields;

/// Length of the preface, with which a connection begins.
const PREFACE: u32 = 24;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// Flag: the payload begins with the length of the padding at its end.
const PADDED: u8 = 0x8;
/// Flag: five bytes of priority come before the block.
const PRIORITY: u8 = 0x20;

/// Frames of one connection, in the order of their bytes.
#[derive(Debug)]
pub(super) struct Frames {
    part: Part,
    fields: Fields,
}

/// What the next byte belongs to, with the bytes that are left of it.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Not a block: the preface, padding, payloads of other frames.
    Other {
        left: u32,
    },
    Header {
        bytes: [u8; 9],
        n_read: u8,
    },
    /// Length of the padding, before the rest of the payload.
    PaddingLength {
        n_priority: u32,
        left: u32,
    },
    /// Priority and the block, before the padding.
    Block {
        n_priority: u32,
        left: u32,
        padding: u32,
    },
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            part: Part::Other { left: PREFACE },
            fields: Fields::default(),
        }
    }
}

impl Frames {
    /// Corrects the authorities in the next bytes of the connection.
    pub(super) fn correct<'a>(&mut self, bytes: impl Iterator<Item = &'a mut u8>) {
        for byte in bytes {
            self.part = self.after(byte).or_next();
        }
    }

    /// Corrects a byte and returns what follows.
    fn after(&mut self, byte: &mut u8) -> Part {
        match self.part {
            Part::Other { left } => Part::Other {
                left: left.saturating_sub(1),
            },
            Part::Header { mut bytes, n_read } => {
                bytes.rotate_left(1);
                if let Some(last) = bytes.last_mut() {
                    *last = *byte;
                }
                let n_read = n_read + 1;
                if n_read < 9 {
                    return Part::Header { bytes, n_read };
                }
                self.payload(bytes)
            }
            Part::PaddingLength { n_priority, left } => {
                let padding = u32::from(*byte);
                let left = left.saturating_sub(1);
                Part::block(n_priority, left, padding)
            }
            Part::Block {
                n_priority,
                left,
                padding,
            } => {
                if n_priority == 0 {
                    self.fields.correct(byte);
                }
                Part::Block {
                    n_priority: n_priority.saturating_sub(1),
                    left: left.saturating_sub(1),
                    padding,
                }
            }
        }
    }

    /// Returns the beginning of the payload of a frame with this header.
    fn payload(&mut self, header: [u8; 9]) -> Part {
        let [high, middle, low, kind, flags, _stream @ ..] = header;
        let left = u32::from_be_bytes([0, high, middle, low]);
        match kind {
            HEADERS => {
                self.fields = Fields::default();
                let n_priority = if flags & PRIORITY == 0 { 0 } else { 5 };
                if flags & PADDED == 0 || left == 0 {
                    return Part::block(n_priority, left, 0);
                }
                Part::PaddingLength { n_priority, left }
            }
            CONTINUATION => Part::block(0, left, 0),
            _ => Part::Other { left },
        }
    }
}

impl Part {
    /// Returns a block of `left` bytes, with priority and padding. It has no fields if these are
    /// longer: the server refuses such a frame.
    fn block(n_priority: u32, left: u32, padding: u32) -> Self {
        match left.checked_sub(padding) {
            Some(left) if left > n_priority => Self::Block {
                n_priority,
                left,
                padding,
            },
            _ => Self::Other { left },
        }
    }

    /// Returns what follows when nothing is left of this.
    fn or_next(self) -> Self {
        match self {
            Self::Block {
                left: 0, padding, ..
            } => Self::Other { left: padding }.or_next(),
            Self::Other { left: 0 } => Self::Header {
                bytes: [0; 9],
                n_read: 0,
            },
            part => part,
        }
    }
}
