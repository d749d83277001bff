//! Ranks whose GPUs have nothing queued, by the leads of all ranks: beside the law, where that is
//! blind.

use echo_core::model::event::Source;
use echo_core::stats::median;

use crate::straggler::queues::LEAST_AHEAD;
use crate::straggler::rule::Rule;
use crate::straggler::usual::UsualFlow;

/// Where most waiting is seen, a queue is dry if those of all others have grown to so many times their
/// usual leads: those of hosts that are all slow fall.
const FULL: f64 = 2.0;

/// Least fall of the shortest queue that tells something, seconds, beside that of `LEAST_AHEAD` operations:
/// several times what clocks drift apart in a minute.
const LEAST_FALL_S: f64 = 5e-3;

/// Those of the others have fallen by less than this share of it.
const AS_LONG: f64 = 0.2;

/// The transfers of a rank that waits last so many times as long as usual.
const LONGER: f64 = 1.3;

/// Growth of the other queues beyond which theirs is no scale any more: a late host has at most its
/// usual lead.
const MOST_COMMON: f64 = 2.0;

/// Least lateness of a host in an evaluation, as a share of what is remembered, for the loss to be
/// that of its rank.
const LEAST_LATEST: f64 = 0.5;

/// Leads of all ranks, seconds; NaN if unknown.
#[derive(Debug)]
pub(super) struct Leads<'a> {
    pub(super) source: Source,
    /// Of the latest evaluation.
    pub(super) latest: &'a [f64],
    /// Means over the recent loss.
    pub(super) recent: Vec<f64>,
    /// Means of the smallest leads over the recent loss, seconds; NaN if unknown.
    pub(super) lows: Vec<f64>,
    /// Usual time between two operations, seconds.
    pub(super) step: f64,
    /// Mean durations of transfers over the recent loss, seconds; NaN if unknown.
    pub(super) transfers: Vec<f64>,
    /// Those of the past.
    pub(super) usual: &'a [UsualFlow],
    /// Share of the time that is lost.
    pub(super) loss: f64,
}

impl Leads<'_> {
    /// The rank with nothing queued, if there is one. With transfers the law is blind for most waiting;
    /// without, `is_telling` says that queues tell something.
    pub(super) fn dry(
        &self,
        (has_transfers, is_telling): (bool, bool),
        rule: &Rule,
    ) -> Option<usize> {
        match self.source {
            Source::Device if has_transfers => {
                let by_lead = || {
                    low_rank(
                        &self.recent,
                        self.usual,
                        |usual| usual.lead,
                        (rule.wet, rule),
                    )
                };
                let dry = self.runs_dry().or_else(by_lead);
                dry.or_else(|| self.waits_no_more(rule))
            }
            Source::Device if is_telling => {
                low_rank(&self.recent, self.usual, |usual| usual.lead, (FULL, rule))
            }
            Source::Host if !has_transfers => late_host(&self.recent, self.usual, self.loss, rule),
            _ => None,
        }
    }

    /// The one rank whose shortest queue is much shorter than usual while those of the others are as they were: its
    /// GPU has nothing to do again and again. It shows a host that loses a few per cent.
    pub(super) fn runs_dry(&self) -> Option<usize> {
        let falls = self.lows.iter().zip(self.usual);
        let falls: Vec<f64> = falls.map(|(now, usual)| usual.low - now).collect();
        // An unknown one is the largest.
        let largest = falls.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let (rank, fall) = largest?;
        let mut others = falls.iter().enumerate().filter(|(other, _)| *other != rank);
        let are_as_long = others.all(|(_, other)| *other < AS_LONG * fall);
        (*fall >= LEAST_FALL_S.max(LEAST_AHEAD * self.step) && are_as_long).then_some(rank)
    }

    /// The one rank whose transfers are much shorter than those of all others, which have become longer, each
    /// compared with its past: its GPU comes late to them, and the others wait. Only those that are not
    /// grouped contain the waiting, so this tells who, but not how long.
    fn waits_no_more(&self, rule: &Rule) -> Option<usize> {
        let transfer = |usual: &UsualFlow| usual.transfer;
        let mut now = self.transfers.iter().zip(self.usual);
        if !now.all(|(now, usual)| now.is_finite() || !usual.transfer.is_finite()) {
            return None;
        }
        low_rank(&self.transfers, self.usual, transfer, (LONGER, rule))
    }

    /// Time by which a rank's host enqueues later than it used to, seconds; 0 where GPUs are timed.
    pub(super) fn late(&self, rank: usize) -> f64 {
        self.lateness(rank, self.latest)
    }

    /// Share of the latest loss for which a rank with nothing queued counts, 0 to 1: after a fault
    /// its queue is remembered for a while.
    pub(super) fn weight(&self, rank: usize) -> f64 {
        let share = self.late(rank) / self.lateness(rank, &self.recent);
        match self.source {
            Source::Host if share < LEAST_LATEST => 0.0,
            Source::Host => share.min(1.0),
            Source::Device => 1.0,
        }
    }

    fn lateness(&self, rank: usize, leads: &[f64]) -> f64 {
        match (self.source, self.usual.get(rank).zip(leads.get(rank))) {
            (Source::Host, Some((usual, lead))) => usual.lead - lead,
            _ => 0.0,
        }
    }
}

