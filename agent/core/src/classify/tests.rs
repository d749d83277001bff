use proptest::prelude::*;

use super::*;
use crate::event::Op;
use crate::signal::{CommId, Role};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Time at which the policy of [`policy`] was computed, on the cohort's clock.
const COMPUTED: u64 = 1000 * SECOND;

/// Policy of a cohort with gaps of 4 ms in iterations of 50 ms, valid for a minute.
fn policy() -> CohortPolicy {
    CohortPolicy {
        signal: "host_gap".to_owned(),
        center_ms: 4.0,
        sigma_ms: 0.2,
        effect_gate: 0.05,
        critical_z: 3.5,
        period_ms: 50.0,
        quorum_met: true,
        valid_until_unix_nano: COMPUTED + MINUTE,
        ..CohortPolicy::default()
    }
}

/// Rank that is judged once per second, with four gaps in four iterations.
struct Rank {
    classifier: Classifier,
    seq: u64,
    now_ns: u64,
}

impl Rank {
    fn new() -> Self {
        Self {
            classifier: Classifier::default(),
            seq: 0,
            now_ns: COMPUTED,
        }
    }

    fn with(policy: &CohortPolicy) -> Self {
        let mut rank = Self::new();
        rank.set_policy(policy);
        rank
    }

    fn set_policy(&mut self, policy: &CohortPolicy) {
        self.classifier.set_policy(7, COMPUTED, policy, self.now_ns);
    }

    fn block(&mut self, gap_ms: f64) -> Option<SelfVerdict> {
        self.block_of(4, gap_ms)
    }

    fn block_of(&mut self, n_gaps: u32, gap_ms: f64) -> Option<SelfVerdict> {
        self.short_block(n_gaps, gap_ms, 4.0)
    }

    fn short_block(&mut self, n_gaps: u32, gap_ms: f64, iterations: f64) -> Option<SelfVerdict> {
        let block = Block {
            comm: CommId::new(1),
            comm_rank: 0,
            comm_nranks: 4,
            source: crate::signal::Source::Host,
            op: Op::AllReduce,
            seq_first: self.seq,
            seq_last: self.seq + 31,
            iterations: Some(iterations),
            role: Some(Role::new(9)),
        };
        self.seq += 32;
        self.now_ns += SECOND;
        let mut gaps = Summary::default();
        for _ in 0..n_gaps {
            gaps.add(gap_ms);
        }
        self.classifier.record_period(50.0);
        self.classifier.judge(&block, &gaps, self.now_ns)
    }

    fn blocks(&mut self, gaps_ms: &[f64]) -> Vec<(State, Mode)> {
        let verdicts = gaps_ms.iter().filter_map(|gap_ms| self.block(*gap_ms));
        verdicts
            .map(|verdict| (verdict.state, verdict.mode))
            .collect()
    }

    /// Fills its own healthy history: gaps around 6 ms, which would be late in the cohort.
    fn fill_history(&mut self) {
        for at in 0..20 {
            self.block(6.0 + f64::from(at % 5) * 0.1);
        }
    }
}

#[test]
fn two_late_blocks_in_a_row_raise_and_three_on_time_clear() {
    let mut rank = Rank::with(&policy());
    assert_eq!(rank.blocks(&[4.0, 12.0, 4.0, 12.0]), []);
    assert_eq!(rank.blocks(&[12.0, 12.0]), [(State::Raised, Mode::Fleet)]);
    assert_eq!(rank.blocks(&[4.0, 4.0, 12.0, 4.0, 4.0]), []);
    assert_eq!(rank.blocks(&[4.0, 4.0]), [(State::Cleared, Mode::Fleet)]);
}

#[test]
fn a_verdict_contains_its_measure_and_policy_version() {
    let mut rank = Rank::with(&policy());
    rank.block(12.0);
    let verdict = rank.block(12.0).unwrap();
    let measure = verdict.measure.unwrap();
    assert!((measure.lag_ms - 8.0).abs() < 1e-9);
    assert!((measure.z - 40.0).abs() < 1e-9);
    assert!((measure.effect_ratio - 0.16).abs() < 1e-9);
    assert_eq!(verdict.policy_version, Some(7));
    assert_eq!((verdict.block.seq_first, verdict.block.seq_last), (32, 63));
    assert_eq!(verdict.time_ns, rank.now_ns);
}

#[test]
fn lateness_must_be_significant_and_large() {
    // 2.4 ms are 12 sigma, but less than 5 % of an iteration.
    let mut rank = Rank::with(&policy());
    assert_eq!(rank.blocks(&[6.4; 10]), []);
    // 8 ms are 16 % of an iteration, but within the scatter of this cohort.
    let noisy = CohortPolicy {
        sigma_ms: 4.0,
        ..policy()
    };
    assert_eq!(Rank::with(&noisy).blocks(&[12.0; 10]), []);
    // A rank that is ahead is never late.
    assert_eq!(Rank::with(&policy()).blocks(&[0.0; 10]), []);
}

