//! Class of a cause, by evidence. It explains a finding and never decides it.

use std::collections::BTreeMap;

use echo_core::stats::median;

use crate::straggler::usual::Loss;

/// Class of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The host is late: the rank's GPU has nothing queued, while the queues of all others grow.
    Host,
    /// The GPU is late: it works longer between operations, and the leads stay alike.
    Device,
    /// The operations themselves take longer, and no rank is late.
    Network,
    /// The evidence does not tell.
    Unknown,
}

/// Growth of the shortest operations above which transfers are slow. Their spread in the recorded
/// healthy jobs is below 15 %.
const SLOW_TRANSFER: f64 = 1.25;

/// A queue is dry if its lead is below this share of the others', both compared with the past.
const DRY: f64 = 0.5;

/// A queue is like the others' from this share on, up to `1 / DRY`. Otherwise the evidence does not
/// tell: that of a GPU is never much longer than those of the ranks that wait for it, but the times
/// of operations that a host without CPU time reads too late are those of later operations.
const ALIKE: f64 = 0.75;

/// Class of a named rank by the leads of all ranks during the loss and the usual ones (seconds, NaN
/// if unknown).
pub(super) fn of_rank(rank: usize, leads: &[f64], usual: &[f64]) -> Class {
    let growth = leads.iter().zip(usual).map(|(lead, usual)| lead / usual);
    let growth: Vec<f64> = growth.collect();
    let known = growth.iter().enumerate();
    let others: Vec<f64> = known
        .filter(|(other, growth)| *other != rank && growth.is_finite())
        .map(|(_, growth)| *growth)
        .collect();
    let own = growth.get(rank).filter(|growth| growth.is_finite());
    match (own, median(&others)) {
        (Some(own), Some(others)) if *own < DRY * others => Class::Host,
        (Some(own), Some(others)) if (ALIKE..=1.0 / DRY).contains(&(own / others)) => Class::Device,
        _ => Class::Unknown,
    }
}

/// Class of a named rank whose job usually synchronises hosts and GPUs so often that no host runs
/// ahead, by the leads of all ranks during the loss and the usual ones (seconds, NaN if unknown). Its
/// host is late if its lead fell below half of the usual one while those of the others at least
/// doubled and reached `ahead` seconds. Otherwise the class is unknown: the lead of a late GPU is hardly
/// longer than usual in such a job.
pub(super) fn of_synchronised(rank: usize, leads: &[f64], usual: &[f64], ahead: f64) -> Class {
    let queues = leads.iter().zip(usual);
    let queues: Vec<(f64, f64)> = queues.map(|(lead, usual)| (*lead, lead / usual)).collect();
    let others = queues.iter().enumerate();
    let others = others.filter(|(other, (_, growth))| *other != rank && growth.is_finite());
    let (others, growths): (Vec<f64>, Vec<f64>) = others.map(|(_, queue)| *queue).unzip();
    let have_grown = median(&growths).is_some_and(|growth| growth > 1.0 / DRY);
    let are_ahead = median(&others).is_some_and(|lead| lead >= ahead);
    let is_dry = queues.get(rank).is_some_and(|(_, growth)| *growth < DRY);
    if is_dry && are_ahead && have_grown {
        Class::Host
    } else {
        Class::Unknown
    }
}

/// Lost time by class of its evidence; the class with most of it is that of the incident.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassVotes(BTreeMap<Class, f64>);

impl ClassVotes {
    /// Adds lost time of one class, seconds.
    pub(super) fn add(&mut self, class: Class, lost_s: f64) {
        *self.0.entry(class).or_default() += lost_s;
    }

    /// The class with most lost time.
    pub(super) fn class(&self) -> Class {
        let most = self.0.iter().max_by(|a, b| a.1.total_cmp(b.1));
        most.map_or(Class::Unknown, |(class, _)| *class)
    }
}

/// Class of a loss that no rank explains: the network if transfers cover the share `explain` of it
/// and the shortest operations grew.
pub(super) fn of_uniform(loss: Loss, explain: f64) -> Class {
    if loss.transfer >= explain * loss.share && loss.growth >= SLOW_TRANSFER {
        Class::Network
    } else {
        Class::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, ClassVotes, of_rank, of_synchronised, of_uniform};
    use crate::straggler::usual::Loss;

    #[test]
    fn a_queue_that_runs_dry_while_the_others_fill_is_a_late_host_where_nobody_ran_ahead() {
        let usual = [1.2e-3, 1.0e-3, 1.1e-3];
        let of = |leads: [f64; 3]| of_synchronised(1, &leads, &usual, 4e-3);
        assert_eq!(of([73e-3, 0.2e-3, 70e-3]), Class::Host);
        assert_eq!(
            of([73e-3, 0.9e-3, 70e-3]),
            Class::Unknown,
            "its own queue is as usual"
        );
        assert_eq!(
            of([3e-3, 0.2e-3, 3e-3]),
            Class::Unknown,
            "the others are not ahead"
        );
        assert_eq!(of([f64::NAN; 3]), Class::Unknown);
    }

    #[test]
    fn a_dry_queue_beside_full_ones_is_a_late_host_and_alike_ones_a_late_device() {
        let usual = [0.02, 0.02, 0.02];
        assert_eq!(of_rank(1, &[0.06, 0.001, 0.07], &usual), Class::Host);
        assert_eq!(of_rank(1, &[0.06, 0.05, 0.07], &usual), Class::Device);
        assert_eq!(of_rank(1, &[0.06, 0.04, 0.07], &usual), Class::Unknown);
        assert_eq!(of_rank(1, &[0.06, 6.0, 0.07], &usual), Class::Unknown);
        assert_eq!(of_rank(1, &[f64::NAN; 3], &usual), Class::Unknown);
    }

    #[test]
    fn transfers_that_grew_by_the_loss_are_a_slow_network() {
        let loss = |transfer, growth| Loss {
            share: 0.4,
            transfer,
            growth,
            ..Loss::default()
        };
        assert_eq!(of_uniform(loss(0.35, 3.0), 0.7), Class::Network);
        assert_eq!(of_uniform(loss(0.1, 3.0), 0.7), Class::Unknown);
        assert_eq!(of_uniform(loss(0.35, 1.1), 0.7), Class::Unknown);
    }

    #[test]
    fn the_class_of_an_incident_is_that_of_most_of_its_loss() {
        let mut votes = ClassVotes::default();
        assert_eq!(votes.class(), Class::Unknown);
        votes.add(Class::Device, 1.0);
        votes.add(Class::Host, 3.0);
        votes.add(Class::Device, 1.0);
        assert_eq!(votes.class(), Class::Host);
    }
}
