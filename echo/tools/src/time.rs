//! Time arguments: RFC 3339, dates, Unix milliseconds, `now-15m`, and windows such as `15m` or
//! `all`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{ToolContext, ToolError};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

const NANOS_PER_MILLISECOND: i64 = 1_000_000;

/// Accepted range of Unix milliseconds: the years 2020 to 2099.
const FIRST_EPOCH_MS: i64 = 1_577_836_800_000;
const LAST_EPOCH_MS: i64 = 4_102_444_799_999;

/// Pattern of an instant as text: `now`, an offset before it, a date, or RFC 3339.
const TIME: &str = "^(now(-([1-9][0-9]{0,5}[smh]|[1-9][0-9]{0,4}d))?\
    |20[2-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
    ([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\
    ([.][0-9]{1,9})?([Zz]|[+-](0[0-9]|1[0-4]):[0-5][0-9]))?)$";

/// Pattern of a window.
const WINDOW: &str = "^(all|[1-9][0-9]{0,5}[smh]|[1-9][0-9]{0,4}d)$";

/// Default length of a window.
const DEFAULT_NANOS: i64 = 3_600 * NANOS_PER_SECOND;

/// Instant argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeArg {
    /// Absolute instant.
    At(Nanos),
    /// Nanoseconds before now.
    Ago(i64),
}

/// Window argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowArg {
    /// From the first to the last stored event.
    All,
    /// Nanoseconds up to now.
    Last(i64),
}

/// Time window of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AnswerWindow {
    /// Start of the window, inclusive, RFC 3339.
    pub from: String,
    /// End of the window, exclusive, RFC 3339.
    pub to: String,
    /// Length in seconds.
    pub seconds: f64,
}

impl From<Window> for AnswerWindow {
    fn from(window: Window) -> Self {
        Self {
            from: window.from().to_string(),
            to: window.to().to_string(),
            seconds: window.millis() / 1e3,
        }
    }
}

/// Time range arguments as the caller gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// Start, inclusive.
    pub from: Option<TimeArg>,
    /// End, exclusive.
    pub to: Option<TimeArg>,
    /// Window, in place of start and end.
    pub window: Option<WindowArg>,
}

impl TimeRange {
    /// Resolves the arguments to a window; the default is the last hour. `window=all` spans all
    /// stored events; without events it falls back to the last hour.
    pub async fn resolve(
        self,
        context: &ToolContext,
        cluster: Option<&ClusterId>,
    ) -> Result<Window, ToolError> {
        let now = context.clock.now();
        let last = |nanos: i64| Window::new(now.offset(-nanos), now);
        let window = match self.window {
            Some(_) if self.from.is_some() || self.to.is_some() => {
                return Err(ToolError::invalid(
                    "window",
                    "cannot be combined with from or to",
                ));
            }
            Some(WindowArg::Last(nanos)) => last(nanos),
            Some(WindowArg::All) => match context.store.extent(cluster).await? {
                Some((first, last)) => Window::new(first, last.offset(1)),
                None => last(DEFAULT_NANOS),
            },
            None => {
                let to = self.to.map_or(now, |to| to.resolve(now));
                let from = self
                    .from
                    .map_or_else(|| to.offset(-DEFAULT_NANOS), |from| from.resolve(now));
                Window::new(from, to)
            }
        };
        window.ok_or_else(|| ToolError::invalid("from", "must be before the end of the window"))
    }
}

impl TimeArg {
    /// Resolves the argument relative to `now`.
    pub const fn resolve(self, now: Nanos) -> Nanos {
        match self {
            Self::At(instant) => instant,
            Self::Ago(nanos) => now.offset(-nanos),
        }
    }

    fn from_epoch_ms(millis: i64) -> Result<Self, String> {
        let nanos = millis.checked_mul(NANOS_PER_MILLISECOND);
        let instant = nanos
            .and_then(|nanos| u64::try_from(nanos).ok())
            .and_then(Nanos::plausible);
        let as_seconds = millis
            .checked_mul(1_000)
            .filter(|millis| (FIRST_EPOCH_MS..=LAST_EPOCH_MS).contains(millis));
        instant.map(Self::At).ok_or_else(|| match as_seconds {
            Some(in_millis) => {
                format!("{millis} is in seconds; give Unix milliseconds: {in_millis}")
            }
            None => format!("{millis} is not between 2020 and 2100 as Unix milliseconds"),
        })
    }