#[test]
fn a_borderline_block_does_not_change_the_verdict() {
    let mut rank = Rank::with(&policy());
    rank.blocks(&[12.0, 12.0]);
    // 2 ms: less than the gate of 2.5 ms and more than half of it.
    assert_eq!(rank.blocks(&[6.0; 10]), []);
    assert_eq!(rank.blocks(&[5.0; 3]), [(State::Cleared, Mode::Fleet)]);
}

#[test]
fn an_expired_policy_is_used_and_reported_as_stale() {
    let mut rank = Rank::with(&policy());
    rank.blocks(&[12.0, 12.0]);
    let mut verdicts = Vec::new();
    while rank.now_ns < COMPUTED + 5 * MINUTE - SECOND {
        verdicts.extend(rank.blocks(&[12.0]));
    }
    assert_eq!(verdicts, [(State::Raised, Mode::Stale)]);
    let stale = rank.classifier.tallies()[&Mode::Stale];
    assert_eq!((stale.raised, stale.blocks), (1, 239));
}

#[test]
fn a_policy_that_is_too_old_is_replaced_by_the_own_history() {
    let mut rank = Rank::with(&policy());
    for _ in 0..30 {
        rank.block(4.0);
    }
    rank.now_ns = COMPUTED + 5 * MINUTE;
    assert_eq!(rank.blocks(&[12.0, 12.0]), [(State::Raised, Mode::Local)]);
}

#[test]
fn the_own_history_is_a_reference_after_twenty_healthy_blocks() {
    let mut rank = Rank::new();
    for _ in 0..19 {
        rank.block(6.0);
    }
    assert_eq!(rank.block(20.0), None);
    assert_eq!(rank.classifier.tallies()[&Mode::None].blocks, 20);
    let mut rank = Rank::new();
    rank.fill_history();
    assert_eq!(
        rank.blocks(&[6.2, 14.0, 14.0]),
        [(State::Raised, Mode::Local)]
    );
    assert_eq!(rank.blocks(&[6.2; 3]), [(State::Cleared, Mode::Local)]);
}

#[test]
fn late_blocks_do_not_become_the_reference() {
    let mut rank = Rank::new();
    rank.fill_history();
    assert_eq!(rank.blocks(&[14.0; 300]), [(State::Raised, Mode::Local)]);
    let verdict = rank.blocks(&[6.2; 3]);
    assert_eq!(verdict, [(State::Cleared, Mode::Local)]);
}

#[test]
fn without_a_quorum_a_rank_has_only_its_own_history() {
    let lost = CohortPolicy {
        quorum_met: false,
        ..policy()
    };
    let mut rank = Rank::with(&lost);
    // 6 ms would be late in the cohort, but is usual for this rank.
    rank.fill_history();
    assert_eq!(rank.blocks(&[6.2; 10]), []);
    let verdicts = rank.blocks(&[14.0, 14.0]);
    assert_eq!(verdicts, [(State::Raised, Mode::Local)]);
}

#[test]
fn a_verdict_without_a_reference_is_cleared() {
    let mut rank = Rank::with(&policy());
    rank.blocks(&[12.0, 12.0]);
    rank.now_ns += 10 * MINUTE;
    let verdicts = rank.blocks(&[12.0; 3]);
    assert_eq!(
        verdicts,
        [(State::Raised, Mode::None), (State::Cleared, Mode::None)]
    );
    assert_eq!(rank.block(12.0), None);
}

#[test]
fn the_policy_of_another_cohort_is_discarded() {
    let of = |cohort: &str| CohortPolicy {
        cohort: cohort.to_owned(),
        ..policy()
    };
    // The process changes its program, for which the collector has no policy yet.
    let mut rank = Rank::with(&of("job/a"));
    rank.classifier.set_cohort(Some("job/a"));
    assert_eq!(rank.blocks(&[4.0]), []);
    for gone in [Some("job/b"), None] {
        rank.set_policy(&of("job/a"));
        rank.classifier.set_cohort(gone);
        assert_eq!(rank.blocks(&[12.0; 5]), []);
    }
    assert_eq!(rank.classifier.tallies()[&Mode::None].blocks, 10);
    // One set contains both cohorts.
    let lenient = CohortPolicy {
        center_ms: 12.0,
        ..of("job/b")
    };
    rank.set_policy(&of("job/a"));
    rank.classifier.set_cohort(Some("job/b"));
    rank.set_policy(&lenient);
    assert_eq!(rank.blocks(&[12.0; 5]), []);
    assert_eq!(rank.classifier.tallies()[&Mode::Fleet].blocks, 6);
}

#[test]
fn a_cohort_that_is_judged_by_arrivals_is_not_judged_alone() {
    let arrivals = CohortPolicy {
        signal: "arrival".to_owned(),
        ..policy()
    };
    let mut rank = Rank::with(&arrivals);
    rank.fill_history();
    assert_eq!(rank.blocks(&[50.0; 10]), []);
    assert_eq!(
        rank.classifier.tallies().keys().collect::<Vec<_>>(),
        [&Mode::None]
    );
}

