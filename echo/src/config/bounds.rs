//! The flags that say how much is done at the same time, so that nobody takes everything.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use echo_tools::time::WindowArg;

use echo_serve::listener::ListenConfig;

/// Longest time that a question may be given: it holds a place that others wait for.
const MAX_LENGTH: Duration = Duration::from_hours(1);

/// How much is done at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "How much at the same time")]
pub struct BoundArgs {
    /// Most connections of each of the three listeners; further ones are closed at once and counted
    #[arg(long, value_name = "COUNT", default_value_t = BoundArgs::default().max_connections, env = "FLEET_ECHO_MAX_CONNECTIONS")]
    pub max_connections: NonZeroU32,

    /// Most requests that one gRPC connection may have open
    #[arg(long, value_name = "COUNT", default_value_t = BoundArgs::default().max_streams, env = "FLEET_ECHO_MAX_STREAMS")]
    pub max_streams: NonZeroU32,

    /// Close a connection on which nothing came or went for so long (gRPC peers are asked for a sign of life before)
    #[arg(long, value_name = "LENGTH", default_value = "2m", value_parser = parse_length, env = "FLEET_ECHO_IDLE_TIMEOUT")]
    pub idle_timeout: Duration,

    /// Most questions that are answered at the same time; others wait a second and are then told to come back. SQL has two places of
    /// its own
    /// [default: one less than there are cores, at least 2 and at most 8]
    #[arg(long, value_name = "COUNT", env = "FLEET_ECHO_MAX_QUERIES")]
    pub max_queries: Option<NonZeroU32>,

    /// Time between the beginnings of two commits while batches arrive: a commit costs as much as a few thousand points, so batches
    /// that arrive meanwhile share the next one and are acknowledged with it. A commit begins earlier when nothing has arrived for
    /// 20 ms; 0s commits everything at once
    #[arg(long, value_name = "LENGTH", default_value = "250ms", value_parser = parse_pace, env = "FLEET_ECHO_COMMIT_EVERY")]
    pub commit_every: Duration,

    /// Longest time for the answer to a question; what runs longer is interrupted
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
    /// What each listener lets in.
    pub fn listen(&self) -> ListenConfig {
        ListenConfig {
            max_connections: self.max_connections.get(),
            max_streams: self.max_streams.get(),
            idle: self.idle_timeout,
            ..ListenConfig::default()
        }
    }

    /// Most questions at the same time on a machine with so many cores: a core is left to ingest, but on a small machine
    /// one slow question must not keep all others waiting.
    pub fn queries(&self, cores: usize) -> u32 {
        let most = u32::try_from(cores.saturating_sub(1)).unwrap_or(u32::MAX);
        let usual = most.clamp(2, 8);
        self.max_queries.map_or(usual, NonZeroU32::get)
    }
}

fn parse_pace(text: &str) -> Result<Duration, String> {
    /// Batches are given up by those who sent them after ten seconds.
    const MAX_LENGTH: Duration = Duration::from_secs(2);
    let every = text.parse::<jiff::SignedDuration>().ok();
    let every = every.and_then(|every| Duration::try_from(every).ok());
    every
        .filter(|every| *every <= MAX_LENGTH)
        .ok_or_else(|| "give a length from 0s to 2s, such as 50ms".to_owned())
}

fn parse_length(text: &str) -> Result<Duration, String> {
    let length = match text.parse()? {
        WindowArg::Last(nanos) => Duration::from_nanos(nanos.unsigned_abs()),
        WindowArg::All => Duration::ZERO,
    };
    if length.is_zero() || length > MAX_LENGTH {
        return Err("give a length above 0 and up to 1h, such as 10s".to_owned());
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
    fn without_flags_the_bounds_are_the_usual_ones() {
        assert_eq!(bounds(""), Ok(BoundArgs::default()));
    }

    #[test]
    fn a_core_is_left_to_ingest_where_there_are_several() {
        let usual = BoundArgs::default();
        let by_cores = [1, 2, 4, 8, 64].map(|cores| usual.queries(cores));
        assert_eq!(by_cores, [2, 2, 3, 7, 8]);
        assert_eq!(bounds("--max-queries 1").unwrap().queries(64), 1);
    }

    #[test]
    fn nothing_at_all_is_no_bound() {
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
    fn commits_are_paced_by_short_lengths_or_not_at_all() {
        assert_eq!(parse_pace("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_pace("0s"), Ok(Duration::ZERO));
        for wrong in ["", "50", "-1s", "3s", "soon"] {
            assert!(parse_pace(wrong).unwrap_err().contains("50ms"), "{wrong}");
        }
    }
}
