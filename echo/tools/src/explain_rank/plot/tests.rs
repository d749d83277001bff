use echo_analysis::simulated::{Job, instant};

use super::super::tests::{context_over, context_with_incident, explain, incident, late};
use super::{Explanation, figure};
use crate::picture::{Format, render};

async fn culprit() -> Explanation {
    explain(&context_with_incident(incident()).await, 2).await
}

fn svg(answer: &Explanation) -> String {
    let picture = render(&figure(answer), Format::Svg).unwrap();
    String::from_utf8(picture.bytes).unwrap()
}

#[tokio::test]
async fn a_late_rank_is_drawn_with_its_peers_and_its_incident() {
    insta::assert_snapshot!(svg(&culprit().await));
}

#[tokio::test]
async fn points_match_the_answer() {
    let answer = culprit().await;
    let figure = figure(&answer);
    let [line] = figure.line.as_slice() else {
        panic!("{:?}", figure.line)
    };
    let lags: Vec<f64> = answer
        .lag_series
        .points
        .iter()
        .filter_map(|point| point.lag_ms)
        .collect();
    assert_eq!(line.iter().map(|(_, lag)| *lag).collect::<Vec<_>>(), lags);
    assert!(
        line.iter()
            .all(|(at, _)| (0.0..=figure.time.to).contains(at))
    );
    let (_, half) = figure.band[0][0];
    let sigma = answer.lag_series.points[0].peers_sigma_ms.unwrap();
    assert!((half / sigma - 3.0).abs() < 1e-12);
}

#[tokio::test]
async fn one_outlier_block_does_not_flatten_the_others() {
    let mut answer = explain(&context_over(Job::with_ranks(4).events(20, late)).await, 2).await;
    answer.lag_series.points[0].peers_sigma_ms = Some(500.0);
    let figure = figure(&answer);
    assert!(figure.value.to < 20.0, "{:?}", figure.value);
    assert!(figure.value.from > -20.0);
}

#[tokio::test]
async fn an_open_incident_is_marked_to_the_end_of_the_axis_and_a_cleared_one_until_cleared() {
    let mut answer = culprit().await;
    let end = figure(&answer).time.to;
    let (from, to) = figure(&answer).spans[0];
    assert!(from > 0.0 && (to - end).abs() < 1e-9);
    let cleared = &mut answer.incidents[0].outlier.lifecycle;
    cleared.state = "cleared";
    cleared.cleared_at = Some(instant(800.0).to_string());
    let (_, to) = figure(&answer).spans[0];
    assert!(from < to && to < end);
    let cleared = &mut answer.incidents[0].outlier.lifecycle;
    cleared.first_seen = "2020-01-01T00:00:00Z".to_owned();
    cleared.cleared_at = Some("2020-01-02T00:00:00Z".to_owned());
    assert_eq!(figure(&answer).spans, [], "long before the axis");
}

#[tokio::test]
async fn a_block_without_a_comparison_interrupts_the_line() {
    let mut answer = explain(&context_over(Job::with_ranks(4).events(9, late)).await, 2).await;
    answer.lag_series.points[4].lag_ms = None;
    let figure = figure(&answer);
    let lengths: Vec<usize> = figure.line.iter().map(Vec::len).collect();
    assert_eq!(lengths, [4, 4]);
    assert_eq!(figure.band.len(), 2);
}

#[tokio::test]
async fn a_plot_without_points_has_a_message() {
    let mut answer = culprit().await;
    for point in &mut answer.lag_series.points {
        point.lag_ms = None;
    }
    let drawn = svg(&answer);
    assert!(
        drawn.contains("could not be compared with peers"),
        "{drawn}"
    );
    answer.lag_series.points.clear();
    let drawn = svg(&answer);
    assert!(
        drawn.contains("reported no block of collectives"),
        "{drawn}"
    );
    assert!(!drawn.contains("<polyline fill=\"none\" opacity=\"1\" stroke=\"#0D47A1\""));
    render(&figure(&answer), Format::Png).unwrap();
}

#[tokio::test]
async fn names_are_escaped_and_long_ones_are_shortened_in_the_title_only() {
    let mut answer = culprit().await;
    answer.cluster = "<script>alert(1)</script>&\u{1}".to_owned();
    answer.who.node_id = "n".repeat(200);
    answer.summary = format!("On {} & more.", answer.who.node_id);
    let drawn = svg(&answer);
    assert!(!drawn.contains("<script"), "{drawn}");
    assert!(drawn.contains("&lt;script&gt;"), "{drawn}");
    assert!(!drawn.contains('\u{1}'));
    assert!(figure(&answer).title.chars().count() < 110);
    assert!(
        drawn.contains(&"n".repeat(200)),
        "the description has the full name"
    );
}
