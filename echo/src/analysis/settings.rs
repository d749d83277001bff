//! What the operator can tune about detection, with the defaults of the specification.

/// Settings of the detector.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Iterations that one judgement looks back on. A window also spans at least two blocks.
    pub window_iterations: f64,
    /// Smallest damage, as a share of the healthy period, for which a rank is named; its lag must reach the same
    /// share. Half of it clears.
    pub effect_gate: f64,
    /// Smallest slowdown of the whole cohort that is reported without a culprit (Greyhound's verification: 10 %).
    pub uniform_gate: f64,
    /// Smallest lag, as a share of the period, for which a rank is named while no healthy iteration is known.
    pub unknown_baseline_gate: f64,
    /// Share of the damage that a rank's lag must explain. Below it the damage has another cause.
    pub explained_share: f64,
    /// Consecutive judgements before an incident is raised.
    pub raise_after: u32,
    /// Consecutive judgements before an incident is cleared.
    pub clear_after: u32,
    /// An incident that comes back within this event time is the same one, milliseconds.
    pub reopen_within_ms: f64,
    /// Smallest share of the expected ranks that must report for a verdict.
    pub min_coverage: f64,
    /// Probability of a false z among all ranks of one judgement.
    pub family_alpha: f64,
    /// A rank that was silent this long is not waited for, milliseconds of arrival time.
    pub silence_ms: f64,
    /// A job that was silent this long has ended, milliseconds of arrival time: its incidents are cleared and it is
    /// forgotten.
    pub end_after_ms: f64,
    /// One operation in this many is sampled by the agents.
    pub sample_mod: u32,
    /// How long an agent may use a policy, milliseconds of event time.
    pub policy_validity_ms: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_iterations: 16.0,
            effect_gate: 0.05,
            uniform_gate: 0.10,
            unknown_baseline_gate: 0.10,
            explained_share: 0.4,
            raise_after: 2,
            clear_after: 3,
            reopen_within_ms: 60_000.0,
            min_coverage: 0.8,
            family_alpha: 1e-3,
            silence_ms: 30_000.0,
            end_after_ms: 600_000.0,
            sample_mod: 16,
            policy_validity_ms: 60_000.0,
        }
    }
}
