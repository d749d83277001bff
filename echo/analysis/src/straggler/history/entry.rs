//! Entry of a past: one evaluation, or the mean of several.

use std::collections::BTreeMap;

use crate::straggler::measure::{Flow, Measured, Pace};

/// Means over a stretch of healthy time.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) seconds: f64,
    /// Its end, job time, seconds.
    pub(super) until: f64,
    /// Share of the operations that were compared, 0 to 1.
    compared: f64,
    pub(super) paces: BTreeMap<usize, Pace>,
    /// By rank: net and peer shares, lead, duration of transfers, smallest lead.
    pub(super) ranks: Vec<[f32; 5]>,
    /// By node: net and peer shares.
    pub(super) nodes: Vec<[f32; 2]>,
}

impl Entry {
    pub(super) fn from_measured(measured: &Measured, seconds: f64) -> Self {
        let known =
            |values: &[f64], rank: usize| values.get(rank).copied().unwrap_or(f64::NAN) as f32;
        let lead = |rank: usize| known(&measured.leads, rank);
        let low = |rank: usize| known(&measured.lows, rank);
        let transfer = |rank: usize| known(&measured.transfers, rank);
        let ranks = measured.ranks.iter().enumerate();
        Self {
            seconds,
            until: measured.until,
            compared: measured.compared,
            paces: measured.paces.iter().copied().collect(),
            ranks: ranks
                .map(|(rank, flow)| {
                    [
                        flow.net as f32,
                        flow.peer as f32,
                        lead(rank),
                        transfer(rank),
                        low(rank),
                    ]
                })
                .collect(),
            nodes: measured
                .nodes
                .iter()
                .map(|flow| [flow.net as f32, flow.peer as f32])
                .collect(),
        }
    }

    /// Mean of both, weighted by time.
    pub(super) fn merge(&mut self, later: Self) {
        let weight = (later.seconds / (self.seconds + later.seconds)) as f32;
        merge_means(&mut self.ranks, &later.ranks, weight);
        merge_means(&mut self.nodes, &later.nodes, weight);
        for (comm, pace) in later.paces {
            self.paces.entry(comm).or_default().add(pace);
        }
        self.compared += f64::from(weight) * (later.compared - self.compared);
        self.seconds += later.seconds;
        self.until = later.until;
    }

    /// The evaluation that it was made of, or the mean of several.
    pub(super) fn measured(&self) -> Measured {
        let rank = |index: usize| {
            let values = self.ranks.iter().filter_map(move |rank| rank.get(index));
            values.map(|value| f64::from(*value)).collect()
        };
        let flow = |net: f32, peer: f32| Flow {
            net: f64::from(net),
            peer: f64::from(peer),
            ..Flow::default()
        };
        Measured {
            until: self.until,
            seconds: self.seconds,
            paces: self.paces.iter().map(|(c, pace)| (*c, *pace)).collect(),
            ranks: (self.ranks.iter())
                .map(|[net, peer, ..]| flow(*net, *peer))
                .collect(),
            nodes: (self.nodes.iter())
                .map(|[net, peer]| flow(*net, *peer))
                .collect(),
            compared: self.compared,
            leads: rank(2),
            transfers: rank(3),
            lows: rank(4),
            ..Measured::default()
        }
    }
}

fn merge_means<const N: usize>(means: &mut Vec<[f32; N]>, later: &[[f32; N]], weight: f32) {
    for (own, later) in means.iter_mut().zip(later) {
        for (own, later) in own.iter_mut().zip(later) {
            *own = if own.is_nan() {
                *later
            } else if later.is_nan() {
                *own
            } else {
                weight.mul_add(*later - *own, *own)
            };
        }
    }
    means.extend(later.iter().skip(means.len()));
}
