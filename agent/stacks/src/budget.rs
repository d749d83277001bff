//! CPU time that sampling may use. Pure.

/// Window over which the CPU time is limited, nanoseconds.
pub const WINDOW_NS: u64 = 60_000_000_000;

/// CPU time used per window, and its limit.
#[derive(Debug, Clone)]
pub struct Budget {
    limit_ns: u64,
    spent_ns: u64,
    from_ns: u64,
}

impl Budget {
    /// Creates a budget of a fraction of one core, 0.01 for 1 %.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a fraction of a minute fits, and a negative one becomes 0"
    )]
    pub fn new(fraction: f64) -> Self {
        Self {
            limit_ns: (fraction * WINDOW_NS as f64) as u64,
            spent_ns: 0,
            from_ns: 0,
        }
    }

    /// Returns whether something is left of the window that contains `now_ns`.
    pub fn is_left(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.from_ns) >= WINDOW_NS {
            (self.from_ns, self.spent_ns) = (now_ns, 0);
        }
        self.spent_ns < self.limit_ns
    }

    /// Returns the time from which a spent budget is full again; `None` if there is none at all.
    pub fn left_from_ns(&self) -> Option<u64> {
        (self.limit_ns > 0).then(|| self.from_ns.saturating_add(WINDOW_NS))
    }

    /// Adds CPU time that was used.
    pub fn charge(&mut self, cpu_ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(cpu_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_is_full_again_in_the_next_window() {
        let mut budget = Budget::new(0.01);
        let start_ns = 5 * WINDOW_NS;
        assert!(budget.is_left(start_ns));
        budget.charge(599_000_000);
        assert!(budget.is_left(start_ns + 1));
        budget.charge(1_000_000);
        assert!(!budget.is_left(start_ns + WINDOW_NS - 1));
        assert_eq!(budget.left_from_ns(), Some(start_ns + WINDOW_NS));
        assert!(budget.is_left(start_ns + WINDOW_NS));
    }

    #[test]
    fn a_budget_of_nothing_is_never_left() {
        for fraction in [0.0, -1.0] {
            let mut budget = Budget::new(fraction);
            assert!(!budget.is_left(1));
            assert_eq!(budget.left_from_ns(), None);
        }
    }
}
