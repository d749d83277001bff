//! How much lost time is no evidence, and how much makes a verdict, by the spread of the past.

use echo_core::stats::robust_sigma;

use crate::straggler::rule::Rule;
use crate::straggler::spread::{MEAN_S, deviation, means, reached, recurring};
use crate::straggler::usual::Usual;

/// Entries of a short past from which on their deviation means something.
const LEAST_PARTS: usize = 4;

/// Least lost time that makes a verdict without a rank, however steady the past, seconds: 20 s of a
/// loss of 8 %.
const LEAST_ALONE_S: f64 = 1.2;

/// Replaces the constants by what follows from the spread of the past: a long one in any case, a
/// shorter one where it is so steady that less makes a verdict. Adds what recurs in it.
pub(super) fn set_limits(usual: &mut Usual, (seconds, losses): (f64, &[(f64, f64)]), rule: &Rule) {
    let parts: Vec<f64> = losses.iter().map(|(_, loss)| *loss).collect();
    // A job does not begin at once. In a long past its first entry is of no account.
    let is_long = seconds >= rule.steady_s;
    let started = losses.get(usize::from(!is_long)..).unwrap_or_default();
    let of_means = robust_sigma(&means(losses, MEAN_S));
    // Neighbours may be alike, so the spread of a mean is at most that of its parts.
    let measured = match of_means {
        Some(sigma) if is_long => Some(rule.limits(sigma)),
        _ if started.len() < LEAST_PARTS => None,
        _ => {
            // The shorter the past, the less is known of it.
            let known = (seconds / rule.short_s).min(1.0);
            let started: Vec<f64> = started.iter().map(|(_, loss)| *loss).collect();
            let (allowance, enough_s) = rule.limits(deviation(&started));
            Some((allowance / known, enough_s / known))
                .filter(|(_, enough_s)| *enough_s < rule.enough_s)
                .map(|(allowance, enough_s)| (allowance.min(rule.allowance), enough_s))
        }
    };
    if let Some((allowance, enough_s)) = measured {
        (usual.allowance, usual.enough_s) = (allowance, enough_s);
    }
    usual.allowance = (usual.allowance + recurring(started)).min(rule.most_allowance);
    let peak = reached(started, usual.allowance);
    usual.enough_s = usual.enough_s.max(rule.enough_peaks * peak);
    // The deviation of a few means is not known well; that of independent parts is.
    let part_s = usual.entry_s.clamp(rule.window_s, MEAN_S);
    let of_parts = robust_sigma(&parts).unwrap_or(0.0) * (part_s / MEAN_S).sqrt();
    usual.sigma = of_parts.max(of_means.unwrap_or(0.0));
    let of_past = (rule.enough_alone_per_sigma_s * of_parts).max(usual.enough_s);
    let least_s = measured.map_or(rule.enough_s, |_| LEAST_ALONE_S);
    let missing = (1.0 - seconds / rule.known_s).max(0.0);
    usual.enough_alone_s = of_past.max(least_s) * (1.0 + missing);
}
