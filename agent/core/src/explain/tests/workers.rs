//! Worker processes of a rank.

use super::*;

/// Samples of the worker of a rank: at a line of the program, and waiting for work.
fn worker(pid: u32, ts_ns: u64, busy: u64, idle: u64) -> Vec<Event> {
    let at = |file: &str, line, samples| {
        let Event::Stack(mut sample) = stack(pid, ts_ns, None, line, samples) else {
            panic!("not a stack")
        };
        sample.is_worker = true;
        sample.tid = pid + 100;
        sample.stack.frames[0] = Frame::Python {
            file: file.to_owned(),
            line,
            function: "decode".to_owned(),
        };
        Event::Stack(sample)
    };
    vec![
        at("/app/data.py", 74, busy),
        at("/usr/lib/python3.12/selectors.py", 415, idle),
    ]
}

/// A period of 5 s in which rank 0 waits at a pipe for half the time.
fn waiting(pid: u32, ts_ns: u64) -> Vec<Event> {
    let ns = if pid == 0 { PERIOD / 2 } else { 0 };
    vec![blocked(pid, ts_ns, BlockReason::Pipe, ns)]
}

#[test]
fn a_rank_that_waits_for_its_workers_is_explained_with_their_line() {
    let mut ranks = Ranks::new(3);
    let reports = ranks.periods(2, |pid, ts_ns| {
        let (busy, idle) = if pid == 0 { (95, 5) } else { (10, 90) };
        [waiting(pid, ts_ns), worker(pid, ts_ns, busy, idle)].concat()
    });
    assert_eq!(causes(&reports[0]), [Cause::Pipe]);
    let links = &reports[0].chains[0].links;
    assert_eq!(
        links.last().unwrap(),
        "its worker processes were at data.py:74 in decode() in 95.0 % of their samples, those of its peers in 10.0 %"
    );
    // The samples of workers are none of the rank.
    assert_eq!(reports[0].stacks(), []);
}

#[test]
fn workers_as_busy_as_those_of_the_peers_explain_nothing() {
    let mut ranks = Ranks::new(3);
    let reports = ranks.periods(2, |pid, ts_ns| {
        [waiting(pid, ts_ns), worker(pid, ts_ns, 60, 40)].concat()
    });
    assert_eq!(causes(&reports[0]), [Cause::Pipe]);
    assert_eq!(reports[0].chains[0].links.len(), 1);
}

/// Stacks are sampled for ten seconds of a minute.
#[test]
fn the_line_of_the_workers_stays_in_the_chain_while_nothing_is_sampled() {
    let mut ranks = Ranks::new(3);
    let links = |reports: &[ProcessReport]| reports[0].chains[0].links.clone();
    let sampled = ranks.periods(2, |pid, ts_ns| {
        let (busy, idle) = if pid == 0 { (95, 5) } else { (10, 90) };
        [waiting(pid, ts_ns), worker(pid, ts_ns, busy, idle)].concat()
    });
    let later = ranks.periods(3, waiting);
    assert_eq!((links(&sampled).len(), links(&later)), (2, links(&sampled)));
    let idle = ranks.periods(1, |pid, ts_ns| {
        [waiting(pid, ts_ns), worker(pid, ts_ns, 10, 90)].concat()
    });
    assert_eq!(links(&idle).len(), 1, "its workers are idle now");
    ranks.periods(1, |_, _| Vec::new());
    let again = ranks.periods(2, waiting);
    assert_eq!(links(&again).len(), 1, "that was another wait");
}
