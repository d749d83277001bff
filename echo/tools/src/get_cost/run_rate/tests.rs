mod properties;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use echo_core::clock::ManualClock;
use echo_core::ids::{IncidentId, RankInJob};
use echo_core::model::detector_output::{DetectorOutput, Incident, IncidentState, LostTime};
use echo_core::model::event::{BatchKey, EventBatch, Origin};
use echo_core::units::Window;

use super::super::GetCost;
use super::super::answer::Cost;
use super::super::by_cluster::losses_by_cluster;
use crate::ToolContext;
use crate::fixture::{at, batch, context, culprit, empty, lost};
use crate::tool::Tool;

/// GPU-hours per hour of the fixture: four GPUs lose a tenth of their time.
const OF_LLAMA: f64 = 0.4;

/// Reports of another job of the cluster.
fn other_job(n_ranks: u32, reported: Range<u32>, seconds: RangeInclusive<i64>) -> EventBatch {
    let mut other = batch(reported, seconds);
    other.key = BatchKey::Content(10_000);
    for event in &mut other.events {
        let rank = i64::from(event.origin.rank.unwrap().rank().value());
        event.origin = Arc::new(Origin {
            job: Some("other".parse().unwrap()),
            node: "node-7".parse().unwrap(),
            rank: Some(RankInJob::new(rank, Some(n_ranks.into())).unwrap()),
            ..Origin::clone(&event.origin)
        });
    }
    other
}

/// Incident of the other job.
fn other_incident() -> Incident {
    Incident {
        id: IncidentId::new(0x18),
        job: Some("other".parse().unwrap()),
        ..culprit()
    }
}

/// All of the time of four GPUs is lost to the other job in these seconds.
fn all_lost(seconds: Range<i64>) -> DetectorOutput {
    let incident = other_incident();
    let rows = seconds.step_by(5).map(|second| LostTime {
        n_ranks: 4,
        lost_gpu_ms: 20_000.0,
        ..lost(&incident, "node-7", Some("NVIDIA H200"), second)
    });
    DetectorOutput {
        lost: rows.collect(),
        incidents: vec![incident],
        ..DetectorOutput::default()
    }
}

async fn cost(context: &ToolContext) -> Cost {
    let tool = GetCost {
        window: Some("15m".parse().unwrap()),
        ..GetCost::default()
    };
    let answer = tool.run(context).await.unwrap();
    let scraped = losses_by_cluster(context, Window::new(at(-300), at(600)).unwrap()).await;
    let scraped = &scraped.unwrap()[&"prod".parse().unwrap()];
    // What `/metrics` says.
    let per_hour = scraped.per_hour.as_ref().map(|loss| loss.gpu_hours);
    assert_eq!(per_hour, answer.lost_gpu_hours_per_hour);
    answer
}

fn assert_near(found: Option<f64>, expected: f64, why: &str) {
    let is_near = found.is_some_and(|found| (found / expected - 1.0).abs() < 1e-6);
    assert!(is_near, "{why}: {found:?} instead of {expected}");
}

#[tokio::test]
async fn no_job_changes_the_figures_of_another_one() {
    let others = [
        ("that begins", other_job(4, 0..4, 590..=600)),
        ("of which few ranks report", other_job(64, 0..4, 590..=600)),
        ("that has ended", other_job(4, 0..4, 0..=400)),
        ("that ends", other_job(4, 0..4, 0..=560)),
        ("that is delayed", other_job(4, 0..4, 300..=575)),
        ("with a rank alone", other_job(1, 0..1, 0..=600)),
    ];
    for (why, events) in others {
        let context = context().await;
        context.store.append(events).await.unwrap();
        let answer = cost(&context).await;
        assert_near(answer.lost_gpu_hours_per_hour, OF_LLAMA, why);
        assert_near(answer.run_rate_per_hour, OF_LLAMA * 3.8, why);
    }
}

