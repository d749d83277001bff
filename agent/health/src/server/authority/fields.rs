//! Compressed fields of a request (HPACK, RFC 7541): where the value of `:authority` is.
//!
//! Only literal fields matter, whose name is that of the static table or spelled out: later requests
//! refer to the whole field, which the server has kept as corrected. Names that refer to an earlier
//! field and texts in Huffman's code, which gRPC for Python does not use, are not looked into.

/// Name of the field.
const NAME: &[u8] = b":authority";
/// Index of its name in the static table.
const NAME_INDEX: u32 = 1;
/// Flag of texts in Huffman's code.
const HUFFMAN: u8 = 0x80;
/// Bits of a number in its last byte. Longer numbers are refused by servers.
const MAX_SHIFT: u32 = 21;
/// What replaces a byte that cannot be in an authority.
const REPLACEMENT: u8 = b'-';

/// Fields of one block: what its next byte is.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Fields {
    /// First byte of a field.
    #[default]
    Start,
    /// Another byte of a number.
    Number { of: Number, value: u32, shift: u32 },
    /// First byte of a text.
    Length { of: Text },
    /// Byte of a text, and how many are left.
    Text { of: Text, left: u32 },
    /// Not a field; the server refuses the block.
    Unreadable,
}

/// Meaning of a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// A whole field, or the size of the table.
    Field,
    Name,
    Length {
        of: Text,
        is_huffman: bool,
    },
}

/// Meaning of a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Text {
    /// A name, which is `:authority` so far or is not.
    Name { is_authority: bool },
    /// An authority, which is a path from here on or is not.
    Authority { is_path: bool },
    /// Value of another field.
    Other,
}

impl Fields {
    /// Corrects the next byte of the block.
    pub(super) fn correct(&mut self, byte: &mut u8) {
        *self = match *self {
            Self::Start => Self::start(*byte),
            Self::Number { of, value, shift } => Self::number(of, value, shift, *byte),
            Self::Length { of } => {
                let is_huffman = *byte & HUFFMAN != 0;
                Self::prefix(Number::Length { of, is_huffman }, *byte, 7)
            }
            Self::Text { of, left } => Self::text(of.correct(byte, left), left - 1),
            Self::Unreadable => Self::Unreadable,
        };
    }

    fn start(byte: u8) -> Self {
        match byte {
            0x80.. => Self::prefix(Number::Field, byte, 7),
            0x40.. => Self::prefix(Number::Name, byte, 6),
            0x20.. => Self::prefix(Number::Field, byte, 5),
            _ => Self::prefix(Number::Name, byte, 4),
        }
    }

    /// Reads a number that begins in the low bits of a byte.
    fn prefix(of: Number, byte: u8, n_bits: u32) -> Self {
        let max = (1 << n_bits) - 1;
        let value = u32::from(byte) & max;
        if value < max {
            return Self::known(of, value);
        }
        Self::Number {
            of,
            value,
            shift: 0,
        }
    }

    fn number(of: Number, value: u32, shift: u32, byte: u8) -> Self {
        let value = value + (u32::from(byte & 0x7f) << shift);
        match byte {
            ..0x80 => Self::known(of, value),
            _ if shift < MAX_SHIFT => {
                let shift = shift + 7;
                Self::Number { of, value, shift }
            }
            _ => Self::Unreadable,
        }
    }

    /// Returns what follows a number.
    fn known(of: Number, value: u32) -> Self {
        match (of, value) {
            (Number::Field, _) => Self::Start,
            (Number::Name, 0) => {
                let of = Text::Name { is_authority: true };
                Self::Length { of }
            }
            (Number::Name, index) => Self::value_of(index == NAME_INDEX),
            (Number::Length { of, is_huffman }, left) => {
                Self::text(of.of_length(left, is_huffman), left)
            }
        }
    }

    fn value_of(is_authority: bool) -> Self {
        let of = if is_authority {
            Text::Authority { is_path: false }
        } else {
            Text::Other
        };
        Self::Length { of }
    }

    /// Returns the rest of a text, or what follows it.
    fn text(of: Text, left: u32) -> Self {
        match (of, left) {
            (Text::Name { is_authority }, 0) => Self::value_of(is_authority),
            (_, 0) => Self::Start,
            _ => Self::Text { of, left },
        }
    }
}

impl Text {
    /// Returns what is known of the text by its length and code.
    fn of_length(self, length: u32, is_huffman: bool) -> Self {
        let is_name = usize::try_from(length) == Ok(NAME.len()) && !is_huffman;
        match self {
            Self::Name { .. } => Self::Name {
                is_authority: is_name,
            },
            Self::Authority { .. } if is_huffman => Self::Other,
            text => text,
        }
    }

    /// Corrects the next byte, with which `left` are left.
    fn correct(self, byte: &mut u8, left: u32) -> Self {
        match self {
            Self::Name { is_authority } => {
                let is_authority = is_authority && name_byte(left) == Some(*byte);
                Self::Name { is_authority }
            }
            Self::Authority { is_path } => {
                let is_path = is_path || !can_be_in_authority(*byte);
                if is_path && !is_unreserved(*byte) {
                    *byte = REPLACEMENT;
                }
                Self::Authority { is_path }
            }
            Self::Other => Self::Other,
        }
    }
}

/// Returns the byte of the name with which `left` are left.
fn name_byte(left: u32) -> Option<u8> {
    let left = usize::try_from(left).ok()?;
    NAME.get(NAME.len().checked_sub(left)?).copied()
}

/// Returns whether an authority may contain this byte (RFC 3986, without percent-encoding, which
/// the server does not accept).
fn can_be_in_authority(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@[]".contains(&byte)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}
