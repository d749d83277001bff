use echo_core::model::detector_output::Baseline;

use super::{Scale, confidence};
use crate::baseline::Scatter;
use crate::lag::rank_order::RankPlace;
use crate::lag::{Lag, Lags};
use crate::settings::Settings;
use crate::verdict::{Evidence, WindowKind, tests};

fn lags(means: &[f64]) -> Lags {
    let mut lags = tests::lags(means);
    for lag in &mut lags.ranks {
        lag.error_ms = None;
    }
    lags
}

fn evidence(lags: &Lags, n_usual: Option<usize>) -> Evidence<'_> {
    Evidence {
        lags: Some(lags),
        period_ms: 58.0,
        steady_period_ms: 58.0,
        healthy_ms: Some(50.0),
        usual: n_usual.map(|n_lags| Scatter {
            sigma_ms: 1.0,
            n_lags,
        }),
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

fn significant(means: &[f64], settings: &Settings) -> Vec<usize> {
    let lags = lags(means);
    let scale = Scale::from_lags(&lags, &evidence(&lags, Some(100_000)), settings);
    let late = (0..means.len()).filter(|index| scale.is_significant(&lags.ranks[*index]));
    late.collect()
}

/// Noise of 16 ranks, milliseconds; its scatter is near 1.
const NOISE: [f64; 16] = [
    0.0, 1.0, -1.0, 0.5, -0.5, 0.7, -0.7, 1.2, -1.2, 0.3, -0.3, 0.9, -0.9, 0.1, -0.1, 0.2,
];

#[test]
fn a_scale_estimated_from_few_lags_requires_a_larger_lag() {
    let lags = lags(&NOISE);
    let critical =
        |n| Scale::from_lags(&lags, &evidence(&lags, Some(n)), &Settings::default()).critical_z;
    assert!(critical(20) > 2.0 * critical(100_000));
    assert!(critical(100) > critical(1_000) && critical(1_000) > critical(100_000));
}

#[test]
fn a_cold_start_requires_a_larger_lag_than_a_history() {
    let lags = lags(&NOISE);
    let critical =
        |n| Scale::from_lags(&lags, &evidence(&lags, n), &Settings::default()).critical_z;
    assert!(critical(None) > 1.5 * critical(Some(1_000)));
}

#[test]
fn more_ranks_in_the_job_require_a_larger_lag() {
    let lags = lags(&NOISE);
    let critical = |n_tests| {
        let evidence = Evidence {
            n_tests,
            ..evidence(&lags, Some(100_000))
        };
        Scale::from_lags(&lags, &evidence, &Settings::default()).critical_z
    };
    assert!((critical(16) - 4.37).abs() < 0.02, "{}", critical(16));
    assert!(
        (critical(10_240) - 5.62).abs() < 0.02,
        "{}",
        critical(10_240)
    );
}

#[test]
fn the_history_of_a_cohort_is_its_scale() {
    let lags = lags(&[0.0; 16]);
    let scale = |n| Scale::from_lags(&lags, &evidence(&lags, n), &Settings::default()).sigma_ms;
    assert!((scale(Some(1_000)) - 1.0).abs() < 0.02);
    assert!(scale(None) < 0.2);
}

#[test]
fn several_late_ranks_are_significant_together_where_one_alone_is_not() {
    // The rate is so small that it decides, not the family-wise error.
    let strict = Settings {
        family_alpha: 0.5,
        discovery_rate: 1e-5,
        ..Settings::default()
    };
    let mut means = NOISE;
    means[3] = 4.6;
    assert!(significant(&means, &strict).is_empty());
    for (late, ms) in [(3, 4.6), (5, 4.7), (8, 4.8), (12, 4.9), (14, 5.0)] {
        means[late] = ms;
    }
    assert_eq!(significant(&means, &strict), [3, 5, 8, 12, 14]);
}

#[test]
fn few_ranks_without_a_history_are_distinguished_by_rank_order() {
    let means = [0.0, 0.1, 8.0];
    let found = |z: Option<f64>| {
        let mut lags = lags(&means);
        lags.ranks[2].place = z.map(|z| RankPlace {
            z,
            rounds: 9.0,
            last_share: 1.0,
        });
        let scale = Scale::from_lags(&lags, &evidence(&lags, None), &Settings::default());
        scale.is_significant(&lags.ranks[2])
    };
    assert!(!found(Some(2.9)) && found(Some(3.2)));
}

#[test]
fn rank_order_is_ignored_with_a_history() {
    let mut lags = lags(&[0.0, 0.1, 8.0]);
    lags.ranks[2].place = Some(RankPlace {
        z: 0.0,
        rounds: 9.0,
        last_share: 0.3,
    });
    let scale = Scale::from_lags(&lags, &evidence(&lags, Some(1_000)), &Settings::default());
    assert!(scale.is_significant(&lags.ranks[2]));
}

#[test]
fn irregular_peers_widen_the_scale_and_an_irregular_candidate_does_not() {
    let sigma = |candidate: f64, peers: f64| {
        let mut lags = lags(&NOISE);
        for lag in &mut lags.ranks {
            lag.error_ms = Some(peers);
        }
        lags.ranks[3].error_ms = Some(candidate);
        Scale::from_lags(&lags, &evidence(&lags, Some(1_000)), &Settings::default()).sigma_ms
    };
    assert!((sigma(9.0, 0.0) - sigma(0.0, 0.0)).abs() < 1e-9);
    assert!(sigma(0.0, 3.0) > 2.0 * sigma(0.0, 0.0));
}

#[test]
fn missing_ranks_missing_history_and_a_single_peer_lower_the_confidence() {
    let history = Baseline::History { period_ms: 50.0 };
    let none = Baseline::None { period_ms: 50.0 };
    let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(close(confidence(9.0, 1.0, &history, 8), 0.99));
    assert!(close(confidence(1.0, 1.0, &history, 8), 0.5));
    assert!(close(confidence(9.0, 0.8, &history, 8), 0.99 * 0.8));
    assert!(close(confidence(9.0, 1.0, &none, 8), 0.99 * 0.7));
    assert!(close(confidence(9.0, 1.0, &history, 2), 0.6));
}

#[test]
fn two_pauses_in_four_blocks_count_in_a_long_window_only() {
    let mut lags = lags(&NOISE);
    let paused = Lag {
        mean_ms: 10.0,
        steady_ms: 5.0,
        operations: 1.0,
        largest_at_one_ms: None,
        series: vec![20.0, 0.0, 20.0, 0.0],
        ..lags.ranks[3].clone()
    };
    lags.ranks[3] = paused.clone();
    let z = |window_kind| {
        let evidence = Evidence {
            window_kind,
            ..evidence(&lags, Some(1_000))
        };
        Scale::from_lags(&lags, &evidence, &Settings::default()).z(&paused)
    };
    assert!(z(WindowKind::Short).abs() < 1e-9);
    assert!(z(WindowKind::Long) > 9.0);
}

#[test]
fn a_tiny_difference_among_exact_ties_is_not_significant() {
    let mut means = [0.0; 16];
    means[3] = 0.1;
    let lags = lags(&means);
    let scale = Scale::from_lags(&lags, &evidence(&lags, None), &Settings::default());
    assert!(!scale.is_significant(&lags.ranks[3]));
}
