//! Faults of a simulated job.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;

use crate::job::layout::{CommKind, Layout};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The host of one rank is late.
    Host,
    /// The GPU of one rank is slow.
    Device,
    /// The hosts of all ranks of a node are late.
    Node,
    /// Transfers of the data parallel communicator of a rank are slow.
    Network,
    /// The GPUs of the pipeline stage of a rank have more work.
    Stage,
    /// All GPUs are slow.
    Uniform,
    /// One rank does not enter its next operation until the fault is over.
    Hang,
}

/// Fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Rank that is affected, or any rank of the affected node, stage or communicator.
    pub rank: u32,
    /// Time from the start of the job to the start of the fault.
    pub after: Duration,
    /// Duration; none until the end of the job.
    pub lasts: Option<Duration>,
    /// Time added to a step, as a share of a healthy step.
    pub severity: f64,
}

/// Load that active faults add to a rank, as shares of a healthy step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Load on its host.
    pub host: f64,
    /// Load on its GPU.
    pub device: f64,
    /// Load on the transfers of its data parallel communicator.
    pub transfer: f64,
    /// The rank issues nothing before this time, milliseconds since the start of the job.
    pub hangs_until_ms: f64,
}

impl Fault {
    /// Adds the effect of this fault on `rank` at a time of the job.
    pub fn add_to(&self, load: &mut Load, layout: &Layout, rank: u32, at_ms: f64) {
        let until_ms = self.until_ms();
        let is_active = self.after.as_secs_f64() * 1e3 <= at_ms && at_ms < until_ms;
        if !is_active || !self.affects(layout, rank) {
            return;
        }
        match self.kind {
            FaultKind::Host | FaultKind::Node => load.host += self.severity,
            FaultKind::Device | FaultKind::Stage | FaultKind::Uniform => {
                load.device += self.severity;
            }
            FaultKind::Network => load.transfer += self.severity,
            FaultKind::Hang => load.hangs_until_ms = load.hangs_until_ms.max(until_ms),
        }
    }

    /// Checks that the fault is possible in a job of this layout.
    pub fn check(&self, layout: &Layout) -> Result<(), String> {
        let Self { rank, kind, .. } = self;
        if *rank >= layout.n_ranks {
            return Err(format!(
                "--fault names rank {rank}, but the ranks are 0 to {}",
                layout.n_ranks - 1
            ));
        }
        if *kind == FaultKind::Network && !layout.uses(CommKind::Data) {
            return Err(
                "--fault network needs a data parallel communicator: use more than one \
                        replica in --mesh"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn affects(&self, layout: &Layout, rank: u32) -> bool {
        let mesh = layout.mesh;
        match self.kind {
            FaultKind::Host | FaultKind::Device | FaultKind::Hang => rank == self.rank,
            FaultKind::Node => rank / layout.ranks_per_node == self.rank / layout.ranks_per_node,
            FaultKind::Network => {
                CommKind::Data.position(mesh, rank).0 == CommKind::Data.position(mesh, self.rank).0
            }
            FaultKind::Stage => mesh.stage(rank) == mesh.stage(self.rank),
            FaultKind::Uniform => true,
        }
    }

    fn until_ms(&self) -> f64 {
        // No simulation lasts a year, and a year in nanoseconds is still precise enough.
        const YEAR_MS: f64 = 365.0 * 86_400_000.0;
        let until = self.lasts.map(|lasts| self.after.saturating_add(lasts));
        until.map_or(YEAR_MS, |until| (until.as_secs_f64() * 1e3).min(YEAR_MS))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, keys) = text.split_once(':').unwrap_or((text, ""));
        let kind = match kind {
            "host" => FaultKind::Host,
            "device" => FaultKind::Device,
            "node" => FaultKind::Node,
            "network" => FaultKind::Network,
            "stage" => FaultKind::Stage,
            "uniform" => FaultKind::Uniform,
            "hang" => FaultKind::Hang,
            other => {
                return Err(format!(
                    "unknown kind of fault {other:?}; expected host, device, node, network, \
                     stage, uniform or hang"
                ));
            }
        };
        let (mut rank, mut severity) = (None, None);
        let (mut after, mut lasts) = (Duration::ZERO, None);
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "rank" => rank = Some(parse_number(key, value)?),
                "after" => after = parse_duration(key, value)?,
                "for" => lasts = Some(parse_duration(key, value)?),
                "severity" => severity = Some(parse_share(value)?),
                other => {
                    return Err(format!(
                        "a fault has no {other:?}; expected rank, after, for or severity"
                    ));
                }
            }
        }
        // Uniform faults affect all ranks, and a rank that hangs does so entirely.
        let rank = rank.or_else(|| (kind == FaultKind::Uniform).then_some(0));
        let severity = severity.or_else(|| (kind == FaultKind::Hang).then_some(0.0));
        Ok(Self {
            kind,
            rank: rank.ok_or("a fault needs the rank it affects, such as rank=17")?,
            after,
            lasts,
            severity: severity
                .ok_or("a fault needs the time it adds to a step, such as severity=20%")?,
        })
    }
}

