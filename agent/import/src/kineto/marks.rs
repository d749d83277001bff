//! Operations that the framework marked: with spans over kernels on their streams, or, in traces of 2022 and 2023, over the
//! calls on threads that launched them.

use std::collections::BTreeMap;

use fleet_agent_core::event::Op;

/// Device and stream, or process and thread, as an event names them.
pub(super) type Place = (String, String);

/// Marked operations. A long trace has a million launches, so that places are kept as numbers.
#[derive(Default)]
pub(super) struct Marks {
    numbers: BTreeMap<Place, usize>,
    /// Start, end and operation of each span, by the number of its place.
    spans: BTreeMap<usize, Vec<(u64, u64, Op)>>,
    /// Number of the thread, and start, of the calls that launched kernels, by correlation.
    launches: BTreeMap<i64, (usize, u64)>,
}

impl Marks {
    /// Adds a span.
    pub(super) fn add_span(&mut self, place: Place, (start_ns, end_ns): (u64, u64), op: Op) {
        let number = self.number(place);
        let spans = self.spans.entry(number).or_default();
        spans.push((start_ns, end_ns, op));
    }

    /// Adds a call that launched a kernel.
    pub(super) fn add_launch(&mut self, correlation: i64, thread: Place, start_ns: u64) {
        let number = self.number(thread);
        self.launches.insert(correlation, (number, start_ns));
    }

    fn number(&mut self, place: Place) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(place).or_insert(next)
    }

    /// Sorts the spans, after the last one and before the first question.
    pub(super) fn sort(&mut self) {
        for spans in self.spans.values_mut() {
            spans.sort_unstable_by_key(|(start_ns, ..)| *start_ns);
        }
    }

    /// Returns the operation that is marked at a time on a stream, or where the kernel was launched.
    pub(super) fn op(&self, stream: &Place, time_ns: u64, correlation: Option<i64>) -> Option<Op> {
        let on_stream = self.numbers.get(stream);
        let on_stream = on_stream.and_then(|number| self.op_at(*number, time_ns));
        on_stream.or_else(|| {
            let (thread, start_ns) = self.launches.get(&correlation?)?;
            self.op_at(*thread, *start_ns)
        })
    }

    /// Operation of the last span that begins before this time, if it ends after that.
    fn op_at(&self, number: usize, time_ns: u64) -> Option<Op> {
        let spans = self.spans.get(&number)?;
        let n_before = spans.partition_point(|(start_ns, ..)| *start_ns <= time_ns);
        let (_, end_ns, op) = spans.get(n_before.checked_sub(1)?)?;
        (*end_ns >= time_ns).then_some(*op)
    }
}