#[tokio::test]
async fn the_rates_of_jobs_add_up_and_none_loses_more_gpus_than_it_has() {
    // Its horizon is as long as it has reported.
    for begin in [570, 590] {
        let context = context().await;
        context
            .store
            .append(other_job(4, 0..4, begin..=600))
            .await
            .unwrap();
        context
            .store
            .store_verdicts(all_lost(begin..600))
            .await
            .unwrap();
        let answer = cost(&context).await;
        assert_near(answer.lost_gpu_hours_per_hour, OF_LLAMA + 4.0, "began");
    }
    // Of a job that has ended, nothing is lost now.
    let context = context().await;
    context
        .store
        .append(other_job(4, 0..4, 0..=500))
        .await
        .unwrap();
    context
        .store
        .store_verdicts(all_lost(400..500))
        .await
        .unwrap();
    let answer = cost(&context).await;
    assert_near(answer.lost_gpu_hours_per_hour, OF_LLAMA, "ended");
}

#[tokio::test]
async fn clocks_that_differ_by_seconds_change_the_rate_by_their_part_of_the_horizon() {
    let context = empty();
    for rank in 0..4 {
        let mut events = batch(rank..rank + 1, 0..=600);
        for event in &mut events.events {
            event.timestamp = event
                .timestamp
                .offset((i64::from(rank) * 2 - 3) * 4_000_000_000);
        }
        events.key = BatchKey::Content(20_000 + u128::from(rank));
        context.store.append(events).await.unwrap();
    }
    context
        .store
        .store_verdicts(crate::fixture::detector_output())
        .await
        .unwrap();
    let answer = cost(&context).await;
    let rate = answer.lost_gpu_hours_per_hour.unwrap();
    assert!((rate / OF_LLAMA - 1.0).abs() < 0.05, "{rate}");
    assert_eq!(answer.contributors[0].rank, Some(2));
}

#[tokio::test]
async fn what_a_job_loses_of_which_few_ranks_report_is_unknown_and_so_is_the_sum() {
    let context = context().await;
    let few = other_job(64, 0..4, 500..=600);
    context.store.append(few).await.unwrap();
    let lost = all_lost(500..600);
    context.store.store_verdicts(lost).await.unwrap();
    assert_eq!(cost(&context).await.lost_gpu_hours_per_hour, None);
}

