//! The flags that say which of several Echos this one is.

use std::num::NonZeroU32;

use clap::Args;
use echo_core::shard::Shard;
use fleet_proto::shard::{MAX_SHARDS, PLACEHOLDER};

/// Which of several Echos this one is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Several Echos")]
pub struct ShardArgs {
    /// Number of this Echo, from 0 on, or a name that ends in it, as those of a StatefulSet's pods do (fleet-echo-2); with
    /// --shards and --shard-url
    #[arg(long, value_name = "NUMBER", env = "FLEET_ECHO_SHARD")]
    pub shard: Option<String>,

    /// Number of Echos that clusters are spread over, each with a database of its own; agents have to be told the same
    #[arg(long, value_name = "N", env = "FLEET_ECHO_SHARDS")]
    pub shards: Option<u32>,

    /// Address at which they answer questions, with {shard} for their numbers: it is told to those who ask here about
    /// clusters of others
    #[arg(long, value_name = "URL", env = "FLEET_ECHO_SHARD_URL")]
    pub shard_url: Option<String>,
}

impl ShardArgs {
    /// Says what is wrong.
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
                "--shard, --shards and --shard-url are given together or not at all; missing: {missing}"
            ));
        }
        let count = self.shards.filter(|count| (1..=MAX_SHARDS).contains(count));
        if let (Some(shards), None) = (self.shards, count) {
            wrong.push(format!(
                "--shards {shards} does not lie between 1 and {MAX_SHARDS}"
            ));
        }
        if let Some(shard) = &self.shard {
            match (parse_ordinal(shard), count) {
                (None, _) => wrong.push(format!(
                    "--shard {shard:?} is no number and no name that ends in one, such as fleet-echo-2"
                )),
                (Some(ordinal), Some(count)) if ordinal >= count => wrong.push(format!(
                    "--shard {shard} is not one of --shards {count}, which are 0 to {}",
                    count - 1
                )),
                _ => {}
            }
        }
        if let Some(url) = self.shard_url.as_deref().filter(|url| !is_template(url)) {
            wrong.push(format!(
                "--shard-url {url:?} is not of the form https://fleet-echo-{PLACEHOLDER}.example:8081"
            ));
        }
    }

    /// Which one it is; nothing where it is the only one.
    pub fn shard(&self) -> Option<Shard> {
        let ordinal = parse_ordinal(self.shard.as_deref()?)?;
        let count = self.shards.and_then(NonZeroU32::new)?;
        Shard::new(ordinal, count, self.shard_url.as_deref()?)
    }
}

/// A number by itself, or behind the last hyphen of a name.
fn parse_ordinal(text: &str) -> Option<u32> {
    let digits = match text.rsplit_once('-') {
        Some((name, digits)) if !name.is_empty() => digits,
        Some(_) => return None,
        None => text,
    };
    // A sign would be read, too.
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
    fn without_flags_it_is_the_only_one() {
        assert_eq!(shard(""), Ok(None));
    }

    #[test]
    fn a_shard_has_a_number_or_the_name_of_a_pod() {
        for value in ["2", "fleet-echo-2", "echo-01-2"] {
            let shard = shard(&format!("--shard {value} --shards 3 {URL}"));
            let shard = shard.unwrap().unwrap();
            assert_eq!((shard.ordinal(), shard.count()), (2, 3), "{value}");
            assert_eq!(shard.url(), "https://echo-{shard}.lab:8081");
        }
    }

    #[test]
    fn every_mistake_is_told() {
        for (flags, expected) in [
            ("--shard 0".to_owned(), "missing: --shards, --shard-url"),
            (format!("--shards 3 {URL}"), "missing: --shard"),
            (format!("--shard 3 --shards 3 {URL}"), "0 to 2"),
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
