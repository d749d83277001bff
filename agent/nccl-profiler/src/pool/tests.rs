//! Operations that end, operations that never end, and stale handles.

use super::*;

fn operation(host_ns: u64, channels: u8) -> Operation {
    Operation {
        record: Record {
            seq: 5,
            host_ns,
            ..Record::default()
        },
        channels,
    }
}

fn begin(pool: &Pool, host_ns: u64, channels: u8) -> Option<u64> {
    let handle = pool.begin(&operation(host_ns, channels), &Losses::new());
    handle.map(Handle::to_bits)
}

fn run(pool: &Pool, parent: u64, channel: u8, (start_ns, stop_ns): (u64, u64)) -> Option<Record> {
    let handle = pool.started(parent, channel, start_ns)?;
    pool.stopped(handle.to_bits(), stop_ns)
}

#[test]
fn an_operation_is_complete_when_its_last_channel_has_stopped() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let parent = begin(pool, 1, 3).unwrap();
    assert_eq!(run(pool, parent, 2, (120, 900)), None);
    assert_eq!(run(pool, parent, 0, (100, 800)), None);
    let record = run(pool, parent, 7, (110, 950)).unwrap();
    let times = (record.gpu_start_ns, record.gpu_stop_ns);
    assert_eq!((times, record.channels, record.seq), ((120, 950), 3, 5));
    assert_eq!(pool.in_flight(), 0);
}

#[test]
fn the_time_of_an_earlier_operation_on_a_channel_does_not_begin_this_one() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let parent = begin(pool, 1, 3).unwrap();
    assert_eq!(run(pool, parent, 0, (70_000, 90_200)), None);
    assert_eq!(run(pool, parent, 1, (90_000, 90_100)), None);
    let record = run(pool, parent, 2, (0, 90_150)).unwrap();
    let times = (record.gpu_start_ns, record.gpu_stop_ns);
    assert_eq!(times, (90_000, 90_200));
}

#[test]
fn a_channel_that_stops_twice_counts_once() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let parent = begin(pool, 1, 2).unwrap();
    let first = pool.started(parent, 0, 10).unwrap().to_bits();
    assert_eq!(pool.stopped(first, 20), None);
    assert_eq!(pool.stopped(first, 30), None);
    assert!(run(pool, parent, 1, (10, 40)).is_some());
}

#[test]
fn handles_of_ended_operations_find_nothing() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let parent = begin(pool, 1, 1).unwrap();
    let channel = pool.started(parent, 0, 10).unwrap().to_bits();
    assert!(pool.stopped(channel, 20).is_some());
    assert_eq!(pool.stopped(channel, 30), None);
    assert_eq!(pool.started(parent, 1, 10), None);
    assert_eq!(pool.stopped(parent, 30), None);
}

#[test]
fn an_operation_that_never_ends_is_replaced_after_a_while_and_counted() {
    static POOL: Pool = Pool::new();
    let (pool, losses) = (&POOL, Losses::new());
    let all: Vec<Handle> = (0..SLOTS)
        .map(|_| pool.begin(&operation(1, 1), &losses).unwrap())
        .collect();
    assert_eq!(pool.begin(&operation(2, 1), &losses), None);
    assert_eq!(losses.pool_full.load(Ordering::Relaxed), 1);
    let later = ABANDONED_AFTER_NS + 2;
    let next = pool.begin(&operation(later, 1), &losses).unwrap();
    assert_eq!(losses.abandoned.load(Ordering::Relaxed), 1);
    let evicted = all.iter().find(|old| old.slot == next.slot).unwrap();
    assert_eq!(pool.started(evicted.to_bits(), 0, 10), None);
    assert_eq!(losses.operations(), 2);
}

#[test]
fn the_operations_of_a_communicator_that_ends_are_removed_and_no_others() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let begin_of = |comm_id: u64| {
        let mut operation = operation(1, 2);
        operation.record.comm_id = comm_id;
        pool.begin(&operation, &Losses::new()).unwrap().to_bits()
    };
    let (aborted, other) = (begin_of(7), begin_of(8));
    pool.started(aborted, 0, 10).unwrap();
    pool.abandon(7, 0);
    assert_eq!(pool.in_flight(), 1);
    assert_eq!(pool.started(aborted, 1, 10), None);
    assert!(pool.started(other, 0, 10).is_some());
}

#[test]
fn handles_of_another_process_do_not_match() {
    static ONE: Pool = Pool::new();
    static OTHER: Pool = Pool::new();
    let (one, other) = (&ONE, &OTHER);
    other.offset_generations(77_000);
    let foreign = begin(one, 1, 1).unwrap();
    begin(other, 1, 1).unwrap();
    assert_eq!(other.started(foreign, 0, 10), None);
}

#[test]
fn concurrent_threads_complete_every_operation_once() {
    static POOL: Pool = Pool::new();
    let pool = &POOL;
    let completed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let parent = begin(pool, 1, 2).unwrap();
                    for channel in 0..2 {
                        let done = run(pool, parent, channel, (10, 20));
                        completed.fetch_add(u64::from(done.is_some()), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(completed.load(Ordering::Relaxed), 20_000);
    assert_eq!(pool.in_flight(), 0);
}