/// Ten minutes of the job with an incident that lost these rows.
async fn context_with(incident: Incident, rows: Vec<LostTime>) -> ToolContext {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let output = DetectorOutput {
        lost: rows,
        incidents: vec![incident],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

/// The rank is late from this second on, and this is known up to another one.
fn late(first: i64, last: i64) -> Incident {
    Incident {
        first_seen: at(first),
        last_seen: at(last),
        ..culprit()
    }
}

/// A tenth of the time of four GPUs, lost in these seconds.
fn tenth(incident: &Incident, seconds: Range<i64>) -> impl Iterator<Item = LostTime> {
    seconds.step_by(5).map(|second| LostTime {
        n_ranks: 4,
        lost_gpu_ms: 2_000.0,
        ..lost(incident, "node-0", Some("NVIDIA H200"), second)
    })
}

#[tokio::test]
async fn what_an_incident_loses_per_hour_does_not_depend_on_how_long_it_is_open() {
    for first in [575, 545, 500, 300, 100] {
        // The latest evaluation is some seconds old.
        let incident = late(first, 590);
        let rows: Vec<_> = tenth(&incident, first..590).collect();
        let context = context_with(incident, rows).await;
        let answer = cost(&context).await;
        let why = format!("since {first}");
        assert_near(answer.lost_gpu_hours_per_hour, OF_LLAMA, &why);
        assert_near(
            answer.contributors[0].run_rate_per_hour,
            OF_LLAMA * 3.8,
            &why,
        );
    }
}

#[tokio::test]
async fn a_hang_costs_all_of_its_gpus_from_the_beginning() {
    let hang = late(560, 600);
    let whole = LostTime {
        interval: Window::new(at(560), at(600)).unwrap(),
        lost_gpu_ms: 160_000.0,
        ..lost(&hang, "node-0", Some("NVIDIA H200"), 560)
    };
    let context = context_with(hang, vec![whole]).await;
    assert_near(cost(&context).await.lost_gpu_hours_per_hour, 4.0, "hang");
}

#[tokio::test]
async fn what_a_fault_that_comes_and_goes_loses_per_hour_is_its_mean() {
    let incident = late(200, 565);
    let bursts = (200..590).step_by(30);
    let rows: Vec<_> = bursts
        .flat_map(|begin| tenth(&incident, begin..begin + 5))
        .collect();
    let context = context_with(incident, rows).await;
    let rate = cost(&context).await.lost_gpu_hours_per_hour.unwrap();
    assert!((rate / (OF_LLAMA / 6.0) - 1.0).abs() < 0.1, "{rate}");
}

#[tokio::test]
async fn an_incident_that_has_ended_loses_nothing_per_hour() {
    let ended = Incident {
        state: IncidentState::Cleared,
        cleared_at: Some(at(550)),
        ..late(400, 549)
    };
    let rows: Vec<_> = tenth(&ended, 400..550).collect();
    let context = context_with(ended, rows).await;
    let answer = cost(&context).await;
    assert!(answer.lost_gpu_hours > 0.0);
    assert_eq!(answer.run_rate_per_hour, Some(0.0));
    // Before that it did.
    let earlier = GetCost {
        to: Some("now-60s".parse().unwrap()),
        ..GetCost::default()
    };
    let answer = earlier.run(&context).await.unwrap();
    assert_near(answer.lost_gpu_hours_per_hour, OF_LLAMA, "before its end");
}

#[tokio::test]
async fn a_job_that_has_ended_loses_nothing_per_hour_now_but_did_at_its_end() {
    let clock = ManualClock::at(at(600));
    let context = ToolContext {
        clock: Arc::new(clock.clone()),
        ..context().await
    };
    let run = async |tool: GetCost| tool.run(&context).await.unwrap();
    let hour = GetCost::default;
    let all = || GetCost {
        window: Some("all".parse().unwrap()),
        ..GetCost::default()
    };
    let until_end = GetCost {
        to: Some(at(600).to_string().parse().unwrap()),
        ..GetCost::default()
    };
    for tool in [hour(), all()] {
        assert_eq!(run(tool).await.run_rate_per_hour, Some(1.52), "it runs");
    }
    clock.set(at(1_500));
    for (tool, is_stale) in [(hour(), true), (all(), false)] {
        let answer = run(tool).await;
        assert_eq!(answer.run_rate_per_hour, Some(0.0));
        assert_eq!(answer.lost_gpu_hours_per_hour, Some(0.0));
        assert_eq!(answer.by_currency[0].run_rate_per_hour, Some(0.0));
        assert_eq!(answer.contributors[0].run_rate_per_hour, None);
        assert_eq!(answer.stale, is_stale);
        assert!(answer.window_total > Some(0.0));
    }
    assert_eq!(run(until_end).await.run_rate_per_hour, Some(1.52));
    // `/metrics` has none of a cluster without recent events.
    let window = Window::new(at(0), at(1_500)).unwrap();
    let scraped = losses_by_cluster(&context, window).await.unwrap();
    assert_eq!(scraped[&"prod".parse().unwrap()].per_hour, None);
}

#[tokio::test]
async fn when_every_job_has_ended_and_their_hosts_still_report_nothing_is_lost_now() {
    let context = context().await;
    let clock = ManualClock::at(at(900));
    let context = ToolContext {
        clock: Arc::new(clock),
        ..context
    };
    let mut hosts = batch(0..1, 605..=900);
    for event in &mut hosts.events {
        event.origin = Arc::new(Origin {
            job: None,
            rank: None,
            ..Origin::clone(&event.origin)
        });
    }
    context.store.append(hosts).await.unwrap();
    let answer = GetCost::default().run(&context).await.unwrap();
    assert_eq!((answer.run_rate_per_hour, answer.stale), (Some(0.0), false));
}