/// The one rank whose queue is dry while that of every other rank is at least `wet` times as long as
/// usual. The GPU times of a grouped send and receive do not contain the waiting, so the law is blind
/// in pipelines and for a part of the waiting in a mixture of experts. `of_past` is the usual value of
/// what is compared.
fn low_rank(
    now: &[f64],
    usual: &[UsualFlow],
    of_past: impl Fn(&UsualFlow) -> f64,
    (wet, rule): (f64, &Rule),
) -> Option<usize> {
    let ratio = |(now, usual): (&f64, &UsualFlow)| now / of_past(usual);
    let ratios: Vec<f64> = now.iter().zip(usual).map(ratio).collect();
    let known = ratios
        .iter()
        .enumerate()
        .filter(|(_, ratio)| ratio.is_finite());
    let (rank, own) = known.clone().min_by(|a, b| a.1.total_cmp(b.1))?;
    let others: Vec<f64> = known
        .filter(|(other, _)| *other != rank)
        .map(|(_, ratio)| *ratio)
        .collect();
    // The longer the other queues are, the less of their length is usual for a host that waits.
    let common = median(&others)?.clamp(1.0, MOST_COMMON);
    let are_wet = others.iter().all(|ratio| *ratio >= wet);
    (*own < rule.dry * common && are_wet).then_some(rank)
}

/// The one rank that enqueues later than it used to, by much more than any other, where GPUs are not
/// timed. The hosts of the others are as far ahead as their queues allow, whether they wait or not.
/// Where everybody is slower, so are the operations by which they are ahead: `loss` is the share of
/// the time that is lost.
fn late_host(leads: &[f64], usual: &[UsualFlow], loss: f64, rule: &Rule) -> Option<usize> {
    let late = leads
        .iter()
        .zip(usual)
        .map(|(lead, usual)| usual.lead - lead);
    let mut late: Vec<(usize, f64)> = late.enumerate().collect();
    late.retain(|(_, late)| late.is_finite());
    late.sort_by(|a, b| b.1.total_cmp(&a.1));
    let [(rank, first), (_, second), ..] = late[..] else {
        return None;
    };
    let sigma = usual.get(rank)?.lead_sigma / (1.0 - loss);
    let is_late = first >= rule.late_sigmas * sigma && first >= rule.least_late_s;
    (is_late && first >= rule.late_root * second).then_some(rank)
}

#[cfg(test)]
mod tests {
    use echo_core::model::event::Source;

    use super::Leads;
    use crate::straggler::rule::Rule;
    use crate::straggler::usual::UsualFlow;

    const USUAL: UsualFlow = UsualFlow {
        net: 0.0,
        peer: 0.0,
        sigma: 0.0,
        lead: 0.02,
        low: f64::NAN,
        lead_sigma: 0.01,
        transfer: f64::NAN,
    };

