//! Detection settings of the operator, with the defaults of the specification.

/// Settings of the detector.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Iterations in one evaluation window. A window also spans at least two blocks.
    pub window_iterations: f64,
    /// Iterations in a second, longer window, for stalls that are rare and add up.
    pub long_window_iterations: f64,
    /// Smallest lag, as a share of the period, for which a rank is named; the damage must reach
    /// half of it. Half of it clears.
    pub effect_gate: f64,
    /// Smallest lag, as a share of the period, for which a rank is named at once, as provisional.
    pub fast_gate: f64,
    /// Smallest slowdown of the whole cohort that is reported without a culprit (Greyhound's
    /// verification: 10 %).
    pub uniform_gate: f64,
    /// Smallest lag, as a share of the period, for which a rank is named while no healthy iteration
    /// is known.
    pub unknown_baseline_gate: f64,
    /// Smallest excess of the time that the GPUs of one role compute, as a share of the period,
    /// that is an imbalance of stages.
    pub stage_gate: f64,
    /// Smallest usual distance from the typical rank to the last, as a share of the period, that is
    /// an imbalance of data; more for few operations.
    pub data_gate: f64,
    /// Share of the damage that a rank's lag must explain. Below it the damage has another cause.
    pub explained_share: f64,
    /// Consecutive evaluations before an incident is raised.
    pub raise_after: u32,
    /// Consecutive evaluations before an incident is cleared.
    pub clear_after: u32,
    /// An incident that comes back within this event time is the same one, milliseconds.
    pub reopen_within_ms: f64,
    /// Smallest share of the expected ranks that must report for a verdict.
    pub min_coverage: f64,
    /// Probability of a false z among all ranks of one evaluation.
    pub family_alpha: f64,
    /// Share of the ranks named in one tick over a job that may be named wrongly
    /// (Benjamini-Hochberg).
    pub discovery_rate: f64,
    /// An operation that some ranks entered and others did not hangs after this long, milliseconds
    /// of arrival time.
    pub hang_after_ms: f64,
    /// It stalls after this long, milliseconds of the waiting ranks' own time.
    pub stall_after_ms: f64,
    /// Either must also have taken this many periods.
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
            long_window_iterations: 128.0,
            effect_gate: 0.03,
            fast_gate: 0.20,
            uniform_gate: 0.10,
            unknown_baseline_gate: 0.10,
            stage_gate: 0.10,
            data_gate: 0.027,
            explained_share: 0.4,
            raise_after: 2,
            clear_after: 3,
            reopen_within_ms: 60_000.0,
            min_coverage: 0.8,
            family_alpha: 1e-4,
            discovery_rate: 0.01,
            hang_after_ms: 30_000.0,
            stall_after_ms: 5_000.0,
            hang_after_periods: 20.0,
            silence_ms: 30_000.0,
            end_after_ms: 600_000.0,
            sample_mod: 16,
            policy_validity_ms: 60_000.0,
        }
    }
}
