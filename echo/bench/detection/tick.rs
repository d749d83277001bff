//! Cost of one judgement: all ranks of a job report a block of 32 operations on three communicators
//! each.

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::ids::CommId;
use echo_core::model::event::StoredEvent;
use fleet_proto::metric;

use echo_bench::case::{Case, Sources};
use echo_bench::cpu;
use echo_bench::mesh::Mesh;
use echo_bench::simulation::Simulation;
use echo_bench::suite::{CALM, healthy};

/// Layouts from the replicas of one node to the largest mesh.
const MESHES: [Mesh; 3] = [
    Mesh::new(8, 1, 8),
    Mesh::new(8, 4, 32),
    Mesh::new(8, 8, 160),
];

/// Blocks before the measurement: they fill the window and the history.
const WARM: usize = 30;

/// Blocks that are timed.
const TIMED: usize = 9;

/// Steps in a block: 32 operations of the data parallel communicators, more of the others.
const STEPS: u32 = 8;

/// CPU seconds of one judgement by number of ranks, as a Markdown table.
pub(crate) fn markdown() -> anyhow::Result<String> {
    let mut lines = vec![
        "### One judgement\n".to_owned(),
        "| ranks | events | CPU, median | CPU, longest | per rank |\n|---|---|---|---|---|"
            .to_owned(),
    ];
    for mesh in MESHES {
        let (seconds, n_events) = timed(mesh)?;
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
        let longest = seconds.last().copied().unwrap_or(f64::NAN);
        let per_rank = median * 1e6 / f64::from(mesh.n_ranks());
        let ranks = mesh.n_ranks();
        lines.push(format!(
            "| {ranks} | {n_events} | {:.1} ms | {:.1} ms | {per_rank:.2} us |",
            median * 1e3,
            longest * 1e3,
        ));
    }
    Ok(lines.join("\n") + "\n\n")
}

/// Returns the sorted CPU seconds of the timed judgements, and the events of one judgement.
fn timed(mesh: Mesh) -> anyhow::Result<(Vec<f64>, usize)> {
    let job = healthy(mesh, CALM, Sources::Both, 1);
    let case = Case {
        block_steps: STEPS,
        n_steps: 400,
        ..job
    };
    let mut detector = Detector::new(Settings::default());
    let mut seconds = Vec::new();
    let mut n_events = 0;
    for (number, delivery) in Simulation::new(&case)?.take(WARM + TIMED).enumerate() {
        let events = with_third_communicator(delivery.events, mesh);
        n_events = events.len();
        let before = cpu::seconds();
        let output = detector.observe(&events);
        let took = cpu::seconds() - before;
        drop(output);
        if number >= WARM {
            seconds.push(took);
        }
    }
    seconds.sort_by(f64::total_cmp);
    Ok((seconds, n_events))
}

/// Adds a third communicator to every rank, such as a context parallel one, with the second's waits.
fn with_third_communicator(events: Vec<StoredEvent>, mesh: Mesh) -> Vec<StoredEvent> {
    let mut all = Vec::with_capacity(events.len() + events.len() / 6);
    for stored in events {
        let mut third = None;
        if stored.event.metric.as_str() == metric::WAIT
            && let (Some(about), Some(rank)) = (&stored.event.block, stored.event.origin.rank)
            && about.comm == mesh.dp_comm(rank.rank().value())
        {
            let mut copy = stored.clone();
            if let Some(block) = &mut copy.event.block {
                block.comm = CommId::new(block.comm.value() ^ 0xc0_0000_0000_0000);
            }
            third = Some(copy);
        }
        all.extend(third);
        all.push(stored);
    }
    all
}
