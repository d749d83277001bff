//! Published straggler rules, implemented from their formulas. Each sees the same windows as the
//! detector and has the same hysteresis: two consecutive windows to raise, three to clear.

use echo_core::stats::{mad, mean, median};

use super::window::RankWindow;

/// Ratio of the standard deviation to the median absolute deviation of normal values.
const MAD_TO_SIGMA: f64 = 1.4826;

/// A published rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Later than the median by two scaled MADs (Ingero Fleet's documented default).
    Mad2,
    /// The same with the usual threshold of the modified z-score, 3.5 (Iglewicz and Hoaglin).
    Mad35,
    /// Later than the mean by three standard deviations.
    ThreeSigma,
    /// Fastest own time below 0.75 of the rank's own time (NVIDIA Resiliency Extension).
    RelativeScore,
    /// Shortest wait, if it is a tenth of a step below the typical one (`TraceML`).
    LeastPhase,
    /// Wait below a tenth of the longest in the communicator (Flight Recorder analyses).
    WaitRatio,
    /// Own time more than twice the median (`DLRover`).
    TwiceMedian,
    /// The two latest of every window (Holistic Trace Analysis).
    TopTwo,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 8] = [
        Self::Mad2,
        Self::Mad35,
        Self::ThreeSigma,
        Self::RelativeScore,
        Self::LeastPhase,
        Self::WaitRatio,
        Self::TwiceMedian,
        Self::TopTwo,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mad2 => "MAD k=2",
            Self::Mad35 => "MAD k=3.5",
            Self::ThreeSigma => "mean+3 sigma",
            Self::RelativeScore => "score < 0.75",
            Self::LeastPhase => "least phase 10 %",
            Self::WaitRatio => "ratio < 0.10",
            Self::TwiceMedian => "time > 2x median",
            Self::TopTwo => "top-2",
        }
    }

    /// Returns the ranks of one communicator that the rule flags.
    pub fn flagged_ranks(self, cohort: &[RankWindow]) -> Vec<u32> {
        let pick = |holds: &dyn Fn(&RankWindow) -> bool| -> Vec<u32> {
            let picked = cohort.iter().filter(|seen| holds(seen));
            picked.map(|seen| seen.rank).collect()
        };
        let all = |of: fn(&RankWindow) -> f64| cohort.iter().map(of).collect::<Vec<f64>>();
        let late = all(|seen| seen.late);
        match self {
            Self::Mad2 => {
                let limit = mad_limit(&late, 2.0);
                pick(&|seen| seen.late > limit)
            }
            Self::Mad35 => {
                let limit = mad_limit(&late, 3.5);
                pick(&|seen| seen.late > limit)
            }
            Self::ThreeSigma => {
                let limit = sigma_limit(&late);
                pick(&|seen| seen.late > limit)
            }
            Self::RelativeScore => {
                let fastest = cohort
                    .iter()
                    .map(|seen| seen.own)
                    .fold(f64::INFINITY, f64::min);
                pick(&|seen| seen.own > 0.0 && fastest / seen.own < 0.75)
            }
            Self::LeastPhase => {
                let typical = median(&all(|seen| seen.wait)).unwrap_or(0.0);
                let least = cohort.iter().min_by(|a, b| a.wait.total_cmp(&b.wait));
                let far = least.filter(|seen| typical - seen.wait >= 0.1 * seen.period);
                far.map(|seen| seen.rank).into_iter().collect()
            }
            Self::WaitRatio => {
                let longest = cohort.iter().map(|seen| seen.wait).fold(0.0, f64::max);
                pick(&|seen| seen.wait < 0.1 * longest)
            }
            Self::TwiceMedian => {
                let typical = median(&all(|seen| seen.own)).unwrap_or(f64::INFINITY);
                pick(&|seen| seen.own > 2.0 * typical)
            }
            Self::TopTwo => {
                let mut order: Vec<&RankWindow> = cohort.iter().collect();
                order.sort_by(|a, b| b.late.total_cmp(&a.late));
                order.iter().take(2).map(|seen| seen.rank).collect()
            }
        }
    }
}

/// A limit without data is never exceeded.
fn mad_limit(late: &[f64], k: f64) -> f64 {
    match (median(late), mad(late)) {
        (Some(center), Some(deviation)) => (k * MAD_TO_SIGMA).mul_add(deviation, center),
        _ => f64::INFINITY,
    }
}

fn sigma_limit(late: &[f64]) -> f64 {
    let Some(center) = mean(late) else {
        return f64::INFINITY;
    };
    let squares: Vec<f64> = late.iter().map(|value| (value - center).powi(2)).collect();
    let sigma = mean(&squares).unwrap_or(0.0).sqrt();
    3.0_f64.mul_add(sigma, center)
}
