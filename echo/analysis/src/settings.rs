//! Detection settings of the operator, with the defaults of the specification.

/// Settings of the detector, besides those of [`crate::straggler::rule::Rule`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Iterations over which the peers of a policy are compared, and at least two blocks.
    pub window_iterations: f64,
    /// Smallest lag, as a share of an iteration, for which an agent says that its rank is late.
    pub effect_gate: f64,
    /// Smallest share of the expected ranks that must report for a policy.
    pub min_coverage: f64,
    /// Probability of a false z among all ranks that compare themselves at one time.
    pub family_alpha: f64,
    /// An operation that some ranks entered and others did not hangs after this long, milliseconds
    /// of arrival time.
    pub hang_after_ms: f64,
    /// It stalls after this long, milliseconds of the waiting ranks' own time.
    pub stall_after_ms: f64,
    /// Either must also have taken this many iterations.
    pub hang_after_periods: f64,
    /// A rank that was silent this long is not waited for, milliseconds of arrival time.
    pub silence_ms: f64,
    /// A job that was silent this long has ended, milliseconds of arrival time: its incidents are
    /// cleared and it is forgotten.
    pub end_after_ms: f64,
    /// One operation in this many is sampled by the agents.
    pub sample_mod: u32,
    /// Lifetime of a policy at an agent, milliseconds of event time.
    pub policy_validity_ms: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_iterations: 16.0,
            effect_gate: 0.03,
            min_coverage: 0.8,
            family_alpha: 1e-4,
            hang_after_ms: 30_000.0,
            // With a report each 4 s a stall is known after 13 s.
            stall_after_ms: 8_000.0,
            hang_after_periods: 20.0,
            silence_ms: 30_000.0,
            end_after_ms: 600_000.0,
            sample_mod: 16,
            policy_validity_ms: 60_000.0,
        }
    }
}
