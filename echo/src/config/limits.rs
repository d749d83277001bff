//! Flags for retention, disk space and cardinality limits.

use std::time::Duration;

use clap::Args;
use echo_store::limits::{Amount, EntryLimits, Limits};
use echo_tools::time::WindowArg;

/// Retention, disk space and cardinality limits.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
#[command(next_help_heading = "Retention and limits")]
pub struct LimitArgs {
    /// Delete events received longer ago, hour by hour: `30d`, `12h`, or `off` to keep them
    /// forever. Incidents and costs are kept
    #[arg(long, value_name = "LENGTH", default_value = "30d", value_parser = parse_length, env = "FLEET_ECHO_RETENTION_AGE")]
    pub retention_age: Bound<Duration>,

    /// Delete closed cost hours that began longer ago: `400d`, or `off` to keep them forever
    #[arg(long, value_name = "LENGTH", default_value = "400d", value_parser = parse_length, env = "FLEET_ECHO_RETENTION_COST")]
    pub retention_cost: Bound<Duration>,

    /// Time after its end that a cost hour waits for late data before it is closed
    #[arg(long, value_name = "LENGTH", default_value = "15m", value_parser = parse_grace, env = "FLEET_ECHO_COST_GRACE")]
    pub cost_grace: Duration,

    /// Maximum size of the database: `50GB`, a share of its volume such as `80%`, or `off`. The
    /// oldest hours are deleted from four fifths of it on
    #[arg(long, value_name = "SIZE", default_value = "100%", value_parser = parse_amount, env = "FLEET_ECHO_RETENTION_SIZE")]
    pub retention_size: Bound<Amount>,

    /// Minimum free space on the volume; below it, events are rejected as retryable until space is
    /// free
    /// [default: 2 % of the volume, but at least 256MiB and at most 4GiB]
    #[arg(long, value_name = "SIZE", env = "FLEET_ECHO_MIN_FREE")]
    pub min_free: Option<Amount>,

    /// Size of a reserve file next to the database that is deleted when the volume is full, so that
    /// deletes have space to run; `off` for none
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes, env = "FLEET_ECHO_BALLAST")]
    pub ballast: Bound<u64>,

    /// Maximum number of series: metrics with their unit, communicator, operation and role. Points
    /// of further series are rejected (`too_many_series`) until retention has deleted the last
    /// event of a series
    #[arg(long, value_name = "COUNT", default_value_t = EntryLimits::default().series, env = "FLEET_ECHO_MAX_SERIES")]
    pub max_series: usize,

    /// Maximum number of senders: ranks and nodes, each with its attributes. Points of further
    /// senders are rejected (`too_many_senders`)
    #[arg(long, value_name = "COUNT", default_value_t = EntryLimits::default().origins, env = "FLEET_ECHO_MAX_SENDERS")]
    pub max_senders: usize,

    /// Maximum number of clusters. Points of further clusters are rejected (`too_many_clusters`)
    #[arg(long, value_name = "COUNT", default_value_t = EntryLimits::default().clusters, env = "FLEET_ECHO_MAX_CLUSTERS")]
    pub max_clusters: usize,
}

/// A limit that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<T> {
    /// No limit.
    Off,
    /// This limit.
    At(T),
}

impl<T> Bound<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::At(bound) => Some(bound),
        }
    }
}

impl<T> From<Option<T>> for Bound<T> {
    fn from(bound: Option<T>) -> Self {
        bound.map_or(Self::Off, Self::At)
    }
}

impl Default for LimitArgs {
    fn default() -> Self {
        let usual = Limits::default();
        Self {
            retention_age: usual.age.into(),
            retention_cost: usual.cost_age.into(),
            cost_grace: Duration::from_mins(15),
            retention_size: usual.size.into(),
            min_free: usual.floor,
            ballast: Bound::At(usual.ballast_bytes),
            max_series: usual.entries.series,
            max_senders: usual.entries.origins,
            max_clusters: usual.entries.clusters,
        }
    }
}

impl LimitArgs {
    /// Returns the limits of the store.
    pub fn limits(self) -> Limits {
        Limits {
            age: self.retention_age.value(),
            cost_age: self.retention_cost.value(),
            size: self.retention_size.value(),
            floor: self.min_free,
            ballast_bytes: self.ballast.value().unwrap_or(0),
            entries: EntryLimits {
                series: self.max_series,
                origins: self.max_senders,
                clusters: self.max_clusters,
            },
        }
    }
}

