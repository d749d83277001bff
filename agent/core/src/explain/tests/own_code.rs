//! Lines of a rank's own program.

use super::*;

/// Stack in a function of a library, called at a line.
pub(super) fn native_stack(pid: u32, ts_ns: u64, module: &str, line: u32, samples: u64) -> Event {
    let Event::Stack(mut sample) = stack(pid, ts_ns, None, line, samples) else {
        panic!("not a stack")
    };
    let native = Frame::Native {
        symbol: None,
        module: Some(module.to_owned()),
        offset: 1,
    };
    if !native.is_of_gpu_library() {
        sample.outside = samples;
    }
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
    // Unless the samples are certain it is unknown which of the two waits for the other.
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
fn a_line_has_the_copies_beside_it_if_they_take_longer_than_the_line_and_than_those_of_the_peers() {
    let chain = |copies: u64, of_peer: u64| {
        let mut ranks = Ranks::new(2);
        let reports = ranks.periods(2, |rank, ts_ns| {
            let at_line = |samples| stack(rank, ts_ns, Some("cudaMemcpyAsync"), 81, samples);
            if rank == 0 {
                let own = native_stack(rank, ts_ns, "/lib/libc.so.6", 81, 40);
                vec![own, at_line(copies)]
            } else {
                let wait = stack(rank, ts_ns, Some("cudaMemcpyAsync"), 99, 140);
                vec![wait, at_line(of_peer)]
            }
        });
        assert!(reports[1].chains.is_empty(), "{:?}", reports[1].chains);
        let [chain] = reports[0].chains.as_slice() else {
            panic!("{:?}", reports[0].chains);
        };
        assert_eq!(chain.cause, Cause::OwnCode);
        chain.clone()
    };
    let copying = chain(160, 1);
    assert_eq!(
        copying.links,
        [
            "the line is train.py:81 in forward()",
            "it was in cudaMemcpyAsync at train.py:81 in forward() in 80.0 % of its samples"
        ]
    );
    assert!(copying.advice[0].contains("pinned memory"), "{copying:?}");
    for (copies, of_peer) in [(20, 1), (160, 160)] {
        let chain = chain(copies, of_peer);
        assert_eq!((chain.links.len(), chain.advice.len()), (1, 0), "{chain:?}");
    }
}

#[test]
fn a_line_that_waits_for_a_thread_in_a_gpu_library_is_not_own_code() {
    let waiting = |pid, ts_ns, line, samples| {
        let Event::Stack(mut sample) = native_stack(pid, ts_ns, "/lib/libc.so.6", line, samples)
        else {
            panic!("not a stack")
        };
        sample.stack.frames[0] = Frame::Native {
            symbol: Some("pthread_cond_wait".to_owned()),
            module: Some("/lib/libc.so.6".to_owned()),
            offset: 525,
        };
        Event::Stack(sample)
    };
    let mut ranks = Ranks::new(2);
    // Rank 1 waits for the GPU in its second thread, and in its first one for the second.
    let reports = ranks.periods(2, |rank, ts_ns| {
        let (load, wait) = if rank == 0 { (150, 20) } else { (30, 140) };
        let Event::Stack(mut second) = native_stack(rank, ts_ns, "/lib/libcuda.so.1", 0, wait)
        else {
            panic!("not a stack")
        };
        second.stack.frames.truncate(1);
        vec![
            native_stack(rank, ts_ns, "/lib/libc.so.6", 17, load),
            waiting(rank, ts_ns, 869, wait),
            Event::Stack(second),
        ]
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![Cause::OwnCode], vec![]]);
    // A lock that no thread in a GPU library holds is own code.
    let mut ranks = Ranks::new(2);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let held = if rank == 0 { 120 } else { 20 };
        vec![waiting(rank, ts_ns, 17, held)]
            .into_iter()
            .chain([native_stack(
                rank,
                ts_ns,
                "/lib/libcuda.so.1",
                99,
                170 - held,
            )])
            .collect()
    });
    assert_eq!(causes(&reports[0]), [Cause::OwnCode]);
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

