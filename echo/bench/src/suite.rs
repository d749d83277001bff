//! Simulated cases.

use std::ops::Range;

use super::case::{Case, Sources, Telemetry};
use super::fault::{Fault, FaultKind};
use super::greyhound;
use super::mesh::Mesh;
use super::noise::NoiseModel;

/// A quiet machine.
pub const CALM: NoiseModel = NoiseModel {
    cv: 0.01,
    rho: 0.5,
    bias: 0.003,
    pauses: 0.005,
};

/// A usual machine: the noise of the goals.
pub const USUAL: NoiseModel = NoiseModel {
    cv: 0.02,
    rho: 0.8,
    bias: 0.005,
    pauses: 0.005,
};

/// Steps in which single faults are active, after more than twenty windows of 16 steps.
const FAULTY: Range<u32> = 400..560;

/// Steps of a job with a single fault.
const N_STEPS: u32 = 720;

/// A healthy job.
pub fn healthy(mesh: Mesh, noise: NoiseModel, sources: Sources, seed: u64) -> Case {
    // Large jobs collect garbage on all ranks together; otherwise some rank would always pause.
    let pauses = if mesh.n_ranks() > 64 {
        0.0
    } else {
        noise.pauses
    };
    let noise = NoiseModel { pauses, ..noise };
    let NoiseModel { cv, rho, .. } = noise;
    Case {
        group: "healthy".to_owned(),
        detail: "healthy".to_owned(),
        name: format!("healthy {mesh} {} cv {cv} rho {rho}", sources.name()),
        mesh,
        noise,
        faults: Vec::new(),
        sources,
        telemetry: Telemetry::CLEAN,
        step_ms: 200.0,
        block_steps: 4,
        n_steps: N_STEPS,
        seed,
    }
}

/// The job with one fault.
pub fn with_fault(job: Case, kind: FaultKind, severity: f64) -> Case {
    let n_ranks = u64::from(job.mesh.n_ranks());
    let rank = u32::try_from((job.seed * 5 + 4) % n_ranks).unwrap_or(0);
    let percent = (severity * 100.0).round();
    let fault = Fault {
        kind,
        rank,
        severity,
        steps: FAULTY,
    };
    Case {
        group: format!("{kind:?} seen by {}", job.sources.name()).to_lowercase(),
        detail: format!("{kind:?} {percent} %").to_lowercase(),
        name: job
            .name
            .replace("healthy", &format!("{kind:?} {percent} %").to_lowercase()),
        faults: vec![fault],
        ..job
    }
}

/// The job with two late hosts at once, one less late than the other.
pub fn with_two_late_hosts(job: Case, severity: f64) -> Case {
    let job = with_fault(job, FaultKind::Host, severity);
    let other = |first: &Fault| Fault {
        rank: (first.rank + 3) % job.mesh.n_ranks(),
        severity: first.severity * 0.7,
        ..first.clone()
    };
    let second: Vec<Fault> = job.faults.iter().map(other).collect();
    Case {
        group: "two hosts".to_owned(),
        detail: format!("two {}", job.detail),
        name: format!("two {}", job.name),
        faults: [job.faults.clone(), second].concat(),
        ..job
    }
}

/// The job with faults as Greyhound injected them, in steps of one second.
pub fn with_greyhound(job: Case, n_steps: u32) -> Case {
    Case {
        group: "greyhound".to_owned(),
        detail: "greyhound".to_owned(),
        name: job.name.replace("healthy", "greyhound"),
        faults: greyhound::schedule(job.mesh, job.seed, n_steps),
        step_ms: 1_000.0,
        block_steps: 1,
        n_steps,
        ..job
    }
}

/// Job with a late host on its last node and a telemetry fault.
pub fn with_telemetry_fault(job: Case, name: &str, telemetry: Telemetry, severity: f64) -> Case {
    let mut case = with_fault(job, FaultKind::Host, severity);
    for fault in &mut case.faults {
        fault.rank = case.mesh.n_ranks() - 1;
    }
    let (group, detail) = (format!("telemetry: {name}"), format!("telemetry: {name}"));
    let case = Case {
        n_steps: 600,
        ..case.reseeded()
    };
    let name = format!("{name}, {}", case.name);
    Case {
        group,
        detail,
        name,
        telemetry,
        ..case
    }
}