pub(super) fn parse_length(text: &str) -> Result<Bound<Duration>, String> {
    if text.trim() == "off" {
        return Ok(Bound::Off);
    }
    match text.parse()? {
        WindowArg::Last(nanos) => Ok(Bound::At(Duration::from_nanos(nanos.unsigned_abs()))),
        WindowArg::All => Err("expected `off` to keep everything".to_owned()),
    }
}

/// Maximum grace: a day must be closed before the report of the next day is requested.
const MAX_GRACE: Duration = Duration::from_hours(24);

fn parse_grace(text: &str) -> Result<Duration, String> {
    if text.trim() == "0s" {
        return Ok(Duration::ZERO);
    }
    match parse_length(text)? {
        Bound::At(grace) if grace <= MAX_GRACE => Ok(grace),
        Bound::At(_) | Bound::Off => Err("expected a duration from 0s to 24h".to_owned()),
    }
}

fn parse_amount(text: &str) -> Result<Bound<Amount>, String> {
    match text.trim() {
        "off" => Ok(Bound::Off),
        size => size.parse().map(Bound::At),
    }
}

/// Minimum memory to open a database, bytes.
const MIN_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// Parses an amount of memory, in the syntax of the engine.
pub(super) fn parse_memory(text: &str) -> Result<Amount, String> {
    match text.parse()? {
        Amount::Bytes(bytes) if bytes < MIN_MEMORY_BYTES => {
            Err(format!("{text:?} is below the minimum of 64MiB"))
        }
        amount => Ok(amount),
    }
}

pub(super) fn parse_bytes(text: &str) -> Result<Bound<u64>, String> {
    match parse_amount(text)? {
        Bound::Off => Ok(Bound::Off),
        Bound::At(Amount::Bytes(bytes)) => Ok(Bound::At(bytes)),
        Bound::At(Amount::Share(_)) => Err("expected a size such as 64MiB, not a share".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use echo_store::limits::{Amount, Limits};

    use super::{LimitArgs, parse_memory};

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        limits: LimitArgs,
    }

    fn limits(flags: &str) -> Result<Limits, String> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let serve = Serve::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(serve.limits.limits())
    }

    #[test]
    fn without_flags_the_limits_are_the_defaults() {
        assert_eq!(limits(""), Ok(Limits::default()));
    }

    #[test]
    fn limits_are_given_in_days_bytes_and_shares_and_can_be_off() {
        let parsed = limits("--retention-age 12h --retention-size 50GB").unwrap();
        assert_eq!(parsed.age, Some(Duration::from_hours(12)));
        assert_eq!(parsed.size, Some(Amount::Bytes(50_000_000_000)));
        let off = limits("--retention-age off --retention-size off").unwrap();
        assert_eq!((off.age, off.size), (None, None));
        let tight = limits("--min-free 5% --ballast off").unwrap();
        assert_eq!(tight.floor, Some(Amount::Share(0.05)));
        assert_eq!(tight.ballast_bytes, 0);
    }

    #[test]
    fn the_cost_grace_is_a_day_at_most() {
        let grace = |flags: &str| {
            let words = ["serve"].into_iter().chain(flags.split_whitespace());
            Serve::try_parse_from(words).map(|serve| serve.limits.cost_grace)
        };
        assert_eq!(grace("").unwrap(), Duration::from_mins(15));
        assert_eq!(grace("--cost-grace 0s").unwrap(), Duration::ZERO);
        assert!(grace("--cost-grace 25h").is_err());
        assert!(grace("--cost-grace off").is_err());
    }

    #[test]
    fn memory_has_one_syntax_only() {
        assert_eq!(parse_memory("2GB"), Ok(Amount::Bytes(2_000_000_000)));
        assert_eq!(parse_memory("25%"), Ok(Amount::Share(0.25)));
        for wrong in ["1.5GB", "2gb", "2g", "-1", "0", "1MB", "all"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_invalid_limit_is_rejected_with_an_example() {
        let error = limits("--retention-age forever").unwrap_err();
        assert!(error.contains("7d"), "{error}");
        let error = limits("--retention-size huge").unwrap_err();
        assert!(error.contains("50GB"), "{error}");
    }
}
