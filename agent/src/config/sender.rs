//! Flags of the sender of a live agent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fleet_agent_export::sender::Settings;
use fleet_agent_export::spool::{Spool, SpoolError};

use crate::config::{ConnectionArgs, positive_duration};

/// Flags of the queue, the spool and the connection.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SenderArgs {
    /// Maximum number of points queued in memory; further points are dropped and counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        env = "FLEET_AGENT_QUEUE_POINTS"
    )]
    pub queue_points: usize,

    /// Directory that buffers batches while Echo is unreachable, for this agent alone [default:
    /// memory only]
    #[arg(long, value_name = "DIR", env = "FLEET_AGENT_SPOOL")]
    pub spool: Option<PathBuf>,

    /// Maximum size of the spool; the oldest batches beyond it are dropped and counted
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "FLEET_AGENT_SPOOL_LIMIT", value_parser = size)]
    pub spool_limit: u64,

    /// Time that a batch waits in memory before it is spooled
    #[arg(long, hide = true, value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_SPOOL_AFTER", value_parser = positive_duration)]
    pub spool_after: Duration,

    /// TLS and token of the connection
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl SenderArgs {
    /// Settings of the sender.
    pub fn settings(&self) -> Settings {
        Settings {
            queue_points: self.queue_points,
            spool_after: self.spool_after,
        }
    }

    /// Opens the spool, if one is configured.
    pub fn open_spool(&self) -> Result<Option<Spool>, SpoolError> {
        let dir = self.spool.as_deref();
        dir.map(|dir| Spool::open(dir, self.spool_limit))
            .transpose()
    }
}

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("", 1),
];

/// Parses a number of bytes, such as 256MiB.
fn size(text: &str) -> Result<u64, String> {
    let digits =
        text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ');
    let unit = text.strip_prefix(digits).map(str::trim);
    let factor = UNITS.iter().find(|(name, _)| Some(*name) == unit);
    let bytes = digits.parse::<u64>().ok().zip(factor);
    bytes
        .and_then(|(number, (_, factor))| number.checked_mul(*factor))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a size such as 256MiB or 1GB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Live {
        #[command(flatten)]
        sender: SenderArgs,
    }

    fn parse(flags: &str) -> Result<SenderArgs, clap::Error> {
        let words = ["live"].into_iter().chain(flags.split_whitespace());
        Live::try_parse_from(words).map(|live| live.sender)
    }

    #[test]
    fn without_flags_points_wait_in_memory_only() {
        let args = parse("").unwrap();
        assert_eq!((args.queue_points, args.spool_limit), (20_000, 256 << 20));
        assert!(args.open_spool().unwrap().is_none());
    }

    #[test]
    fn sizes_can_have_binary_and_decimal_units() {
        for (text, bytes) in [
            ("1", 1),
            ("64KiB", 64 << 10),
            ("2 GiB", 2 << 30),
            ("50MB", 50_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "0", "MiB", "-1MiB", "1.5GiB", "1mb", "99999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_spool_is_opened_with_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let flags = format!("--spool {} --spool-limit 1MiB", dir.path().display());
        let args = parse(&flags).unwrap();
        let spool = args.open_spool().unwrap();
        assert!(spool.is_some());
        assert!(matches!(args.open_spool(), Err(SpoolError::InUse(_))));
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        let command = Live::command();
        command.clone().debug_assert();
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
            let env = arg.get_env().and_then(|env| env.to_str());
            assert!(
                env.is_some_and(|env| env.starts_with("FLEET_AGENT_")),
                "{arg:?}"
            );
        }
    }
}
