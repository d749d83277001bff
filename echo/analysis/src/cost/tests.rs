use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::LostTime;
use echo_core::units::{GpuTime, Hour, Nanos, Window};
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};

use super::{Loss, losses, within};

fn row(incident: u64, node: &str, seconds: (i64, i64), lost_gpu_ms: f64) -> LostTime {
    let second = |s: i64| Nanos::EARLIEST.offset(s * 1_000_000_000);
    LostTime {
        incident: IncidentId::new(incident),
        cluster: "c".parse().unwrap(),
        node: node.parse().unwrap(),
        gpu_model: Some(Arc::from("NVIDIA H200")),
        interval: Window::new(second(seconds.0), second(seconds.1)).unwrap(),
        n_ranks: 8,
        iterations: 10.0,
        lost_gpu_ms,
        peer_wait_gpu_ms: None,
        saved_gpu_ms: lost_gpu_ms,
    }
}

fn total(losses: &[Loss]) -> GpuTime {
    losses.iter().map(|loss| loss.time).sum()
}

#[test]
fn an_incident_that_gained_time_costs_nothing_and_offsets_no_other() {
    let rows = [
        row(1, "a", (0, 5), -500.0),
        row(1, "a", (5, 10), 200.0),
        row(2, "a", (0, 5), 700.0),
    ];
    let found = losses(&rows, &[]);
    assert_eq!(total(&found), GpuTime::from_millis(700.0));
    assert!(found.iter().all(|loss| loss.incident == IncidentId::new(2)));
}

#[test]
fn noise_in_single_intervals_cancels_out() {
    let rows = [row(1, "a", (0, 5), 300.0), row(1, "a", (5, 10), -100.0)];
    assert_eq!(
        total(&losses(&rows, &[Nanos::EARLIEST])),
        GpuTime::from_millis(200.0)
    );
}

#[test]
fn a_node_that_gained_time_lowers_the_losses_of_the_others() {
    let rows = [
        row(1, "a", (0, 5), 300.0),
        row(1, "b", (0, 5), 100.0),
        row(1, "c", (0, 5), -200.0),
    ];
    let times: Vec<GpuTime> = losses(&rows, &[Nanos::EARLIEST])
        .iter()
        .map(|loss| loss.time)
        .collect();
    assert_eq!(
        times,
        [GpuTime::from_millis(150.0), GpuTime::from_millis(50.0)]
    );
}

#[test]
fn an_interval_has_the_prices_of_its_start() {
    let change = Nanos::EARLIEST.offset(5_000_000_000);
    let rows = [
        row(1, "a", (0, 5), 10.0),
        row(1, "a", (4, 9), 20.0),
        row(1, "a", (5, 10), 40.0),
    ];
    let found = losses(&rows, &[Nanos::EARLIEST, change]);
    let priced: Vec<(Nanos, GpuTime)> = found
        .iter()
        .map(|loss| (loss.priced_at, loss.time))
        .collect();
    let expected = [
        (Nanos::EARLIEST, GpuTime::from_millis(30.0)),
        (change, GpuTime::from_millis(40.0)),
    ];
    assert_eq!(priced, expected);
}

#[test]
fn intervals_across_a_border_count_in_proportion() {
    let rows = [row(1, "a", (0, 10), 100.0), row(1, "a", (10, 20), 100.0)];
    let window = Window::new(
        Nanos::EARLIEST.offset(8_000_000_000),
        Nanos::EARLIEST.offset(15_000_000_000),
    );
    let lost = |spans: &BTreeMap<IncidentId, Window>| -> Vec<f64> {
        let rows = within(&rows, window.unwrap(), spans);
        rows.iter().map(|row| row.lost_gpu_ms).collect()
    };
    assert_eq!(lost(&BTreeMap::new()), [20.0, 50.0]);
    // The incident lasted from second 6 to second 15, so the window misses two of its seconds.
    let span = Window::new(
        Nanos::EARLIEST.offset(6_000_000_000),
        Nanos::EARLIEST.offset(15_000_000_000),
    );
    let spans = BTreeMap::from([(IncidentId::new(1), span.unwrap())]);
    assert_eq!(lost(&spans), [50.0, 100.0]);
}

fn any_rows() -> impl Strategy<Value = Vec<LostTime>> {
    let one = (0..4_u64, 0..3_usize, 0..100_i64, -1e6..1e7_f64);
    let made = one.prop_map(|(incident, node, start, lost)| {
        row(incident, ["a", "b", "c"][node], (start, start + 5), lost)
    });
    proptest::collection::vec(made, 0..60)
}

proptest! {
    #[test]
    fn parts_are_never_negative_and_add_up_to_the_clipped_incidents(rows in any_rows()) {
        let prices_from = [Nanos::EARLIEST, Nanos::EARLIEST.offset(50_000_000_000)];
        let found = losses(&rows, &prices_from);
        prop_assert!(found.iter().all(|loss| loss.time >= GpuTime::ZERO));
        for incident in (0..4).map(IncidentId::new) {
            let raw: GpuTime = rows
                .iter()
                .filter(|row| row.incident == incident)
                .map(|row| GpuTime::from_millis(row.lost_gpu_ms))
                .sum();
            let parts: GpuTime = found
                .iter()
                .filter(|loss| loss.incident == incident)
                .map(|loss| loss.time)
                .sum();
            prop_assert_eq!(parts, raw.max(GpuTime::ZERO));
        }
    }

    #[test]
    fn windows_cut_between_hours_add_up_exactly(
        rows in proptest::collection::vec(
            (0..4_u64, 0..3_usize, 0..4 * 3_600_i64, -1e6..1e7_f64).prop_map(
                |(incident, node, start, lost)| row(incident, ["a", "b", "c"][node], (start, start + 5), lost)
            ),
            0..80,
        ),
        cut in 0..5_i64,
    ) {
        let border = Nanos::EARLIEST.offset(cut * Hour::NANOS);
        let (before, after): (Vec<LostTime>, Vec<LostTime>) =
            rows.iter().cloned().partition(|row| row.interval.from() < border);
        let prices_from = [Nanos::EARLIEST];
        let mut parts = losses(&before, &prices_from);
        parts.extend(losses(&after, &prices_from));
        parts.sort();
        let mut whole = losses(&rows, &prices_from);
        whole.sort();
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn the_order_of_the_rows_does_not_matter(rows in any_rows()) {
        let mut turned = rows.clone();
        turned.reverse();
        prop_assert_eq!(losses(&rows, &[]).len(), losses(&turned, &[]).len());
        prop_assert_eq!(losses(&rows, &[Nanos::EARLIEST]), losses(&turned, &[Nanos::EARLIEST]));
    }

    #[test]
    fn losing_more_costs_more(rows in any_rows(), more in 1.0..1e6_f64) {
        let mut worse = rows.clone();
        worse.push(row(0, "a", (0, 5), more));
        let prices_from = [Nanos::EARLIEST];
        prop_assert!(total(&losses(&worse, &prices_from)) >= total(&losses(&rows, &prices_from)));
    }
}
