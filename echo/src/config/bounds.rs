//! Flags for concurrency limits and timeouts, so that no client can exhaust the instance.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use echo_tools::time::WindowArg;

use echo_serve::listener::ListenConfig;

/// Maximum configurable timeout; a query holds a slot of the query limit for that long.
const MAX_LENGTH: Duration = Duration::from_hours(1);

/// Concurrency limits and timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "Concurrency and timeouts")]
pub struct BoundArgs {
    /// Maximum connections per listener; further connections are closed at once and counted
    #[arg(long, value_name = "COUNT", default_value_t = BoundArgs::default().max_connections, env = "FLEET_ECHO_MAX_CONNECTIONS")]
    pub max_connections: NonZeroU32,

    /// Maximum concurrent requests per gRPC connection
    #[arg(long, value_name = "COUNT", default_value_t = BoundArgs::default().max_streams, env = "FLEET_ECHO_MAX_STREAMS")]
    pub max_streams: NonZeroU32,

    /// Close connections that are idle for this long (gRPC connections are pinged before)
    #[arg(long, value_name = "LENGTH", default_value = "2m", value_parser = parse_length, env = "FLEET_ECHO_IDLE_TIMEOUT")]
    pub idle_timeout: Duration,

    /// Maximum concurrent queries; others wait up to one second, those of pages up to half of the
    /// query deadline, and are then rejected with `busy`. SQL queries have a separate limit of six
    /// [default: number of cores - 1, at least 2 and at most 8]
    #[arg(long, value_name = "COUNT", env = "FLEET_ECHO_MAX_QUERIES")]
    pub max_queries: Option<NonZeroU32>,

    /// Minimum time between the starts of two commits under load. A commit costs as much as a few
    /// thousand points, so batches that arrive in between share the next commit and are
    /// acknowledged with it. A commit starts earlier when no batch has arrived for 20 ms; 0s
    /// commits each batch at once
    #[arg(long, value_name = "LENGTH", default_value = "250ms", value_parser = parse_pace, env = "FLEET_ECHO_COMMIT_EVERY")]
    pub commit_every: Duration,

    /// Deadline of a query; queries that run longer are interrupted
    #[arg(long, value_name = "LENGTH", default_value = "10s", value_parser = parse_length, env = "FLEET_ECHO_QUERY_DEADLINE")]
    pub query_deadline: Duration,
}

impl Default for BoundArgs {
    fn default() -> Self {
        let usual = ListenConfig::default();
        let count = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self {
            max_connections: count(usual.max_connections),
            max_streams: count(usual.max_streams),
            idle_timeout: usual.idle,
            max_queries: None,
            commit_every: Duration::from_millis(250),
            query_deadline: Duration::from_secs(10),
        }
    }
}

impl BoundArgs {
    /// Returns the limits of each listener.
    pub fn listen(&self) -> ListenConfig {
        ListenConfig {
            max_connections: self.max_connections.get(),
            max_streams: self.max_streams.get(),
            idle: self.idle_timeout,
            ..ListenConfig::default()
        }
    }

    /// Returns the limit of concurrent queries for this number of cores: one core is left to
    /// ingest, but on a small machine one slow query must not block all others.
    pub fn queries(&self, cores: usize) -> u32 {
        let most = u32::try_from(cores.saturating_sub(1)).unwrap_or(u32::MAX);
        let usual = most.clamp(2, 8);
        self.max_queries.map_or(usual, NonZeroU32::get)
    }
}

fn parse_pace(text: &str) -> Result<Duration, String> {
    /// Senders give up on a batch after ten seconds.
    const MAX_LENGTH: Duration = Duration::from_secs(2);
    let every = text.parse::<jiff::SignedDuration>().ok();
    let every = every.and_then(|every| Duration::try_from(every).ok());
    every
        .filter(|every| *every <= MAX_LENGTH)
        .ok_or_else(|| "expected a duration from 0s to 2s, such as 50ms".to_owned())
}

/// Parses a duration up to an hour.
pub(super) fn parse_length(text: &str) -> Result<Duration, String> {
    let length = match text.parse()? {
        WindowArg::Last(nanos) => Duration::from_nanos(nanos.unsigned_abs()),
        WindowArg::All => Duration::ZERO,
    };
    if length.is_zero() || length > MAX_LENGTH {
        return Err("expected a duration above 0 and up to 1h, such as 10s".to_owned());
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{BoundArgs, parse_pace};

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        bounds: BoundArgs,
    }

    fn bounds(flags: &str) -> Result<BoundArgs, String> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let serve = Serve::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(serve.bounds)
    }

    #[test]
    fn without_flags_the_bounds_are_the_defaults() {
        assert_eq!(bounds(""), Ok(BoundArgs::default()));
    }

    #[test]
    fn one_core_is_left_to_ingest_if_there_are_several() {
        let usual = BoundArgs::default();
        let by_cores = [1, 2, 4, 8, 64].map(|cores| usual.queries(cores));
        assert_eq!(by_cores, [2, 2, 3, 7, 8]);
        assert_eq!(bounds("--max-queries 1").unwrap().queries(64), 1);
    }

    #[test]
    fn zero_and_excessive_bounds_are_rejected() {
        for flags in [
            "--max-connections 0",
            "--max-streams 0",
            "--max-queries 0",
            "--idle-timeout 0s",
            "--query-deadline 2h",
        ] {
            assert!(bounds(flags).is_err(), "{flags}");
        }
    }

    #[test]
    fn the_commit_interval_is_zero_or_short() {
        assert_eq!(parse_pace("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_pace("0s"), Ok(Duration::ZERO));
        for wrong in ["", "50", "-1s", "3s", "soon"] {
            assert!(parse_pace(wrong).unwrap_err().contains("50ms"), "{wrong}");
        }
    }
}
