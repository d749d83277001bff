//! Lines of a rank's own program.

use super::*;

/// Stack in a function of a library, called at a line.
fn native_stack(pid: u32, ts_ns: u64, module: &str, line: u32, samples: u64) -> Event {
    let Event::Stack(mut sample) = stack(pid, ts_ns, None, line, samples) else {
        panic!("not a stack")
    };
    let native = Frame::Native {
        symbol: None,
        module: Some(module.to_owned()),
        offset: 1,
    };
    sample.stack.frames.insert(0, native);
    Event::Stack(sample)
}

#[test]
fn the_line_at_which_a_rank_is_more_often_than_its_peers_is_its_own_code() {
    let mut ranks = Ranks::new(4);
    // The others wait for rank 2 at the end of their steps, in a call that is not recognised.
    let reports = ranks.periods(2, |rank, ts_ns| {
        let (load, wait) = if rank == 2 { (130, 20) } else { (30, 120) };
        vec![
            stack(rank, ts_ns, None, 17, load),
            stack(rank, ts_ns, None, 99, wait),
            stack(rank, ts_ns, Some("cudaLaunchKernel"), 142, 50),
        ]
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![], vec![], vec![Cause::OwnCode], vec![]]);
    let chain = &reports[2].chains[0];
    assert_eq!(
        chain.to_string(),
        "at one line of its program for 65.0 % of its time, peers 15.0 %"
    );
    assert_eq!(chain.links, ["the line is train.py:17 in forward()"]);
}

#[test]
fn of_two_ranks_only_the_one_outside_of_gpu_libraries_is_at_its_own_code() {
    let mut ranks = Ranks::new(2);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let (load, wait) = if rank == 0 { (150, 20) } else { (30, 140) };
        vec![
            native_stack(rank, ts_ns, "/lib/libc.so.6", 17, load),
            native_stack(rank, ts_ns, "/lib/libcuda.so.1", 99, wait),
        ]
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![Cause::OwnCode], vec![]]);
    // Without native frames it is unknown which of the two waits for the other.
    let mut ranks = Ranks::new(2);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let (load, wait) = if rank == 0 { (150, 20) } else { (30, 140) };
        vec![
            stack(rank, ts_ns, None, 17, load),
            stack(rank, ts_ns, None, 99, wait),
        ]
    });
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}

#[test]
fn idle_threads_of_libraries_do_not_hide_a_line() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let (load, wait) = if rank == 2 { (17, 68) } else { (0, 85) };
        let Event::Stack(mut idle) = native_stack(rank, ts_ns, "/lib/libc.so.6", 0, 90) else {
            panic!("not a stack")
        };
        idle.stack.frames.truncate(1);
        vec![
            stack(rank, ts_ns, None, 17, load),
            stack(rank, ts_ns, Some("cuStreamSynchronize"), 99, wait),
            Event::Stack(idle),
        ]
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![], vec![], vec![Cause::OwnCode], vec![]]);
}

#[test]
fn a_delayed_rank_is_not_blamed_for_the_line_at_which_it_was_delayed() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let is_late = rank == 2;
        let mut events = preempted(rank, ts_ns, if is_late { 6 * SECOND } else { 0 });
        let (load, wait) = if is_late { (100, 20) } else { (20, 100) };
        events.push(stack(rank, ts_ns, None, 17, load));
        events.push(stack(rank, ts_ns, None, 99, wait));
        events
    });
    assert_eq!(causes(&reports[2]), [Cause::CpuContention]);
    let place = reports[2].chains[0].place.as_ref().unwrap();
    assert_eq!(place.lines(), ["train.py:17 in forward()"]);
}

#[test]
fn few_samples_are_no_evidence_of_own_code() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(3, |rank, ts_ns| {
        let (load, wait) = if rank == 2 { (12, 8) } else { (4, 16) };
        vec![
            stack(rank, ts_ns, None, 17, load),
            stack(rank, ts_ns, None, 99, wait),
        ]
    });
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}
