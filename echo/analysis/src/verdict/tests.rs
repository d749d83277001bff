use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use crate::baseline::Scatter;
use crate::lag::{Lag, Lags};
use crate::settings::Settings;
use crate::simulated::{Job, Measured};
use crate::verdict::{Doubt, Evidence, Verdict, WindowKind, decide};

/// Host gap lags, the same in each of four blocks.
pub(super) fn lags(means: &[f64]) -> Lags {
    let events = Job::with_ranks(1).events(1, |_, _| Measured::HEALTHY);
    let origin = &events[0].event.origin;
    let ranks = means.iter().zip(0..).map(|(mean_ms, rank)| Lag {
        rank: Rank::new(rank),
        origin: Arc::clone(origin),
        signal: Signal::HostGap,
        mean_ms: *mean_ms,
        steady_ms: *mean_ms,
        operations: 1.0,
        largest_at_one_ms: None,
        error_ms: Some(0.1),
        own_ms: None,
        waits_for_ms: None,
        place: None,
        series: vec![*mean_ms; 4],
    });
    Lags {
        signal: Signal::HostGap,
        ranks: ranks.collect(),
        center_ms: 4.0,
    }
}

fn evidence(lags: &Lags, period_ms: f64) -> Evidence<'_> {
    Evidence {
        lags: Some(lags),
        period_ms,
        steady_period_ms: period_ms,
        healthy_ms: Some(50.0),
        usual: None,
        coverage: 1.0,
        period_error_ms: None,
        transfers_are_slow: false,
        window_kind: WindowKind::Short,
        n_tests: lags.ranks.len(),
        rival_own_ms: 0.0,
        victim_lag_ms: 0.0,
        is_explained: false,
    }
}

fn verdict(evidence: &Evidence<'_>, settings: &Settings) -> Verdict {
    decide(evidence, settings).verdict
}

fn culprits(verdict: &Verdict) -> Vec<u32> {
    match verdict {
        Verdict::Culprits(candidates) => candidates
            .iter()
            .map(|candidate| candidate.lag.rank.value())
            .collect(),
        Verdict::Healthy | Verdict::Uniform | Verdict::Inconclusive(_) => Vec::new(),
    }
}

#[test]
fn identical_peers_do_not_divide_by_zero() {
    let lags = lags(&[0.0, 0.0, 0.0, 8.0]);
    assert_eq!(
        culprits(&verdict(&evidence(&lags, 58.0), &Settings::default())),
        [3]
    );
}

#[test]
fn two_stragglers_of_like_size_are_both_named() {
    let lags = lags(&[0.1, 8.0, -0.1, 7.0, 0.0, 0.2, -0.2, 0.1]);
    assert_eq!(
        culprits(&verdict(&evidence(&lags, 58.0), &Settings::default())),
        [1, 3]
    );
}

#[test]
fn a_small_lag_beside_a_large_one_is_not_named() {
    let lags = lags(&[0.1, 12.0, -0.1, 5.0, 0.0, 0.2, -0.2, 0.1]);
    assert_eq!(
        culprits(&verdict(&evidence(&lags, 62.0), &Settings::default())),
        [1]
    );
}

#[test]
fn a_lag_that_explains_little_of_the_damage_is_not_named() {
    let lags = lags(&[0.0, 3.0, 0.1, -0.1]);
    assert_eq!(
        verdict(&evidence(&lags, 62.0), &Settings::default()),
        Verdict::Uniform
    );
}

#[test]
fn a_late_rank_within_the_usual_scatter_is_not_named() {
    let lags = lags(&[-7.0, 8.0, 0.0, -6.0]);
    let noisy = Evidence {
        usual: Some(Scatter {
            sigma_ms: 6.0,
            n_lags: 1_000,
        }),
        ..evidence(&lags, 58.0)
    };
    let verdict = verdict(&noisy, &Settings::default());
    assert_eq!(verdict, Verdict::Inconclusive(Doubt::NotSignificant));
}

