mod agent;

use std::collections::BTreeSet;

use super::*;
use crate::sender::tests::agent::{Agent, Receiver, batch, folder, lost, verdict};
use crate::vitals::{Amount, Loss};
use crate::{ExportError, now};

#[tokio::test(start_paused = true)]
async fn while_the_receiver_is_reachable_nothing_is_spooled() {
    let (dir, receiver) = (folder(), Receiver::default());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.send(1..=5).await;
    assert!(agent.vitals.read().is_connected);
    let vitals = Arc::clone(&agent.vitals);
    let report = agent.end(Duration::from_secs(5)).await;
    assert_eq!(receiver.stored(), [1, 2, 3, 4, 5]);
    assert_eq!((report.batches_acked, report.points_sent), (5, 50));
    assert_eq!((vitals.read().sent.points, report.retries), (50, 0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn batches_that_cannot_be_sent_are_spooled_and_sent_first_in_order() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.send(1..=60).await;
    let away = agent.vitals.read();
    assert_eq!((away.spooled_batches, away.is_connected), (60, false));
    assert_eq!(
        (away.since_ack, away.total_lost()),
        (None, Amount::default())
    );
    receiver.comes_back();
    agent.send(61..=70).await;
    agent
        .wait_until(|vitals| vitals.read().sent.batches == 70)
        .await;
    assert_eq!(receiver.stored(), (1..=70).collect::<Vec<_>>());
    let back = agent.vitals.read();
    assert_eq!((back.spooled_batches, back.spooled_bytes), (0, 0));
    assert!(back.is_connected && back.retries > 5);
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn during_a_short_outage_batches_wait_in_memory() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.send(1..=3).await;
    assert_eq!(agent.vitals.read().spooled_batches, 0);
    receiver.comes_back();
    agent
        .wait_until(|vitals| vitals.read().sent.batches == 3)
        .await;
    assert_eq!(receiver.stored(), [1, 2, 3]);
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn spooled_batches_of_an_earlier_agent_keep_its_instance() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut first = Agent::spooling(&receiver.from(0xa), dir.path());
    first.send(1..=8).await;
    let report = first.end(Duration::ZERO).await;
    assert_eq!((report.points_sent, report.points_dropped), (0, 0));
    receiver.comes_back();
    let mut second = Agent::spooling(&receiver.from(0xb), dir.path());
    second.send(1..=2).await;
    second
        .wait_until(|vitals| vitals.read().sent.batches == 10)
        .await;
    let stored = receiver.0.lock().unwrap().stored.clone();
    let first = (1..=8).map(|number| (0xa, number));
    assert_eq!(
        stored,
        first.chain([(0xb, 1), (0xb, 2)]).collect::<Vec<_>>()
    );
    second.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn when_the_spool_is_full_the_oldest_batches_are_dropped_and_counted() {
    let (dir, receiver) = (folder(), Receiver::away());
    let spool = Spool::open(dir.path(), 10 * 4096).unwrap();
    let mut agent = Agent::start(&receiver, Some(spool));
    agent.send(1..=200).await;
    let snapshot = agent.vitals.read();
    assert_eq!(snapshot.spooled_batches, 10);
    assert_eq!(snapshot.lost[&Loss::SpoolFull].batches, 190);
    receiver.comes_back();
    agent
        .wait_until(|vitals| vitals.read().sent.batches == 10)
        .await;
    let stored = receiver.stored();
    // The batch that was being sent can be older: it is not evicted for a while.
    assert_eq!(stored[1..], (192..=200).collect::<Vec<_>>());
    assert_eq!(
        lost(&agent.vitals, Loss::SpoolFull),
        Amount {
            batches: 190,
            points: 1900
        }
    );
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_never_answered_is_evicted_from_a_full_spool() {
    let (dir, receiver) = (folder(), Receiver::away());
    let spool = Spool::open(dir.path(), 4 * 4096).unwrap();
    let mut agent = Agent::start(&receiver, Some(spool));
    agent.send(1..=150).await;
    let tried: BTreeSet<u64> = receiver.attempts().into_iter().collect();
    assert!(tried.len() >= 2, "{tried:?}");
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_fills_the_spool_without_losing_points() {
    let (dir, receiver) = (folder(), Receiver::default());
    receiver.0.lock().unwrap().response_time = Some(Duration::from_secs(3));
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.send(1..=60).await;
    let snapshot = agent.vitals.read();
    assert_eq!(snapshot.total_lost(), Amount::default());
    assert!(snapshot.spooled_batches > 30, "{snapshot:?}");
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_with_a_full_spool_still_gets_batches() {
    let (dir, receiver) = (folder(), Receiver::default());
    receiver.0.lock().unwrap().response_time = Some(Duration::from_secs(3));
    let spool = Spool::open(dir.path(), 4 * 4096).unwrap();
    let mut agent = Agent::start(&receiver, Some(spool));
    agent.send(1..=90).await;
    // Every third batch, each with one attempt: none is evicted while it is being sent.
    let (attempts, stored) = (receiver.attempts(), receiver.stored());
    assert!(stored.len() >= 29, "{stored:?}");
    assert!(attempts.len() - stored.len() <= 1, "{attempts:?}");
    assert!(stored.is_sorted());
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_spool_loses_points_and_nothing_else() {
    let (parent, receiver) = (folder(), Receiver::away());
    let dir = parent.path().join("spool");
    let mut agent = Agent::spooling(&receiver, &dir);
    std::fs::remove_dir(&dir).unwrap();
    agent.send(1..=20).await;
    // The first batch is still being sent from memory.
    assert_eq!(lost(&agent.vitals, Loss::SpoolBroken).batches, 19);
    std::fs::create_dir(&dir).unwrap();
    agent.send(21..=25).await;
    assert_eq!(agent.vitals.read().spooled_batches, 6);
    receiver.comes_back();
    agent
        .wait_until(|vitals| vitals.read().sent.batches == 6)
        .await;
    assert_eq!(receiver.stored(), [1, 21, 22, 23, 24, 25]);
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_spool_the_newest_points_are_dropped_and_counted() {
    let receiver = Receiver::away();
    let mut agent = Agent::start(&receiver, None);
    agent.send(1..=15).await;
    assert_eq!(lost(&agent.vitals, Loss::QueueFull).batches, 5);
    assert_eq!(agent.outbox.dropped(), 50);
    receiver.comes_back();
    agent
        .wait_until(|vitals| vitals.read().sent.batches == 10)
        .await;
    assert_eq!(receiver.stored(), (1..=10).collect::<Vec<_>>());
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_counted_and_does_not_block_others() {
    let (dir, receiver) = (folder(), Receiver::default());
    let refused = ExportError::Refused {
        reason: "malformed".to_owned(),
    };
    receiver.0.lock().unwrap().answers.push_back(refused);
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.send(1..=2).await;
    let vitals = Arc::clone(&agent.vitals);
    let report = agent.end(Duration::ZERO).await;
    assert_eq!(receiver.stored(), [2]);
    assert_eq!(lost(&vitals, Loss::Refused), Amount::batch(10));
    assert_eq!(report.refusal.as_deref(), Some("malformed"));
}

#[tokio::test(start_paused = true)]
async fn queued_batches_are_sent_before_the_deadline_if_possible() {
    let (dir, receiver) = (folder(), Receiver::default());
    let mut agent = Agent::spooling(&receiver, dir.path());
    for number in 1..=10 {
        agent.outbox.send(batch(number)).await;
    }
    let began = now();
    let report = agent.end(Duration::from_mins(1)).await;
    assert_eq!(report.batches_acked, 10);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn batches_that_cannot_be_sent_before_the_deadline_are_spooled() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    for number in 1..=3 {
        agent.outbox.send(batch(number)).await;
    }
    let (began, vitals) = (now(), Arc::clone(&agent.vitals));
    let report = agent.end(Duration::from_secs(2)).await;
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(report.points_dropped, 0);
    assert_eq!(vitals.read().spooled_batches, 3);
    let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
    assert_eq!(spool.front().unwrap().1.number, 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_spool_batches_unsent_at_the_deadline_are_counted() {
    let receiver = Receiver::away();
    let mut agent = Agent::start(&receiver, None);
    for number in 1..=3 {
        agent.outbox.send(batch(number)).await;
    }
    let vitals = Arc::clone(&agent.vitals);
    let report = agent.end(Duration::from_secs(2)).await;
    assert_eq!(report.points_dropped, 30);
    assert_eq!(lost(&vitals, Loss::Unsent).points, 30);
}

#[tokio::test(start_paused = true)]
async fn the_source_can_send_until_the_deadline_and_gets_false_afterwards() {
    let (dir, receiver) = (folder(), Receiver::default());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.shutdown.stop_within(Duration::from_secs(3));
    agent.send(1..=2).await;
    assert_eq!(receiver.stored(), [1, 2]);
    agent.running.await.unwrap();
    assert!(!agent.outbox.send(batch(3)).await);
    assert_eq!(lost(&agent.vitals, Loss::Unsent), Amount::batch(10));
}

#[tokio::test(start_paused = true)]
async fn a_later_deadline_replaces_the_first() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.outbox.send(batch(1)).await;
    agent.shutdown.stop_within(Duration::from_hours(1));
    let began = now();
    agent.end(Duration::ZERO).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_sender_without_a_source_ends_soon() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    agent.outbox.send(batch(1)).await;
    let began = now();
    drop(agent.outbox);
    agent.running.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(6));
    assert_eq!(agent.vitals.read().spooled_batches, 1);
}

#[tokio::test(start_paused = true)]
async fn lost_self_verdicts_are_counted() {
    let (dir, receiver) = (folder(), Receiver::away());
    let mut agent = Agent::spooling(&receiver, dir.path());
    for number in 1..=100 {
        agent.outbox.send_verdicts(verdict(number));
    }
    assert_eq!(agent.vitals.read().verdicts_lost, 36);
    assert_eq!(agent.outbox.verdicts_dropped(), 36);
    let vitals = Arc::clone(&agent.vitals);
    let report = agent.end(Duration::from_secs(1)).await;
    assert_eq!(vitals.read().verdicts_lost, 100);
    assert_eq!(report.verdicts.dropped, 64);
    let mut agent = Agent::spooling(&receiver, dir.path());
    receiver.comes_back();
    agent.outbox.send_verdicts(verdict(101));
    agent
        .wait_until(|vitals| vitals.read().verdicts_sent == 1)
        .await;
    assert_eq!(receiver.0.lock().unwrap().verdicts, 1);
    agent.end(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn points_and_verdicts_do_not_delay_each_other() {
    let receiver = Receiver::default();
    let mut agent = Agent::start(&receiver, None);
    agent.outbox.send_verdicts(verdict(1));
    agent.send(2..=3).await;
    let report = agent.end(Duration::from_secs(1)).await;
    assert_eq!((report.verdicts.sent, report.batches_acked), (1, 2));
}
