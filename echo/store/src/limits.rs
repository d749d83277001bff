//! Retention limits: age, size, and the space to be left free on the volume.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bytes in one mebibyte.
const MIB: u64 = 1024 * 1024;

/// Share of the size limit above which retention begins to delete.
const DELETE_ABOVE: f64 = 0.8;

/// Retention limits. Detector output is small and not deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Maximum age of events by received time; `None` keeps them.
    pub age: Option<Duration>,
    /// Maximum age of closed cost hours by their beginning; `None` keeps them.
    pub cost_age: Option<Duration>,
    /// Maximum size of the database; `None` allows it to fill the volume up to the floor.
    pub size: Option<Amount>,
    /// Free space on the volume below which no events are accepted; [`Self::FLOOR`] if `None`.
    pub floor: Option<Amount>,
    /// Size of the ballast file, which is deleted when the floor is reached, bytes; 0 for none.
    pub ballast_bytes: u64,
    /// Maximum numbers of series, origins and clusters.
    pub entries: EntryLimits,
}

/// Numbers of series, origins and clusters. All entries are kept in memory: about 200 bytes per
/// series, 500 per origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLimits {
    /// Series: a metric with its unit, and for collectives the communicator, operation and role.
    pub series: usize,
    /// Origins: attributes of a rank or of a node.
    pub origins: usize,
    /// Clusters of the origins.
    pub clusters: usize,
}

impl EntryLimits {
    /// Zero of each.
    pub const NONE: Self = Self {
        series: 0,
        origins: 0,
        clusters: 0,
    };

    /// Each number divided by `n`.
    #[must_use]
    pub const fn part(self, n: usize) -> Self {
        Self {
            series: self.series / n,
            origins: self.origins / n,
            clusters: self.clusters / n,
        }
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            series: self.series.saturating_add(more.series),
            origins: self.origins.saturating_add(more.origins),
            clusters: self.clusters.saturating_add(more.clusters),
        }
    }

    /// The difference, at least 0 for each number.
    #[must_use]
    pub const fn minus(self, less: Self) -> Self {
        Self {
            series: self.series.saturating_sub(less.series),
            origins: self.origins.saturating_sub(less.origins),
            clusters: self.clusters.saturating_sub(less.clusters),
        }
    }

    /// Returns true if no number exceeds that of `limits`.
    pub const fn fits(self, limits: Self) -> bool {
        self.series <= limits.series
            && self.origins <= limits.origins
            && self.clusters <= limits.clusters
    }
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self {
            series: 1_000_000,
            origins: 1_000_000,
            clusters: 10_000,
        }
    }
}

/// Amount of storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Share of a total, 0 to 1.
    Share(f64),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            age: Some(Duration::from_hours(30 * 24)),
            cost_age: Some(Duration::from_hours(400 * 24)),
            size: Some(Amount::Share(1.0)),
            floor: None,
            ballast_bytes: 64 * MIB,
            entries: EntryLimits::default(),
        }
    }
}

impl Limits {
    /// Default floor: share of the volume, minimum bytes, maximum bytes.
    pub const FLOOR: (f64, u64, u64) = (0.02, 256 * MIB, 4 * 1024 * MIB);

    /// The same limits of entries, without retention: nothing is deleted, and no space is kept free.
    #[must_use]
    pub const fn without_retention(self) -> Self {
        Self {
            age: None,
            cost_age: None,
            size: None,
            floor: Some(Amount::Bytes(0)),
            ballast_bytes: 0,
            entries: self.entries,
        }
    }

    /// Bytes that must stay free on a volume of `total` bytes.
    pub fn floor_bytes(&self, total: u64) -> u64 {
        let usual = || {
            let (share, least, most) = Self::FLOOR;
            Amount::Share(share).bytes_of(total).clamp(least, most)
        };
        self.floor.map_or_else(usual, |floor| floor.bytes_of(total))
    }

    /// Used bytes above which retention deletes. `reach` is the size of the database plus the space
    /// it could still get on a volume of `total` bytes; `None` without a size limit.
    pub fn delete_above_bytes(&self, total: u64, reach: u64) -> Option<u64> {
        let limit = self.size?.bytes_of(total).min(reach);
        Some(Amount::Share(DELETE_ABOVE).bytes_of(limit))
    }
}

impl Amount {
    /// The amount in bytes, as a share of `total` if it is one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size, and its last digits do not matter"
    )]
    pub fn bytes_of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (total as f64 * share) as u64,
        }
    }
}

/// Parses `50GB`, `512MiB`, `1000000` and `80%`.
impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size such as 50GB, 512MiB or 80%");
        let text = text.trim();
        let digits = text
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
        if unit.trim() == "%" {
            let percent: f64 = number.parse().map_err(|_not_a_number| wrong())?;
            let is_share = percent > 0.0 && percent <= 100.0;
            return is_share
                .then_some(Self::Share(percent / 100.0))
                .ok_or_else(|| format!("{text:?} is not above 0 % and at most 100 %"));
        }
        let factor = match unit.trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" => 1024,
            "MiB" => MIB,
            "GiB" => 1024 * MIB,
            "TiB" => 1024 * 1024 * MIB,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_not_a_number| wrong())?;
        number
            .checked_mul(factor)
            .map(Self::Bytes)
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) if *bytes >= MIB => write!(f, "{} MiB", bytes / MIB),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Share(share) => write!(f, "{:.0} %", share * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, Limits, MIB};

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, amount) in [
            ("50GB", Amount::Bytes(50_000_000_000)),
            ("512 MiB", Amount::Bytes(512 * MIB)),
            ("1000000", Amount::Bytes(1_000_000)),
            ("80%", Amount::Share(0.8)),
        ] {
            assert_eq!(text.parse(), Ok(amount), "{text}");
        }
        for wrong in ["", "GB", "-1", "120%", "0%", "5 parsecs", "99999999TB"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_floor_is_a_share_with_a_minimum_and_maximum() {
        let usual = Limits::default();
        assert_eq!(usual.floor_bytes(1_000 * MIB), 256 * MIB);
        assert_eq!(usual.floor_bytes(100_000 * MIB), 2_000 * MIB);
        let explicit = Limits {
            floor: Some(Amount::Bytes(7)),
            ..usual
        };
        assert_eq!(explicit.floor_bytes(100_000 * MIB), 7);
    }

    #[test]
    fn retention_begins_at_four_fifths_of_the_available_space() {
        let half = Limits {
            size: Some(Amount::Share(0.5)),
            ..Limits::default()
        };
        assert_eq!(half.delete_above_bytes(1_000, 2_000), Some(400));
        assert_eq!(
            half.delete_above_bytes(1_000, 100),
            Some(80),
            "other programs use the rest"
        );
        let without = Limits { size: None, ..half };
        assert_eq!(without.delete_above_bytes(1_000, 100), None);
    }
}