    fn leads(source: Source, own: [f64; 4]) -> Leads<'static> {
        Leads {
            source,
            latest: &[0.02; 4],
            recent: own.to_vec(),
            lows: vec![f64::NAN; 4],
            step: 0.004,
            transfers: Vec::new(),
            usual: &[USUAL; 4],
            loss: 0.5,
        }
    }

    fn dry(source: Source, own: [f64; 4], has_transfers: bool) -> Option<usize> {
        leads(source, own).dry((has_transfers, !has_transfers), &Rule::default())
    }

    #[test]
    fn where_the_law_is_blind_a_dry_queue_beside_usual_ones_names_the_rank() {
        let own = [0.03, 0.009, 0.02, 0.04];
        assert_eq!(dry(Source::Device, own, true), Some(1));
        assert_eq!(dry(Source::Device, own, false), None);
    }

    #[test]
    fn the_rank_whose_queue_alone_becomes_much_shorter_at_its_shortest_is_named() {
        // An offset says nothing.
        let usual = [3.01, 0.01, 0.01, -3.01];
        let usual = usual.map(|low| UsualFlow { low, ..USUAL });
        let named = |lows: [f64; 4]| {
            let leads = Leads {
                lows: lows.to_vec(),
                usual: &usual,
                ..leads(Source::Device, [0.02, 0.015, 0.02, 0.02])
            };
            leads.dry((true, false), &Rule::default())
        };
        assert_eq!(named([3.01, 0.001, 0.01, -3.008]), Some(1));
        assert_eq!(named([3.001, 0.001, 0.01, -3.008]), None);
        assert_eq!(named([3.01, 0.003, 0.01, -3.008]), None);
        assert_eq!(named([3.01, 0.001, 0.01, f64::NAN]), None);
    }

    #[test]
    fn where_it_is_not_the_queues_of_all_others_must_have_doubled() {
        let own = [0.05, 0.018, 0.06, 0.041];
        assert_eq!(dry(Source::Device, own, false), Some(1));
        assert_eq!(dry(Source::Device, [0.05, 0.018, 0.06, 0.03], false), None);
        assert_eq!(dry(Source::Device, [0.05, 0.03, 0.06, 0.041], false), None);
    }

    #[test]
    fn the_rank_whose_transfers_wait_no_more_is_named_if_those_of_all_others_last_longer() {
        let usual = [UsualFlow {
            transfer: 0.002,
            ..USUAL
        }; 4];
        let named = |transfers: [f64; 4]| {
            let leads = Leads {
                transfers: transfers.to_vec(),
                usual: &usual,
                ..leads(Source::Device, [0.02; 4])
            };
            leads.dry((true, false), &Rule::default())
        };
        assert_eq!(named([0.005, 0.0001, 0.004, 0.006]), Some(1));
        assert_eq!(named([0.005, 0.0001, 0.002, 0.006]), None);
        assert_eq!(named([0.005, 0.005, 0.004, 0.006]), None);
        // Of a rank that reports no transfers it is not known.
        assert_eq!(named([0.005, 0.0001, f64::NAN, 0.006]), None);
    }

    #[test]
    fn a_host_is_late_beyond_the_usual_wander_and_much_more_than_any_other() {
        // Half of the time is lost, so the usual wander of 10 ms is one of 20 ms.
        assert_eq!(dry(Source::Host, [0.02, -0.03, 0.02, 0.01], false), Some(1));
        assert_eq!(dry(Source::Host, [0.02, -0.01, 0.02, 0.02], false), None);
        assert_eq!(dry(Source::Host, [0.02, -0.03, 0.02, 0.0], false), None);
        assert_eq!(dry(Source::Host, [0.02, -0.03, 0.02, 0.01], true), None);
    }

    #[test]
    fn a_host_that_is_late_no_more_does_not_count() {
        let over = leads(Source::Host, [0.02, -0.03, 0.02, 0.01]);
        assert!(over.weight(1) < 1e-12);
        let still = Leads {
            latest: &[0.02, -0.02, 0.02, 0.02],
            ..over
        };
        assert!((still.weight(1) - 0.8).abs() < 1e-12);
    }
}
