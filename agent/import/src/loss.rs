//! What late ranks cost by their arrivals alone, where no past of the job is known.

use std::fmt;

use serde::Serialize;

use crate::lateness::LateRank;
use crate::waiting::LateTogether;

/// What the delays of late ranks cost their group, if none of its GPUs has other work while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loss {
    /// GPUs of the group with a trace.
    pub n_gpus: usize,
    /// Number of delays.
    pub n_delays: usize,
    /// Mean delay, milliseconds.
    pub delay_ms: f64,
    /// Sum of the delays over all GPUs, GPU-seconds.
    pub gpu_s: f64,
    /// Traced time with the delays over that without them, less 1; `None` if the format has no times.
    pub slowdown: Option<f64>,
}

impl From<&LateRank> for Loss {
    fn from(one: &LateRank) -> Self {
        Self::new(one.n_ranks, (one.n_last, one.lag_ms), one.time_share)
    }
}

impl From<&LateTogether> for Loss {
    fn from(all: &LateTogether) -> Self {
        Self::new(all.n_ranks, (all.n_last, all.lag_ms), all.time_share)
    }
}

impl Loss {
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    fn new(n_gpus: usize, (n_delays, delay_ms): (usize, f64), time_share: Option<f64>) -> Self {
        Self {
            n_gpus,
            n_delays,
            delay_ms,
            gpu_s: n_gpus as f64 * n_delays as f64 * delay_ms / 1e3,
            slowdown: time_share
                .filter(|share| *share < 1.0)
                .map(|share| share / (1.0 - share)),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            n_gpus,
            n_delays,
            delay_ms,
            gpu_s,
            slowdown,
        } = self;
        write!(
            f,
            "about {gpu_s:.2} GPU-seconds, if no GPU had other work while it waited: {n_delays} delays of {delay_ms:.1} ms on {n_gpus} GPUs"
        )?;
        slowdown.map_or(Ok(()), |ratio| {
            write!(f, "; {:.1} % longer on average", ratio * 100.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_of_the_group_loses_each_delay() {
        let loss = Loss::new(4, (30, 8.0), Some(0.2));
        assert!((loss.gpu_s - 0.96).abs() < 1e-9);
        assert_eq!(
            loss.to_string(),
            "about 0.96 GPU-seconds, if no GPU had other work while it waited: 30 delays of 8.0 ms on 4 GPUs; 25.0 % \
             longer on average"
        );
    }

    #[test]
    fn nothing_is_said_about_the_pace_without_times() {
        let loss = Loss::new(2, (4, 5.0), None);
        assert!(loss.to_string().ends_with("on 2 GPUs"), "{loss}");
    }
}
