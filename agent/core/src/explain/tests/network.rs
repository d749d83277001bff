//! Waits for connections.

use super::*;

fn lost(pid: u32, ts_ns: u64, segments: u64) -> Event {
    Event::Activity(ActivitySample {
        from_ns: ts_ns - PERIOD,
        ts_ns,
        pid,
        activity: Activity {
            tcp_retransmits: Some(segments),
            ..Activity::default()
        },
    })
}

/// Explains rank 0, which waits for a socket while the host of all ranks sends segments again.
fn explained(segments: u64) -> CausalChain {
    let mut ranks = Ranks::new(3);
    let reports = ranks.periods(2, |rank, ts_ns| {
        let ns = if rank == 0 { 6 * SECOND } else { SECOND / 10 };
        let wait = blocked(rank, ts_ns, BlockReason::Network, ns);
        vec![wait, lost(rank, ts_ns, segments)]
    });
    assert_eq!(reports[1].chains, []);
    reports[0].chains[0].clone()
}

#[test]
fn segments_sent_again_explain_the_wait_for_a_socket() {
    let chain = explained(200);
    assert_eq!(
        chain.links[1],
        "its host sent 20.0 TCP segments again per second"
    );
    assert!(chain.advice[1].contains("nstat"), "{:?}", chain.advice);
}

#[test]
fn a_few_segments_sent_again_explain_nothing() {
    let chain = explained(5);
    assert_eq!((chain.links.len(), chain.advice.len()), (1, 1));
}
