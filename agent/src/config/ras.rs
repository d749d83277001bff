//! Flags of the queries to NCCL's RAS subsystem.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::config::positive_duration;

/// Where NCCL's RAS subsystem is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RasMode {
    /// Where it answers: on localhost:28028, also in the network namespaces of containers, or at
    /// the `NCCL_RAS_ADDR` of a job.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// At this address, and at the `NCCL_RAS_ADDR` of a job.
    At(SocketAddr),
}

impl FromStr for RasMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            address => address.parse().map(Self::At).map_err(|_invalid| {
                "expected auto, off, or an address of this host such as 127.0.0.1:28028".to_owned()
            }),
        }
    }
}

/// Flags of the queries to NCCL's RAS subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RasArgs {
    /// Query NCCL's RAS subsystem, by which hangs of ranks are named that no probe follows: `auto`
    /// where it answers, `off` never, or at an ADDRESS of this host
    #[arg(
        long = "ras",
        value_name = "WHERE",
        default_value = "auto",
        env = "FLEET_AGENT_RAS"
    )]
    pub mode: RasMode,

    /// Interval of these queries; a hang is named when the counts of two have not changed for Echo's
    /// `--hang-after`
    // `--interval` already has the id that clap would derive from the field name.
    #[arg(id = "ras_interval", long = "ras-interval", value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_RAS_INTERVAL", value_parser = positive_duration)]
    pub interval: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_ras_is_automatic_none_or_an_address() {
        assert_eq!("auto".parse(), Ok(RasMode::Auto));
        assert_eq!("off".parse(), Ok(RasMode::Off));
        let address = SocketAddr::from(([127, 0, 0, 1], 3000));
        assert_eq!("127.0.0.1:3000".parse(), Ok(RasMode::At(address)));
        let error = "on".parse::<RasMode>().unwrap_err();
        assert!(error.contains("auto, off"), "{error}");
    }
}