/// Telemetry faults by name.
pub fn telemetry_faults() -> [(&'static str, Telemetry); 7] {
    let clean = Telemetry::CLEAN;
    [
        ("nothing", clean),
        ("lost 10 %", Telemetry { lost: 0.1, ..clean }),
        ("late 10 %", Telemetry { late: 0.1, ..clean }),
        (
            "skew 10 s",
            Telemetry {
                skew_ms: 10_000.0,
                ..clean
            },
        ),
        ("sampled 1/8", Telemetry { one_in: 8, ..clean }),
        (
            "agent restart",
            Telemetry {
                restart: Some(40),
                ..clean
            },
        ),
        (
            "attached mid-run",
            Telemetry {
                attached: true,
                ..clean
            },
        ),
    ]
}

/// Cases of the tests: small jobs, every kind of fault once or twice.
pub fn quick(seed: u64) -> Vec<Case> {
    let mut cases = single_ranks(seed);
    cases.extend(meshes(seed));
    cases.extend(other_kinds(seed));
    let job = healthy(Mesh::replicas(8), CALM, Sources::Both, seed);
    cases.push(with_greyhound(job, 1_800));
    let own_luck = cases.into_iter().map(Case::reseeded);
    own_luck.chain(with_all_telemetry_faults(seed)).collect()
}

fn single_ranks(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for n in [2, 4, 8, 32] {
        let job = |noise, sources| healthy(Mesh::replicas(n), noise, sources, seed);
        cases.push(job(CALM, Sources::Host));
        cases.push(job(USUAL, Sources::Host));
        cases.push(job(USUAL, Sources::Device));
        if n == 2 {
            continue;
        }
        for severity in if n > 8 {
            vec![0.1]
        } else {
            vec![0.05, 0.1, 0.2, 0.5]
        } {
            cases.push(with_fault(
                job(CALM, Sources::Host),
                FaultKind::Host,
                severity,
            ));
            cases.push(with_fault(
                job(CALM, Sources::Device),
                FaultKind::Device,
                severity,
            ));
        }
        cases.push(with_fault(job(USUAL, Sources::Host), FaultKind::Host, 0.2));
    }
    cases
}

fn meshes(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let eight = Mesh::replicas(8);
    for severity in [0.1, 0.5] {
        for kind in [FaultKind::Host, FaultKind::Device] {
            cases.push(with_fault(
                healthy(eight, USUAL, Sources::Both, seed),
                kind,
                severity,
            ));
            for mesh in [Mesh::new(4, 1, 4), Mesh::new(2, 4, 4)] {
                let case = with_fault(healthy(mesh, CALM, Sources::Both, seed), kind, severity);
                let group = format!("mesh {mesh} seen by both");
                cases.push(Case { group, ..case });
            }
        }
    }
    cases
}

fn other_kinds(seed: u64) -> Vec<Case> {
    let by_host = |n| healthy(Mesh::replicas(n), CALM, Sources::Host, seed);
    let by_device = |mesh| healthy(mesh, CALM, Sources::Device, seed);
    let eight = Mesh::replicas(8);
    let mut cases = vec![with_fault(by_host(8), FaultKind::Every(32), 0.1)];
    for severity in [0.1, 0.5] {
        cases.push(with_fault(by_device(eight), FaultKind::Network, severity));
        cases.push(with_fault(by_host(8), FaultKind::Uniform, severity));
        cases.push(with_fault(
            by_device(Mesh::new(1, 4, 4)),
            FaultKind::Stage,
            severity,
        ));
        cases.push(with_fault(by_device(eight), FaultKind::Data, severity));
        cases.push(with_fault(by_host(8), FaultKind::Every(3), severity));
        cases.push(with_two_late_hosts(by_host(8), severity));
        cases.push(with_fault(by_host(32), FaultKind::Node, severity));
    }
    cases
}

/// The same job under each telemetry fault, so that the rows are comparable.
fn with_all_telemetry_faults(seed: u64) -> Vec<Case> {
    let job = |n, sources| healthy(Mesh::replicas(n), CALM, sources, seed);
    let by_host = telemetry_faults().map(|(name, telemetry)| {
        with_telemetry_fault(job(40, Sources::Host), name, telemetry, 0.2)
    });
    let sampled = telemetry_faults()
        .into_iter()
        .filter(|(_, telemetry)| telemetry.one_in > 1);
    let by_both = sampled.map(|(name, telemetry)| {
        with_telemetry_fault(job(16, Sources::Both), name, telemetry, 0.2)
    });
    by_host.into_iter().chain(by_both).collect()
}
