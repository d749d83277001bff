//! Constants of the detector, with their reasons. There is one set for all jobs.

/// Constants of the detector. The defaults are those of the reference rule
/// (`who_holds_back.py`) where it has them; the tests report what changes when one is halved or
/// raised by half.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Shortest evaluation, seconds. Long enough for several blocks of 0.25 to 1 s, short beside
    /// the 30 s within which a fault of 20 % has to be named.
    pub window_s: f64,
    /// Healthy time without which nothing is compared, seconds. Four windows: the fewest of which
    /// a median ignores one.
    pub need_s: f64,
    /// Share of lost time that is no evidence while the past is too short to measure its spread.
    /// Above the difference of 3 % between two medians of 20 s of the recorded healthy jobs.
    pub allowance: f64,
    /// Lost time that makes a verdict, seconds, where the past is too short to measure its spread, and
    /// where no rank agrees with the pace. One pause of less is not worth a page, and 20 %
    /// are named after 12 s.
    pub enough_s: f64,
    /// Least lost time that makes a verdict about a rank, however steady the past: two pauses of more
    /// than half a second.
    pub least_enough_s: f64,
    /// Least mean loss that confirms what the waiting for a rank says. Hosts that are by turns a
    /// little slower cost up to 5 % for a minute in healthy jobs.
    pub least_late: f64,
    /// Least lost time that confirms it, seconds. They sometimes cost 8 % for 15 s.
    pub late_enough_s: f64,
    /// Past of which the deviation is known well enough for a steady job to lower the constants above,
    /// seconds: ten evaluations. That of a shorter past counts as larger, by the ratio.
    pub short_s: f64,
    /// Past from which on its median is known well, seconds. Before that a loss that no rank explains
    /// takes up to twice the evidence.
    pub known_s: f64,
    /// Past from which on its measured spread replaces the two constants above, seconds.
    pub steady_s: f64,
    /// Smallest allowance, however steady the past: clock drift and rounding are far below it, and
    /// 5 % are found at 2.5 times it.
    pub least_allowance: f64,
    /// Largest allowance. A job whose pace moves by more is judged with a higher `enough_s`.
    pub most_allowance: f64,
    /// Allowance as a multiple of the standard deviation of 10 s means of the past's pace.
    pub allowance_sigmas: f64,
    /// Seconds of evidence per unit of that deviation: `L V / (2 a)` of a cumulative sum with
    /// drift `-a`, variance `V` per second and a false alarm rate of `exp(-L)` per independent
    /// piece (Siegmund 1985), with L = 14, `V` = 25 s sigma^2 and `a` = 2 sigma.
    pub enough_per_sigma_s: f64,
    /// The same for a loss that no rank explains, with L = 11.
    pub enough_alone_per_sigma_s: f64,
    /// Evidence as a multiple of what the healthy past itself reaches by recurring work.
    pub enough_peaks: f64,
    /// A rank must cause so many times more waiting than any rank that is not named.
    pub root: f64,
    /// Share of the loss that the waiting for the named ranks must cover.
    pub explain: f64,
    /// The same for several ranks at once, which by chance cover more than a single one.
    pub explain_set: f64,
    /// Share of all loss since it began that the waiting for the named ranks must cover.
    pub explain_all: f64,
    /// Lost time over which the waiting is summed before it is judged, seconds. Half a second of
    /// loss per second for 6 s.
    pub memory_s: f64,
    /// Waiting for a rank must rise by so many standard deviations of its own past.
    pub rise_sigmas: f64,
    /// A queue is dry below this share of its usual lead, while that of every other rank stays
    /// above `wet`.
    pub dry: f64,
    /// Share of the usual lead above which a queue is not dry.
    pub wet: f64,
    /// By host waits: a rank enqueues late if it does so by that many standard deviations of the past.
    /// Hosts that run ahead wander within the depth of their queues, and a late one is at its end.
    pub late_sigmas: f64,
    /// It does so by that many times as much as any other rank.
    pub late_root: f64,
    /// Least time by which it does, seconds: ten times what probes and clocks of one host err.
    pub least_late_s: f64,
    /// Time without evidence that closes an incident, seconds. A fault that comes and goes at
    /// shorter intervals stays one incident.
    pub quiet_s: f64,
    /// Without a past: the rank itself waits at most `1 - alone` of what its peers wait.
    pub alone: f64,
    /// Largest share of the time that peers of a healthy job were seen to wait for one rank for 12
    /// s. What exceeds it is the lower bound of a loss without a past, and twice `enough_s` of it make a
    /// verdict: 10 s where each waits all the time. The peers of a healthy job with tensor parallelism
    /// waited 95 % of 7 s for one rank.
    pub healthy_wait: f64,
    /// Time without a completed operation that is a stall, seconds.
    pub stall_s: f64,
    /// The same in usual operations: a job of rare operations is not stalled between two.
    pub stall_operations: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            window_s: 2.0,
            need_s: 8.0,
            allowance: 0.04,
            enough_s: 2.0,
            least_enough_s: 1.0,
            least_late: 0.06,
            late_enough_s: 1.5,
            short_s: 20.0,
            known_s: 30.0,
            steady_s: 60.0,
            least_allowance: 0.02,
            most_allowance: 0.12,
            allowance_sigmas: 2.0,
            enough_per_sigma_s: 87.0,
            enough_alone_per_sigma_s: 68.0,
            enough_peaks: 1.5,
            root: 1.5,
            explain: 0.7,
            explain_set: 0.85,
            explain_all: 0.6,
            memory_s: 3.0,
            rise_sigmas: 1.5,
            dry: 0.5,
            wet: 0.8,
            late_sigmas: 2.0,
            late_root: 3.0,
            least_late_s: 5e-4,
            quiet_s: 12.0,
            alone: 0.97,
            healthy_wait: 0.6,
            stall_s: 5.0,
            stall_operations: 20.0,
        }
    }
}

impl Rule {
    /// Allowance, and lost time that makes a verdict about a rank, seconds, where `sigma` is the
    /// standard deviation of the past's pace over 10 s.
    pub(super) fn limits(&self, sigma: f64) -> (f64, f64) {
        let allowance = (self.allowance_sigmas * sigma).max(self.least_allowance);
        let enough_s = (self.enough_per_sigma_s * sigma).max(self.least_enough_s);
        (allowance, enough_s)
    }
}
