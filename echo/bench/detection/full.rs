//! Cases of the whole benchmark: every published parameter, large meshes, and days of healthy jobs.

use echo_bench::case::{Case, Sources};
use echo_bench::fault::FaultKind;
use echo_bench::mesh::Mesh;
use echo_bench::noise::NoiseModel;
use echo_bench::suite::{
    CALM, USUAL, healthy, telemetry_faults, with_fault, with_greyhound, with_telemetry_fault,
    with_two_late_hosts,
};

/// Published severities.
const SEVERITIES: [f64; 5] = [0.03, 0.05, 0.10, 0.20, 0.50];

/// Noise from a quiet machine to a rough one: variation, constant offsets and pauses.
const LEVELS: [(f64, f64, f64); 3] = [
    (0.01, 0.003, 0.005),
    (0.02, 0.005, 0.005),
    (0.03, 0.01, 0.01),
];

/// Correlations from step to step.
const RHOS: [f64; 4] = [0.0, 0.5, 0.8, 0.9];

/// All cases with one seed.
pub(crate) fn full(seed: u64) -> Vec<Case> {
    let mut cases = single_ranks(seed);
    cases.extend(other_kinds(seed));
    cases.extend(meshes(seed));
    cases.extend(soak(seed));
    for n in [4, 8, 64] {
        for noise in [CALM, USUAL] {
            let job = healthy(Mesh::replicas(n), noise, Sources::Both, seed);
            cases.push(with_greyhound(job, 7_200));
        }
    }
    let mut cases: Vec<Case> = cases.into_iter().map(Case::reseeded).collect();
    for (name, telemetry) in telemetry_faults() {
        // A restarted agent that knows no sequence numbers must leave enough ranks for a verdict.
        for (n, severity) in [(64, 0.1), (64, 0.2), (64, 0.5), (128, 0.1), (128, 0.2)] {
            for sources in [Sources::Host, Sources::Both] {
                let job = healthy(Mesh::replicas(n), CALM, sources, seed);
                cases.push(with_telemetry_fault(job, name, telemetry, severity));
            }
        }
    }
    cases
}

fn noises() -> impl Iterator<Item = NoiseModel> {
    let level = |(cv, bias, pauses)| {
        RHOS.map(|rho| NoiseModel {
            cv,
            rho,
            bias,
            pauses,
        })
    };
    LEVELS.into_iter().flat_map(level)
}

/// One late rank, by source, severity and noise; jobs of two ranks have rows of their own.
fn single_ranks(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, noise) in [2, 4, 8, 64]
        .into_iter()
        .flat_map(|n| noises().map(move |noise| (n, noise)))
    {
        let size = if n == 2 { "2 ranks" } else { "4 to 64 ranks" };
        let rough = format!("cv {:.0} %", noise.cv * 100.0);
        for sources in [Sources::Host, Sources::Device, Sources::Both] {
            let job = || healthy(Mesh::replicas(n), noise, sources, seed);
            let detail = format!("healthy by {}, {rough}, {size}", sources.name());
            cases.push(Case { detail, ..job() });
            let kinds = [
                (FaultKind::Host, sources.has_host()),
                (FaultKind::Device, sources.has_device()),
            ];
            for (kind, _) in kinds.into_iter().filter(|(_, is_visible)| *is_visible) {
                for severity in SEVERITIES {
                    let case = with_fault(job(), kind, severity);
                    let percent = format!("{:02.0} %", severity * 100.0);
                    let kind = format!("{kind:?}").to_lowercase();
                    let detail =
                        format!("{kind} by {}, {percent}, {rough}, {size}", sources.name());
                    let group = if n == 2 {
                        format!("{}, 2 ranks", case.group)
                    } else {
                        case.group.clone()
                    };
                    cases.push(Case {
                        group,
                        detail,
                        ..case
                    });
                }
            }
        }
    }
    cases
}

fn other_kinds(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (noise, severity) in [CALM, USUAL]
        .into_iter()
        .flat_map(|noise| [0.05, 0.1, 0.2, 0.5].map(|severity| (noise, severity)))
    {
        for n in [8, 64] {
            let job = |sources| healthy(Mesh::replicas(n), noise, sources, seed);
            for kind in [FaultKind::Network, FaultKind::Data] {
                cases.push(with_fault(job(Sources::Device), kind, severity));
                cases.push(with_fault(job(Sources::Both), kind, severity));
            }
            for kind in [
                FaultKind::Uniform,
                FaultKind::Every(3),
                FaultKind::Every(32),
            ] {
                cases.push(with_fault(job(Sources::Host), kind, severity));
            }
            cases.push(with_two_late_hosts(job(Sources::Host), severity));
        }
        let job = |mesh, sources| healthy(mesh, noise, sources, seed);
        cases.push(with_fault(
            job(Mesh::replicas(64), Sources::Host),
            FaultKind::Node,
            severity,
        ));
        for mesh in [Mesh::new(1, 4, 4), Mesh::new(2, 4, 8)] {
            cases.push(with_fault(
                job(mesh, Sources::Device),
                FaultKind::Stage,
                severity,
            ));
        }
    }
    cases
}

fn meshes(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let small = [Mesh::new(8, 1, 8), Mesh::new(2, 4, 8), Mesh::new(8, 4, 16)];
    for (mesh, noise) in small
        .into_iter()
        .flat_map(|mesh| [CALM, USUAL].map(|noise| (mesh, noise)))
    {
        for severity in [0.1, 0.2, 0.5] {
            for kind in [FaultKind::Host, FaultKind::Device] {
                cases.push(in_mesh(mesh, noise, kind, severity, seed));
            }
        }
    }
    let largest = Mesh::new(8, 8, 160);
    for kind in [FaultKind::Host, FaultKind::Device] {
        let case = in_mesh(largest, CALM, kind, 0.2, seed);
        cases.push(Case {
            block_steps: 8,
            n_steps: 600,
            ..case
        });
    }
    cases
}

fn in_mesh(mesh: Mesh, noise: NoiseModel, kind: FaultKind, severity: f64, seed: u64) -> Case {
    let case = with_fault(healthy(mesh, noise, Sources::Both, seed), kind, severity);
    let detail = format!("mesh {mesh}, {}", case.detail);
    Case {
        group: format!("mesh {mesh} seen by both"),
        detail,
        ..case
    }
}

/// Days of a large healthy job with the step time and the scatter of the production trace SE.
fn soak(seed: u64) -> Vec<Case> {
    let noise = NoiseModel {
        cv: 0.01,
        rho: 0.5,
        bias: 0.003,
        pauses: 0.0,
    };
    let soaked = |sources: Sources| Case {
        group: "healthy for days".to_owned(),
        detail: format!("healthy for days by {}", sources.name()),
        name: format!("soak by {}", sources.name()),
        step_ms: 9_000.0,
        block_steps: 2,
        n_steps: 10_000,
        ..healthy(Mesh::replicas(256), noise, sources, seed)
    };
    vec![soaked(Sources::Host), soaked(Sources::Device)]
}
