//! Library call that a thread is in while its lines are read.

use fleet_agent_core::event::InFlight;

/// Longest time for which a call is waited for that lasts longer than a read, nanoseconds.
const PATIENCE_NS: u64 = 1_000_000;

/// Call that a thread was in during a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InCall {
    /// The probes do not know it.
    Unknown,
    /// No probed call, before and after the read.
    Outside,
    /// A call of this function, the same one before and after the read.
    Of(&'static str),
    /// A call of this function, which ended during the read.
    Left(&'static str),
}

impl InCall {
    fn between(before: InFlight, after: InFlight) -> Self {
        match before {
            InFlight::None if after == InFlight::None => Self::Outside,
            InFlight::None | InFlight::Unknown => Self::Unknown,
            InFlight::Call { function, .. } if after == before => Self::Of(function),
            InFlight::Call { function, .. } => Self::Left(function),
        }
    }
}

/// Reads with the knowledge of the call that the thread is in. If that ends during the read, the
/// thread is read again at the beginning of its next call of the function. `now_ns` is a clock in
/// nanoseconds, by which that call is waited for.
pub(crate) fn read_in_call<T>(
    now_ns: impl Fn() -> u64,
    in_flight: impl Fn() -> InFlight,
    mut read: impl FnMut() -> T,
) -> (T, InCall) {
    let until_ns = now_ns().saturating_add(PATIENCE_NS);
    let mut before = in_flight();
    loop {
        let lines = read();
        let in_call = InCall::between(before, in_flight());
        let InCall::Left(left) = in_call else {
            return (lines, in_call);
        };
        let is_next = |now: &InFlight| {
            *now != before && matches!(now, InFlight::Call { function, .. } if *function == left)
        };
        let until_over = std::iter::repeat_with(&in_flight).take_while(|_| now_ns() < until_ns);
        match until_over.into_iter().find(is_next) {
            Some(next) => before = next,
            None => return (lines, in_call),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn malloc(entered_ns: u64) -> InFlight {
        InFlight::Call {
            function: "cudaMalloc",
            entered_ns,
        }
    }

    /// Reads while the calls in flight are these, one after the other, and the last one from then on;
    /// returns the number of the reads and the call. A look takes a hundredth of the patience.
    fn read(in_flight: &[InFlight]) -> (u32, InCall) {
        let looks = Cell::new(0);
        let look = || {
            let index = looks.replace(looks.get() + 1);
            in_flight[index.min(in_flight.len() - 1)]
        };
        let now_ns = || u64::try_from(looks.get()).unwrap() * (PATIENCE_NS / 100);
        let mut reads = 0;
        read_in_call(now_ns, look, || {
            reads += 1;
            reads
        })
    }

    #[test]
    fn a_thread_is_in_a_call_that_is_the_same_before_and_after() {
        assert_eq!(read(&[malloc(7)]), (1, InCall::Of("cudaMalloc")));
    }

    #[test]
    fn a_call_that_ends_during_the_read_is_read_at_the_beginning_of_the_next_one() {
        let calls = [malloc(7), InFlight::None, InFlight::None, malloc(8)];
        assert_eq!(read(&calls), (2, InCall::Of("cudaMalloc")));
        assert_eq!(
            read(&[malloc(7), malloc(8), malloc(9)]),
            (2, InCall::Of("cudaMalloc"))
        );
    }

    #[test]
    fn a_read_during_which_the_last_call_ends_has_no_line() {
        let left = (1, InCall::Left("cudaMalloc"));
        assert_eq!(read(&[malloc(7), InFlight::None]), left);
        let mut too_late = vec![InFlight::None; 110];
        too_late[0] = malloc(7);
        too_late.push(malloc(8));
        assert_eq!(read(&too_late), left);
    }

    #[test]
    fn a_thread_is_outside_only_if_it_was_before_and_after() {
        assert_eq!(read(&[InFlight::None]), (1, InCall::Outside));
        for calls in [
            [InFlight::None, malloc(7)],
            [InFlight::Unknown, InFlight::Unknown],
            [InFlight::Unknown, InFlight::None],
        ] {
            assert_eq!(read(&calls), (1, InCall::Unknown));
        }
    }
}
