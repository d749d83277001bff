//! From a window of iterations to what is concluded of it.

use echo_core::model::detector_output::{Conclusions, Signal};

use super::{Cohort, JobView, MAX_BLOCKS, Outlook, Standing};
use crate::finding::Charge;
use crate::lag::{Lags, lags, rank_order, suited_signal};
use crate::settings::Settings;
use crate::window::Stretch;

/// What one window shows.
pub(super) struct Judged {
    pub(super) signal: Signal,
    charges: Vec<Charge>,
    standing: Standing,
    outlook: Option<Outlook>,
    /// Blocks of the window and lags, where they may pass for healthy.
    to_remember: Option<(usize, Option<Lags>)>,
}

impl Default for Judged {
    fn default() -> Self {
        Self {
            signal: Signal::HostGap,
            charges: Vec::new(),
            standing: Standing::default(),
            outlook: None,
            to_remember: None,
        }
    }
}

impl Cohort {
    /// Charges from the latest window, with what there is to remember of it; nothing while the window is not full.
    pub(super) fn judge_window(&self, view: &JobView, settings: &Settings) -> Option<Judged> {
        let window = Stretch::latest(&self.blocks, settings.window_iterations, 2);
        // Iterations that outlast blocks by far would never fill a window.
        if window.iterations < settings.window_iterations && self.blocks.len() < MAX_BLOCKS {
            return None;
        }
        let signal = suited_signal(&window.blocks);
        let mut lags = lags(signal, &window.blocks);
        if let Some(lags) = &mut lags {
            // While the usual scatter is unknown, all that was seen may prove a place as well.
            let all = f64::INFINITY;
            let spans = if self.history.scatter(signal).is_some() {
                &[2.0][..]
            } else {
                &[2.0, all]
            };
            for windows in spans {
                let wider = Stretch::latest(&self.blocks, windows * settings.window_iterations, 2);
                rank_order::assign(signal, &wider.blocks, &mut lags.ranks);
            }
        }
        let accused = self.accuse(&window, lags.as_ref(), view, settings);
        let outlook = self.look_out(&window, lags.as_ref(), settings);
        Some(Judged {
            signal,
            charges: accused.charges,
            standing: accused.standing,
            outlook,
            to_remember: (!accused.is_damaged || (accused.is_healthy && !view.is_disturbed))
                .then_some((window.blocks.len(), lags)),
        })
    }

    /// Lets what was judged become incidents, and remembers what was healthy.
    pub(super) fn conclude(
        &mut self,
        judged: Judged,
        view: &JobView,
        settings: &Settings,
    ) -> Conclusions {
        let mut charges = judged.charges;
        charges.retain(|charge| self.is_confirmed(charge, view));
        charges.extend(self.slow.iter().cloned());
        self.standing = judged.standing;
        let mut victims = self.standing.victims.clone();
        victims.extend(view.victims.iter().copied());
        let suspicion = self.suspicion(view);
        let rest = (&victims, view.is_explained, suspicion.as_ref());
        let conclusions = self.decide(judged.signal, &charges, rest, settings);
        self.standing.explains = self.faults.explains();
        self.standing.is_disturbed = !self.faults.is_empty();
        self.standing.shifts = self
            .pace
            .slow()
            .map_or_else(Vec::new, |slow| slow.shifts.clone());
        // What another cohort suffers from, and what nobody can explain yet, must not pass for healthy.
        let to_remember = judged.to_remember.filter(|_| self.pace.slow().is_none());
        if let Some((n_window, lags)) = to_remember {
            self.remember(n_window, lags.as_ref(), settings);
        }
        let outlook = judged.outlook.or_else(|| self.outlook.take());
        self.outlook = outlook.map(|outlook| Outlook {
            outliers: self.faults.named_ranks(),
            ..outlook
        });
        conclusions
    }
}
