//! Flags for the shard of this instance.

use std::num::NonZeroU32;

use clap::Args;
use echo_core::shard::Shard;
use fleet_proto::shard::{MAX_SHARDS, PLACEHOLDER};

/// Shard of this instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Sharding")]
pub struct ShardArgs {
    /// Shard number of this instance, starting at 0, or a name that ends in it, such as the pod
    /// name of a StatefulSet (fleet-echo-2); requires --shards and --shard-url
    #[arg(long, value_name = "NUMBER", env = "FLEET_ECHO_SHARD")]
    pub shard: Option<String>,

    /// Number of shards that clusters are distributed over, each with its own database; agents must
    /// use the same number
    #[arg(long, value_name = "N", env = "FLEET_ECHO_SHARDS")]
    pub shards: Option<u32>,

    /// API address of all shards, with {shard} for the number; returned to clients that query a
    /// cluster of another shard
    #[arg(long, value_name = "URL", env = "FLEET_ECHO_SHARD_URL")]
    pub shard_url: Option<String>,
}

impl ShardArgs {
    /// Appends the problems with the flags to `wrong`.
    pub fn check(&self, wrong: &mut Vec<String>) {
        let missing: Vec<&str> = [
            ("--shard", self.shard.is_none()),
            ("--shards", self.shards.is_none()),
            ("--shard-url", self.shard_url.is_none()),
        ]
        .into_iter()
        .filter_map(|(flag, is_missing)| is_missing.then_some(flag))
        .collect();
        if !missing.is_empty() && missing.len() < 3 {
            let missing = missing.join(", ");
            wrong.push(format!(
                "--shard, --shards and --shard-url must be given together; missing: {missing}"
            ));
        }
        let count = self.shards.filter(|count| (1..=MAX_SHARDS).contains(count));
        if let (Some(shards), None) = (self.shards, count) {
            wrong.push(format!(
                "--shards {shards} must be between 1 and {MAX_SHARDS}"
            ));
        }
        if let Some(shard) = &self.shard {
            match (parse_ordinal(shard), count) {
                (None, _) => wrong.push(format!(
                    "--shard {shard:?} must be a number or a name that ends in one, such as fleet-echo-2"
                )),
                (Some(ordinal), Some(count)) if ordinal >= count => wrong.push(format!(
                    "--shard {shard} must be between 0 and {max} for --shards {count}",
                    max = count - 1
                )),
                _ => {}
            }
        }
        if let Some(url) = self.shard_url.as_deref().filter(|url| !is_template(url)) {
            wrong.push(format!(
                "--shard-url {url:?} must have the form https://fleet-echo-{PLACEHOLDER}.example:8081"
            ));
        }
    }

    /// Returns the shard; `None` for an unsharded instance.
    pub fn shard(&self) -> Option<Shard> {
        let ordinal = parse_ordinal(self.shard.as_deref()?)?;
        let count = self.shards.and_then(NonZeroU32::new)?;
        Shard::new(ordinal, count, self.shard_url.as_deref()?)
    }
}

/// Parses a number, or the number after the last hyphen of a name.
fn parse_ordinal(text: &str) -> Option<u32> {
    let digits = match text.rsplit_once('-') {
        Some((name, digits)) if !name.is_empty() => digits,
        Some(_) => return None,
        None => text,
    };
    // `parse` would also accept a sign.
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| digits.parse().ok()).flatten()
}

fn is_template(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let is_readable = url.chars().all(|c| c.is_ascii_graphic());
    is_readable && rest.is_some_and(|rest| rest.contains(PLACEHOLDER))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use echo_core::shard::Shard;

    use super::ShardArgs;

    const URL: &str = "--shard-url https://echo-{shard}.lab:8081/";

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        shard: ShardArgs,
    }

    fn shard(flags: &str) -> Result<Option<Shard>, Vec<String>> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let args = Serve::try_parse_from(words).unwrap().shard;
        let mut wrong = Vec::new();
        args.check(&mut wrong);
        if wrong.is_empty() {
            Ok(args.shard())
        } else {
            Err(wrong)
        }
    }

    #[test]
    fn without_flags_the_instance_is_unsharded() {
        assert_eq!(shard(""), Ok(None));
    }

    #[test]
    fn a_shard_is_given_by_number_or_pod_name() {
        for value in ["2", "fleet-echo-2", "echo-01-2"] {
            let shard = shard(&format!("--shard {value} --shards 3 {URL}"));
            let shard = shard.unwrap().unwrap();
            assert_eq!((shard.ordinal(), shard.count()), (2, 3), "{value}");
            assert_eq!(shard.url(), "https://echo-{shard}.lab:8081");
        }
    }

    #[test]
    fn every_problem_is_reported() {
        for (flags, expected) in [
            ("--shard 0".to_owned(), "missing: --shards, --shard-url"),
            (format!("--shards 3 {URL}"), "missing: --shard"),
            (format!("--shard 3 --shards 3 {URL}"), "between 0 and 2"),
            (format!("--shard 0 --shards 0 {URL}"), "between 1 and 1024"),
            (
                format!("--shard 0 --shards 1025 {URL}"),
                "between 1 and 1024",
            ),
            (format!("--shard echo --shards 3 {URL}"), "fleet-echo-2"),
            (format!("--shard echo-x2 --shards 3 {URL}"), "fleet-echo-2"),
            (format!("--shard=-2 --shards 3 {URL}"), "fleet-echo-2"),
            (format!("--shard +2 --shards 3 {URL}"), "fleet-echo-2"),
            (format!("--shard= --shards 3 {URL}"), "fleet-echo-2"),
            (
                "--shard 0 --shards 3 --shard-url https://echo".to_owned(),
                "{shard}",
            ),
            (
                "--shard 0 --shards 3 --shard-url echo-{shard}".to_owned(),
                "https://",
            ),
        ] {
            let wrong = shard(&flags).unwrap_err();
            assert_eq!(wrong.len(), 1, "{flags}: {wrong:?}");
            assert!(wrong.concat().contains(expected), "{flags}: {wrong:?}");
        }
        let all = shard("--shard echo --shards 0 --shard-url echo").unwrap_err();
        assert_eq!(all.len(), 3, "{all:?}");
    }
}
