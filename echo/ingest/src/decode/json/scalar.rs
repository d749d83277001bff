//! Single values: numbers as numbers or as texts, bytes as texts.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error, Unexpected, Visitor};

use super::output::Output;
use super::schema::Scalar;

/// The largest number up to which doubles are exact.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Base64 with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The same in the alphabet of addresses.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads a value of that kind and writes it under that number.
pub(super) struct ScalarOf<'o> {
    number: u32,
    scalar: Scalar,
    output: &'o mut Output,
}

impl<'o> ScalarOf<'o> {
    pub(super) const fn new(number: u32, scalar: Scalar, output: &'o mut Output) -> Self {
        Self {
            number,
            scalar,
            output,
        }
    }

    fn whole<E: Error>(self, value: i128) -> Result<(), E> {
        let Self {
            number,
            scalar,
            output,
        } = self;
        match scalar {
            Scalar::Int32 => {
                let value: i32 = fitting(value)?;
                output.varint(number, i64::from(value).cast_unsigned())
            }
            Scalar::Sint32 => {
                let value: i32 = fitting(value)?;
                let zigzag = (value << 1) ^ (value >> 31);
                output.varint(number, u64::from(zigzag.cast_unsigned()))
            }
            Scalar::Int64 => output.varint(number, fitting::<i64, E>(value)?.cast_unsigned()),
            Scalar::Uint32 => output.varint(number, u64::from(fitting::<u32, E>(value)?)),
            Scalar::Uint64 => output.varint(number, fitting(value)?),
            Scalar::Fixed32 => output.fixed32(number, fitting(value)?),
            Scalar::Fixed64 => output.fixed64(number, fitting(value)?),
            Scalar::Sfixed64 => output.fixed64(number, fitting::<i64, E>(value)?.cast_unsigned()),
            Scalar::Double => {
                #[expect(clippy::cast_precision_loss, reason = "a double is asked for")]
                let value = value as f64;
                output.fixed64(number, value.to_bits())
            }
            Scalar::Bool | Scalar::Text | Scalar::Hex | Scalar::Base64 => {
                let expected = scalar.expected();
                Err(E::custom(format_args!("a number, expected {expected}")))
            }
        }
    }
}

fn fitting<T: TryFrom<i128>, E: Error>(value: i128) -> Result<T, E> {
    T::try_from(value)
        .map_err(|_range| E::custom(format_args!("the number {value} is out of range")))
}

impl Visitor<'_> for ScalarOf<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.scalar.expected())
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<(), E> {
        match self.scalar {
            Scalar::Bool => self.output.varint(self.number, u64::from(v)),
            _ => Err(E::invalid_type(Unexpected::Bool(v), &self)),
        }
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        self.whole(i128::from(v))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        self.whole(i128::from(v))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        if self.scalar == Scalar::Double {
            return self.output.fixed64(self.number, v.to_bits());
        }
        if v.fract() != 0.0 || v.abs() > MAX_EXACT {
            return Err(E::invalid_value(Unexpected::Float(v), &self));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number, checked above"
        )]
        let value = v as i128;
        self.whole(value)
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<(), E> {
        let number = self.number;
        match self.scalar {
            Scalar::Text => self.output.delimited(number, v.as_bytes()),
            Scalar::Hex => {
                let bytes = hex(v).ok_or_else(|| E::custom("not hexadecimal digits"))?;
                self.output.delimited(number, &bytes)
            }
            Scalar::Base64 => {
                let bytes = BASE64.decode(v).or_else(|_other| BASE64_URL.decode(v));
                let bytes = bytes.map_err(|_neither| E::custom("not base64"))?;
                self.output.delimited(number, &bytes)
            }
            Scalar::Bool => Err(E::invalid_type(Unexpected::Str(v), &self)),
            Scalar::Double => {
                let value = double(v).ok_or_else(|| E::custom("not a number"))?;
                self.output.fixed64(number, value.to_bits())
            }
            _ => {
                let value = v.parse();
                self.whole(value.map_err(|_no_number| E::custom("not a whole number"))?)
            }
        }
    }
}

fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // Rust knows other names for them, which JSON does not.
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| {
        let byte = (digit(*high)? << 4) | digit(*low)?;
        u8::try_from(byte).ok()
    });
    rest.is_empty().then(|| bytes.collect()).flatten()
}