    /// Returns the beginning of a date, UTC.
    fn from_date(text: &str) -> Option<Self> {
        const LENGTH: usize = "2026-11-20".len();
        // The parser also accepts a date that is followed by a time.
        let date: Date = (text.len() == LENGTH).then(|| text.parse().ok())??;
        let begin = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
        from_timestamp(begin)
    }
}

fn from_timestamp(instant: jiff::Timestamp) -> Option<TimeArg> {
    let nanos = u64::try_from(instant.as_nanosecond()).ok()?;
    Nanos::plausible(nanos).map(TimeArg::At)
}

/// Describes why a text is not an instant, and how to write it.
fn invalid_instant(text: &str) -> String {
    if length_nanos(text).is_ok() {
        return format!(
            "{text:?} is a duration; for an instant write now-{}",
            text.trim()
        );
    }
    if text.parse::<jiff::civil::DateTime>().is_ok() && text.parse::<jiff::Timestamp>().is_err() {
        return format!("{text:?} has no time zone; append Z for UTC");
    }
    format!(
        "{text:?} is not a time between 2020 and 2100 such as 2026-11-20T08:00:00Z, 2026-11-20 (UTC) or now-15m, nor Unix \
         milliseconds"
    )
}

impl FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("now") {
            let length = rest.trim_start();
            return match length.strip_prefix('-') {
                _ if length.is_empty() => Ok(Self::Ago(0)),
                Some(length) => Ok(Self::Ago(length_nanos(length)?)),
                None => Err(format!("{text:?} does not have the form now-15m")),
            };
        }
        if let Ok(millis) = text.parse() {
            return Self::from_epoch_ms(millis);
        }
        let instant = text.parse::<jiff::Timestamp>().ok();
        let instant = instant.and_then(from_timestamp);
        instant
            .or_else(|| Self::from_date(text))
            .ok_or_else(|| invalid_instant(text))
    }
}

impl FromStr for WindowArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "all" => Ok(Self::All),
            number if is_number(number) => Err(format!(
                "{number:?} has no unit; give one, such as {number}m"
            )),
            length => length_nanos(length)
                .map(Self::Last)
                .map_err(|why| format!("{why}, or all")),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

/// Parses a positive duration such as `90s`, `15m`, `24h` or `7d`.
fn length_nanos(text: &str) -> Result<i64, String> {
    let length = || {
        let text = text.trim();
        let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at_checked(unit_at)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return None,
        };
        let nanos = number
            .parse::<i64>()
            .ok()?
            .checked_mul(seconds * NANOS_PER_SECOND)?;
        (nanos > 0).then_some(nanos)
    };
    length().ok_or_else(|| format!("{text:?} is not a duration such as 90s, 15m, 24h or 7d"))
}

impl<'de> Deserialize<'de> for TimeArg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;

        impl Visitor<'_> for TimeVisitor {
            type Value = TimeArg;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an RFC 3339 time, a date, Unix milliseconds, or now-15m")
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<TimeArg, E> {
                v.parse().map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, v: i64) -> Result<TimeArg, E> {
                TimeArg::from_epoch_ms(v).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, v: u64) -> Result<TimeArg, E> {
                self.visit_i64(i64::try_from(v).unwrap_or(i64::MAX))
            }
        }

        deserializer.deserialize_any(TimeVisitor)
    }
}

impl<'de> Deserialize<'de> for WindowArg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for TimeArg {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Time")
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": TIME },
                { "type": "integer", "minimum": FIRST_EPOCH_MS, "maximum": LAST_EPOCH_MS },
            ],
        })
    }
}

impl JsonSchema for WindowArg {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("WindowLength")
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": WINDOW })
    }
}

#[cfg(test)]
mod tests;
