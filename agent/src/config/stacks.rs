//! Flags of `stacks`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::config::positive_duration;

pub(super) const EXAMPLES: &str = "\
Examples: where the first thread of a process spends its time, for ten seconds:

  fleet-agent stacks --pid 4711

Another thread of it, for a minute, as JSON:

  fleet-agent stacks --pid 4711 --tid 4790 --duration 1m --json

The process is neither stopped nor changed: its memory is read while it runs. Python lines need \
CPython; native functions are named by the symbols of the files that the process maps, also in a \
container. A stack that ends early has the frames that can be trusted.

Needs root, or CAP_SYS_PTRACE, CAP_PERFMON, CAP_DAC_READ_SEARCH and CAP_CHECKPOINT_RESTORE.

Exit codes: 0 sampled, 64 invalid flags, 66 no such process or thread, 69 the process exited before \
its first sample, or neither kind of stack can be read, 77 not permitted by the kernel.";

/// Flags of `stacks`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StacksArgs {
    /// Process to sample
    #[arg(long, value_name = "PID", env = "FLEET_AGENT_PID")]
    pub pid: u32,

    /// Thread to sample; can be given several times [default: the first thread of the process]
    #[arg(
        long,
        value_name = "TID",
        value_delimiter = ',',
        env = "FLEET_AGENT_TID"
    )]
    pub tid: Vec<u32>,

    /// Time to sample, 25 times per second; Ctrl-C ends it early
    #[arg(long, value_name = "DURATION", default_value = "10s", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Duration,

    /// Print JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}

/// Flags of sampling late ranks.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StackSamplingArgs {
    /// Do not sample the stacks of ranks that are late, and do not read the state of ranks that hang
    #[arg(long, env = "FLEET_AGENT_WITHOUT_STACKS")]
    pub without_stacks: bool,

    /// CPU time for sampling stacks, as a share of one core over a minute; when it is spent,
    /// sampling ends until the next minute
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "1%",
        env = "FLEET_AGENT_STACK_BUDGET"
    )]
    pub stack_budget: CoreShare,

    /// Time for which the stacks of a late rank are sampled
    #[arg(long, hide = true, value_name = "DURATION", default_value = "10s", env = "FLEET_AGENT_STACK_TIME", value_parser = positive_duration)]
    pub stack_time: Duration,
}

/// Share of one core, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreShare(u32);

impl CoreShare {
    /// Returns the share as a fraction, 0.01 for 1 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl FromStr for CoreShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        let percent = number.parse::<f64>().ok();
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a million, and not negative"
        )]
        let share = percent.map(|percent| Self((percent * 10_000.0).round() as u32));
        share.ok_or_else(|| "expected a share of a core between 0% and 100%, such as 1%".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_core_is_a_percentage() {
        let fraction = |text: &str| text.parse::<CoreShare>().map(CoreShare::fraction);
        assert_eq!(fraction("1%"), Ok(0.01));
        assert_eq!(fraction("0.5 %"), Ok(0.005));
        assert_eq!(fraction("2"), Ok(0.02));
        for wrong in ["-1%", "101%", "much", ""] {
            assert!(fraction(wrong).is_err(), "{wrong}");
        }
    }
}