#[test]
fn a_job_without_signal_is_inconclusive_only_when_it_is_slow() {
    let nothing = lags(&[]);
    let slow = Evidence {
        lags: None,
        ..evidence(&nothing, 58.0)
    };
    assert_eq!(
        verdict(&slow, &Settings::default()),
        Verdict::Inconclusive(Doubt::NoSignal)
    );
    let fine = Evidence {
        lags: None,
        ..evidence(&nothing, 50.2)
    };
    assert_eq!(verdict(&fine, &Settings::default()), Verdict::Healthy);
}

proptest! {
    #[test]
    fn the_numbering_of_the_ranks_does_not_matter(
        means in proptest::collection::vec(-3.0..12.0_f64, 3..12),
    ) {
        let mut reversed = means.clone();
        reversed.reverse();
        let (there, back) = (lags(&means), lags(&reversed));
        let settings = Settings::default();
        let last = u32::try_from(means.len()).unwrap() - 1;
        let mut straight = culprits(&verdict(&evidence(&there, 58.0), &settings));
        let mut mirrored: Vec<u32> =
            culprits(&verdict(&evidence(&back, 58.0), &settings)).iter().map(|rank| last - rank).collect();
        straight.sort_unstable();
        mirrored.sort_unstable();
        prop_assert_eq!(straight, mirrored);
    }

    #[test]
    fn confidence_lies_between_0_and_1(
        means in proptest::collection::vec(-3.0..40.0_f64, 2..12),
        period_ms in 50.0..90.0_f64,
    ) {
        let lags = lags(&means);
        if let Verdict::Culprits(candidates) = verdict(&evidence(&lags, period_ms), &Settings::default()) {
            for candidate in candidates {
                prop_assert!((0.0..=1.0).contains(&candidate.confidence) && candidate.z.is_finite());
            }
        }
    }

    #[test]
    fn without_damage_no_rank_is_named(means in proptest::collection::vec(-30.0..30.0_f64, 2..12)) {
        let lags = lags(&means);
        prop_assert_eq!(verdict(&evidence(&lags, 50.5), &Settings::default()), Verdict::Healthy);
    }
}

#[test]
fn two_late_ranks_of_four_are_both_named() {
    let lags = lags(&[0.0, 8.0, 9.0, -0.1]);
    assert_eq!(
        culprits(&verdict(&evidence(&lags, 58.0), &Settings::default())),
        [2, 1]
    );
}

/// Device lags, each with the reduction of the rank's wait compared with its peers.
fn device_lags(ranks: &[(f64, f64)]) -> Lags {
    let means: Vec<f64> = ranks.iter().map(|(mean_ms, _)| *mean_ms).collect();
    let mut lags = lags(&means);
    lags.signal = Signal::DeviceWait;
    for (lag, (_, own_ms)) in lags.ranks.iter_mut().zip(ranks) {
        (lag.signal, lag.own_ms) = (Signal::DeviceWait, Some(*own_ms));
    }
    lags
}

#[test]
fn a_late_gpu_beside_a_much_later_one_of_another_role_is_its_victim() {
    let lags = device_lags(&[(0.0, 0.0), (0.1, 0.0), (8.0, 6.5), (-0.1, 0.0)]);
    let alone = evidence(&lags, 58.0);
    assert_eq!(culprits(&verdict(&alone, &Settings::default())), [2]);
    let beside = Evidence {
        rival_own_ms: 20.0,
        victim_lag_ms: 0.0,
        ..alone
    };
    let decision = decide(&beside, &Settings::default());
    assert_eq!(decision.verdict, Verdict::Healthy);
    assert_eq!(decision.victims, [Rank::new(2)]);
}

#[test]
fn a_late_gpu_that_waits_as_long_as_its_peers_is_no_root() {
    let lags = device_lags(&[(0.0, 0.0), (0.1, 0.0), (8.0, 0.2), (-0.1, 0.0)]);
    let verdict = verdict(&evidence(&lags, 58.0), &Settings::default());
    assert_eq!(verdict, Verdict::Inconclusive(Doubt::NoRoot));
}