fn parse_number(key: &str, value: &str) -> Result<u32, String> {
    let number = value.parse().ok();
    number.ok_or_else(|| format!("{key}={value}: expected a whole number"))
}

fn parse_duration(key: &str, value: &str) -> Result<Duration, String> {
    let parsed = value.parse::<SignedDuration>().ok();
    let duration = parsed.and_then(|signed| signed.try_into().ok());
    duration.ok_or_else(|| format!("{key}={value}: expected a duration such as 200ms, 10s or 1m"))
}

/// Parses a share such as `20%` or `0.2`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().ok().map(|number| number * scale);
    share
        .filter(|share| (0.0..=100.0).contains(share))
        .ok_or_else(|| format!("{text}: expected a share such as 20% or 0.2, up to 10000%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_a_kind_a_rank_times_and_a_severity() {
        let fault: Fault = "host:rank=17,after=60s,for=2m,severity=20%"
            .parse()
            .unwrap();
        let expected = Fault {
            kind: FaultKind::Host,
            rank: 17,
            after: Duration::from_mins(1),
            lasts: Some(Duration::from_mins(2)),
            severity: 0.2,
        };
        assert_eq!(fault, expected);
        let hang: Fault = "hang:rank=3,after=1m".parse().unwrap();
        assert_eq!((hang.kind, hang.lasts), (FaultKind::Hang, None));
        assert!("uniform:severity=0.1".parse::<Fault>().is_ok());
    }

    #[test]
    fn an_invalid_fault_is_refused_with_what_was_expected() {
        for (wrong, expected_message) in [
            ("fire:rank=1,severity=1%", "unknown kind of fault \"fire\""),
            ("host:severity=20%", "such as rank=17"),
            ("host:rank=1", "such as severity=20%"),
            (
                "host:rank=one,severity=1%",
                "rank=one: expected a whole number",
            ),
            ("host:rank=1,severity=-3%", "expected a share"),
            ("host:rank=1,severity=nan", "expected a share"),
            (
                "host:rank=1,severity=2%,after=soon",
                "after=soon: expected a duration",
            ),
            (
                "host:rank=1,severity=2%,until=3s",
                "a fault has no \"until\"",
            ),
        ] {
            let error = wrong.parse::<Fault>().unwrap_err();
            assert!(error.contains(expected_message), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_fault_needs_a_rank_that_exists() {
        let layout = Layout::new(2, 8, None, None).unwrap();
        let fault: Fault = "host:rank=16,severity=20%".parse().unwrap();
        assert_eq!(
            fault.check(&layout).unwrap_err(),
            "--fault names rank 16, but the ranks are 0 to 15"
        );
        assert!(Fault { rank: 15, ..fault }.check(&layout).is_ok());
    }

    #[test]
    fn a_fault_is_active_from_its_start_to_before_its_end_for_its_ranks_only() {
        let layout = Layout::new(2, 2, None, None).unwrap();
        let fault: Fault = "node:rank=2,after=1s,for=1s,severity=50%".parse().unwrap();
        let is_late = |rank, at_ms| {
            let mut load = Load::default();
            fault.add_to(&mut load, &layout, rank, at_ms);
            load.host > 0.0
        };
        let late = [0, 1, 2, 3].map(|rank| is_late(rank, 1000.0));
        assert_eq!(late, [false, false, true, true]);
        let late = [999.0, 1999.0, 2000.0].map(|at_ms| is_late(2, at_ms));
        assert_eq!(late, [false, true, false]);
    }
}