#[test]
fn blocks_of_less_than_an_iteration_are_judged_together() {
    let mut rank = Rank::with(&policy());
    let late = |rank: &mut Rank| rank.short_block(1, 12.0, 1.0);
    // A stall shared by two blocks counts once.
    assert_eq!((late(&mut rank), late(&mut rank)), (None, None));
    assert_eq!(late(&mut rank), None);
    let verdict = late(&mut rank).unwrap();
    assert_eq!((verdict.block.seq_first, verdict.block.seq_last), (64, 127));
    assert_eq!(rank.classifier.tallies()[&Mode::Fleet].blocks, 2);
}

#[test]
fn a_job_that_rarely_synchronizes_is_not_judged() {
    let mut rank = Rank::with(&policy());
    for _ in 0..10 {
        assert_eq!(rank.block_of(1, 50.0), None);
        assert_eq!(rank.block_of(0, 0.0), None);
    }
    assert!(rank.classifier.tallies().is_empty());
}

#[test]
fn one_gap_more_or_less_in_a_block_is_not_lateness() {
    let mut rank = Rank::with(&CohortPolicy {
        center_ms: 20.0,
        ..policy()
    });
    for _ in 0..20 {
        rank.block(20.0);
    }
    for _ in 0..10 {
        assert_eq!(rank.block_of(5, 20.0), None);
        assert_eq!(rank.block_of(3, 20.0), None);
    }
}

#[test]
fn a_wrong_clock_does_not_change_verdicts() {
    for wrong_ns in [-(900 * i128::from(SECOND)), 7200 * i128::from(SECOND)] {
        let mut rank = Rank::new();
        rank.now_ns = u64::try_from(i128::from(COMPUTED) + wrong_ns).unwrap();
        rank.set_policy(&policy());
        assert_eq!(rank.blocks(&[12.0; 59]), [(State::Raised, Mode::Fleet)]);
        assert_eq!(rank.blocks(&[12.0; 5]), [(State::Raised, Mode::Stale)]);
    }
}

#[test]
fn the_age_of_a_delayed_policy_includes_its_delay() {
    let mut rank = Rank::with(&policy());
    rank.now_ns += 40 * SECOND;
    // Computed 10 s after the first one, and in transit for 30 s.
    let computed_ns = COMPUTED + 10 * SECOND;
    let late = CohortPolicy {
        valid_until_unix_nano: computed_ns + MINUTE,
        ..policy()
    };
    rank.classifier
        .set_policy(8, computed_ns, &late, rank.now_ns);
    assert_eq!(rank.blocks(&[12.0; 29]), [(State::Raised, Mode::Fleet)]);
    assert_eq!(rank.blocks(&[12.0; 5]), [(State::Raised, Mode::Stale)]);
}

#[test]
fn a_repeated_policy_is_not_renewed() {
    let mut rank = Rank::with(&policy());
    rank.blocks(&[12.0; 59]);
    rank.set_policy(&policy());
    assert_eq!(rank.blocks(&[12.0; 5]), [(State::Raised, Mode::Stale)]);
}

#[test]
fn implausible_numbers_are_not_used() {
    for broken in [
        CohortPolicy {
            center_ms: f64::NAN,
            ..policy()
        },
        CohortPolicy {
            sigma_ms: f64::INFINITY,
            ..policy()
        },
        CohortPolicy {
            critical_z: 0.0,
            ..policy()
        },
        CohortPolicy {
            effect_gate: f64::NAN,
            ..policy()
        },
    ] {
        let mut rank = Rank::with(&broken);
        assert_eq!(rank.blocks(&[12.0; 5]), []);
    }
    // Without scatter and period, the floor and the own period are used.
    let exact = CohortPolicy {
        sigma_ms: 0.0,
        period_ms: 0.0,
        ..policy()
    };
    let mut rank = Rank::with(&exact);
    assert_eq!(rank.blocks(&[4.1; 10]), []);
    assert_eq!(rank.blocks(&[12.0; 5]), [(State::Raised, Mode::Fleet)]);
}

proptest! {
    #[test]
    fn raised_and_cleared_take_turns_whatever_comes(
        gaps in prop::collection::vec(prop_oneof![0.0..30.0_f64, Just(f64::NAN), Just(f64::INFINITY)], 0..50),
        with_policy: bool,
    ) {
        let mut rank = if with_policy { Rank::with(&policy()) } else { Rank::new() };
        let mut state = State::Cleared;
        for gap_ms in gaps {
            if let Some(verdict) = rank.block(gap_ms) {
                prop_assert_ne!(verdict.state, state);
                state = verdict.state;
                let measure = verdict.measure.unwrap();
                prop_assert!(measure.z.is_finite() && measure.lag_ms.is_finite());
            }
        }
    }
}