/// Share of the samples at a line of rank 2, and of its peers.
fn load(own: u64, of_peers: u64) -> impl Fn(u32, u64) -> Vec<Event> {
    move |rank, ts_ns| {
        let load = if rank == 2 { own } else { of_peers };
        vec![
            stack(rank, ts_ns, None, 17, load),
            stack(rank, ts_ns, Some("cuStreamSynchronize"), 99, 85 - load),
        ]
    }
}

#[test]
fn a_line_of_a_tenth_of_the_time_is_found() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(3, load(10, 1));
    assert_eq!(causes(&reports[2]), [Cause::OwnCode]);
    assert_eq!(
        reports[2].chains[0].to_string(),
        "at one line of its program for 11.8 % of its time, peers 1.2 %"
    );
}

#[test]
fn a_line_that_a_rank_has_left_is_not_found() {
    let mut ranks = Ranks::new(4);
    ranks.periods(3, load(1, 1));
    // As much as a tenth of the following periods as well.
    assert_eq!(causes(&ranks.period(load(60, 1))[2]), []);
    for _ in 0..3 {
        assert_eq!(causes(&ranks.period(load(1, 1))[2]), []);
    }
}

/// Source of equally distributed numbers, `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns the samples at each of the lines, of which each has some percent; the rest is a wait
    /// for the GPU.
    fn samples(&mut self, percents: &[u64]) -> (Vec<u64>, u64) {
        let mut at = vec![0; percents.len()];
        let mut waits = 0;
        for _ in 0..85 {
            let mut percent = self.next() % 100;
            let line = percents.iter().position(|own| {
                let is_here = percent < *own;
                percent = percent.saturating_sub(*own);
                is_here
            });
            match line {
                Some(line) => at[line] += 1,
                None => waits += 1,
            }
        }
        (at, waits)
    }
}

/// Returns the events of a period of 5 s in which each sample is at a random line.
fn random_period(random: &mut Random, percents: &[u64], pid: u32, ts_ns: u64) -> Vec<Event> {
    let (at, waits) = random.samples(percents);
    let lines = (1..).zip(at).filter(|(_, samples)| *samples > 0);
    let lines = lines.map(|(line, samples)| stack(pid, ts_ns, None, line, samples));
    let wait = stack(pid, ts_ns, Some("cuStreamSynchronize"), 99, waits);
    lines.chain([wait]).collect()
}

/// Shares of the lines of a healthy rank, percent.
const USUAL: [u64; 12] = [20, 12, 10, 8, 6, 5, 4, 3, 2, 2, 1, 1];

#[test]
fn healthy_ranks_are_not_named_in_forty_hours() {
    const PERIODS_PER_HOUR: u32 = 720;
    let mut ranks = Ranks::new(4);
    let random = std::cell::RefCell::new(Random(1));
    for _ in 0..10 * PERIODS_PER_HOUR {
        let reports = ranks
            .period(|rank, ts_ns| random_period(&mut random.borrow_mut(), &USUAL, rank, ts_ns));
        let named: Vec<&CausalChain> = reports.iter().flat_map(|own| &own.chains).collect();
        assert!(named.is_empty(), "{named:?}");
    }
}

#[test]
fn a_line_of_an_eighth_of_the_time_is_named_within_half_a_minute() {
    let mut random = Random(2);
    for _ in 0..100 {
        let mut ranks = Ranks::new(4);
        let random = std::cell::RefCell::new(&mut random);
        let is_named = (0..6).any(|_| {
            let reports = ranks.period(|rank, ts_ns| {
                let mut percents = USUAL.to_vec();
                if rank == 2 {
                    // Line 1 takes less, and line 13 does not occur in the others.
                    percents[0] = 8;
                    percents.push(12);
                }
                random_period(&mut random.borrow_mut(), &percents, rank, ts_ns)
            });
            assert!(
                reports
                    .iter()
                    .all(|own| own.pid == 2 || own.chains.is_empty())
            );
            reports[2]
                .chains
                .first()
                .is_some_and(|chain| chain.links[0].contains(":13 "))
        });
        assert!(is_named);
    }
}
