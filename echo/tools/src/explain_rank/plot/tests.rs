use echo_analysis::simulated::{Job, instant};

use super::super::tests::{concluded, explained, incident, late, over};
use super::{Explanation, of};
use crate::picture::{Format, render};

async fn culprit() -> Explanation {
    explained(&concluded(incident()).await, 2).await
}

fn svg(answer: &Explanation) -> String {
    let picture = render(&of(answer), Format::Svg).unwrap();
    String::from_utf8(picture.bytes).unwrap()
}

#[tokio::test]
async fn a_late_rank_is_drawn_with_its_peers_and_its_incident() {
    insta::assert_snapshot!(svg(&culprit().await));
}

#[tokio::test]
async fn points_lie_where_and_when_the_answer_says() {
    let answer = culprit().await;
    let figure = of(&answer);
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
async fn one_wild_block_does_not_flatten_the_others() {
    let mut answer = explained(&over(Job::with_ranks(4).events(20, late)).await, 2).await;
    answer.lag_series.points[0].peers_sigma_ms = Some(500.0);
    let figure = of(&answer);
    assert!(figure.value.to < 20.0, "{:?}", figure.value);
    assert!(figure.value.from > -20.0);
}

#[tokio::test]
async fn an_open_incident_is_marked_to_the_end_and_a_cleared_one_to_its_end() {
    let mut answer = culprit().await;
    let end = of(&answer).time.to;
    let (from, to) = of(&answer).spans[0];
    assert!(from > 0.0 && (to - end).abs() < 1e-9);
    let cleared = &mut answer.incidents[0].outlier.course;
    cleared.state = "cleared";
    cleared.cleared_at = Some(instant(800.0).to_string());
    let (_, to) = of(&answer).spans[0];
    assert!(from < to && to < end);
    let cleared = &mut answer.incidents[0].outlier.course;
    cleared.first_seen = "2020-01-01T00:00:00Z".to_owned();
    cleared.cleared_at = Some("2020-01-02T00:00:00Z".to_owned());
    assert_eq!(of(&answer).spans, [], "long before what is shown");
}

#[tokio::test]
async fn a_victim_is_marked_where_it_only_waits() {
    let answer = explained(&concluded(incident()).await, 3).await;
    let figure = of(&answer);
    assert_eq!(figure.spans.len(), 1);
    assert!(figure.legend.spans.contains("only waits"));
}

#[tokio::test]
async fn what_could_not_be_compared_interrupts_the_line() {
    let mut answer = explained(&over(Job::with_ranks(4).events(9, late)).await, 2).await;
    answer.lag_series.points[4].lag_ms = None;
    let figure = of(&answer);
    let lengths: Vec<usize> = figure.line.iter().map(Vec::len).collect();
    assert_eq!(lengths, [4, 4]);
    assert_eq!(figure.band.len(), 2);
}

#[tokio::test]
async fn without_points_the_plot_says_so() {
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
    render(&of(&answer), Format::Png).unwrap();
}

#[tokio::test]
async fn names_are_text_and_long_ones_are_cut_in_the_title_only() {
    let mut answer = culprit().await;
    answer.cluster = "<script>alert(1)</script>&\u{1}".to_owned();
    answer.who.node_id = "n".repeat(200);
    answer.summary = format!("On {} & more.", answer.who.node_id);
    let drawn = svg(&answer);
    assert!(!drawn.contains("<script"), "{drawn}");
    assert!(drawn.contains("&lt;script&gt;"), "{drawn}");
    assert!(!drawn.contains('\u{1}'));
    assert!(of(&answer).title.chars().count() < 110);
    assert!(drawn.contains(&"n".repeat(200)), "the description has it");
}
