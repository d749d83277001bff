use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_bench::{delivery::EPOCH, real};
use std::collections::BTreeMap;
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let job = real::JOBS.iter().find(|j| j.name.contains(&name)).unwrap();
    let mut d = Detector::new(Settings::default());
    let mut rows: BTreeMap<_, f64> = BTreeMap::new();
    for delivery in real::deliveries(job, std::path::Path::new("testdata")).unwrap() {
        let out = d.observe(&delivery.events);
        for i in out.incidents {
            println!(
                "{:.1} {:?} {:?} {} eff {:.3} base {:.1} per {:.1}",
                (i.last_seen.value() - EPOCH.value()) as f64 / 1e9,
                i.state,
                i.first_seen.millis_since(EPOCH) / 1e3,
                i.reason,
                i.effect_ratio,
                i.baseline.period_ms(),
                i.period_ms
            );
        }
        for l in out.lost {
            rows.insert(
                (
                    (l.interval.from().value() - EPOCH.value()) / 100_000_000,
                    (l.interval.to().value() - EPOCH.value()) / 100_000_000,
                    l.incident,
                    l.node.clone(),
                ),
                l.lost_gpu_ms / 1e3,
            );
        }
    }
    for (k, v) in rows {
        println!(
            "{:.1}-{:.1} {} {v:.2}",
            k.0 as f64 / 10.,
            k.1 as f64 / 10.,
            k.3
        );
    }
}
