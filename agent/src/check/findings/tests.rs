use std::collections::BTreeMap;

use fleet_agent_bpf::layout::Losses;
use fleet_agent_bpf::programs::Abilities;
use fleet_agent_sources::watch::{Health, Watched};

use super::*;
use crate::check::facts::Rank;
use crate::gpu::Gpu;
use crate::rdma::Port;

fn watching(mechanism: Mechanism) -> WatchFacts {
    WatchFacts {
        health: Health {
            abilities: Abilities {
                mechanism,
                no_host: None,
            },
            no_lifecycle: None,
            probed: Vec::new(),
            refused: BTreeMap::new(),
            unprobeable: Vec::new(),
            losses: Losses::default(),
        },
        libraries: Vec::new(),
        ranks: Vec::new(),
    }
}

/// A host without any limitation.
fn host() -> Facts {
    Facts {
        release: "6.8.0-45-generic".to_owned(),
        btf: Ok(()),
        capabilities: Some(0x1ff_ffff_ffff),
        bpf_fs: Ok(()),
        pid_namespace: Some(HOST_PID_NAMESPACE),
        lockdown: Some("none".to_owned()),
        needs_seccomp_guard: false,
        gpus: Some(vec![Gpu {
            index: 0,
            uuid: None,
            model: Some("NVIDIA H200".to_owned()),
        }]),
        ports: vec![Port {
            device: "mlx5_0".to_owned(),
            number: 1,
        }],
        watch: Ok(watching(Mechanism::UprobeMulti)),
    }
}

fn found(facts: &Facts, name: &str) -> Finding {
    let findings = from_facts(facts).findings;
    let found = findings.into_iter().find(|finding| finding.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn state(facts: &Facts, name: &str) -> State {
    found(facts, name).state
}

#[test]
fn a_host_without_limitations_gets_no_advice() {
    let report = from_facts(&host());
    let odd: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| finding.state != State::Ok || finding.advice.is_some())
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert!(report.can_run());
    assert!(
        report
            .to_string()
            .ends_with("The agent can run on this host.\n")
    );
    assert_eq!(report.to_json()["state"], "ok");
}

#[test]
fn without_bpf_programs_the_agent_cannot_run_and_the_missing_capabilities_are_named() {
    let facts = Facts {
        capabilities: Some(0),
        watch: Err("the kernel does not let this process load BPF programs".to_owned()),
        ..host()
    };
    let report = from_facts(&facts);
    assert!(!report.can_run());
    let missing = |finding: &&Finding| finding.state == State::Missing;
    let missing: Vec<&str> = report
        .findings
        .iter()
        .filter(missing)
        .map(|finding| finding.name)
        .collect();
    assert_eq!(missing, ["CAP_BPF", "CAP_PERFMON", "BPF programs"]);
    assert_eq!(report.to_json()["can_run"], false);
}

#[test]
fn every_finding_that_is_not_ok_has_advice() {
    let mut poor = watching(Mechanism::PerfEvent);
    poor.health.abilities.no_host = Some("no BTF".to_owned());
    poor.health.no_lifecycle = Some("forbidden".to_owned());
    poor.health.unprobeable = vec!["libnccl.so.2: forbidden".to_owned()];
    let poor = Facts {
        release: "5.10.0".to_owned(),
        btf: Err("gone".to_owned()),
        capabilities: None,
        bpf_fs: Err("gone".to_owned()),
        pid_namespace: Some(4_026_532_000),
        lockdown: Some("confidentiality".to_owned()),
        needs_seccomp_guard: true,
        gpus: None,
        ports: Vec::new(),
        watch: Ok(poor),
    };
    let report = from_facts(&poor);
    let is_sound = |finding: &Finding| (finding.state == State::Ok) == finding.advice.is_none();
    assert!(report.findings.iter().all(is_sound), "{report}");
    let degraded = |finding: &&Finding| finding.state == State::Degraded;
    assert_eq!(report.findings.iter().filter(degraded).count(), 17);
    assert!(report.can_run());
}

#[test]
fn one_capability_may_imply_another() {
    let facts = Facts {
        capabilities: Some(1 << SYS_ADMIN),
        ..host()
    };
    assert_eq!(state(&facts, "CAP_BPF"), State::Ok);
    assert_eq!(state(&facts, "CAP_SYS_PTRACE"), State::Degraded);
}

#[test]
fn cap_sys_admin_is_needed_only_where_the_kernel_probes_by_perf_events() {
    let few = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2 | 1 << 40;
    let mut facts = Facts {
        capabilities: Some(few),
        ..host()
    };
    assert_eq!(state(&facts, "CAP_SYS_ADMIN"), State::Ok);
    facts.watch = Ok(watching(Mechanism::PerfEvent));
    assert_eq!(state(&facts, "CAP_SYS_ADMIN"), State::Degraded);
    assert_eq!(state(&facts, "probes"), State::Degraded);
}

#[test]
fn kernels_are_rated_by_their_release() {
    let state_of = |release: &str| kernel(release).state;
    assert_eq!(
        [
            state_of("6.6.1"),
            state_of("5.15.0-91"),
            state_of("5.14.0-503.el9")
        ],
        [State::Ok, State::Ok, State::Degraded]
    );
    assert_eq!(state_of(""), State::Degraded);
}

#[test]
fn jobs_are_listed_with_their_ranks_and_unwatched_functions() {
    let mut watching = watching(Mechanism::UprobeMulti);
    watching.libraries = vec![Watched {
        path: "/opt/libnccl.so.2".to_owned(),
        functions: 14,
        refused: vec!["ncclGroupEnd"],
        users: vec![7, 8],
        has_collectives: true,
    }];
    let rank = |pid, place| Rank {
        pid,
        command: "python".to_owned(),
        place,
    };
    watching.ranks = vec![rank(7, Ok(Some((3, 4)))), rank(8, Ok(None))];
    let facts = Facts {
        watch: Ok(watching),
        ..host()
    };
    let library = found(&facts, "library");
    assert_eq!(
        library.detail,
        "/opt/libnccl.so.2: 14 functions, 2 processes; not watched: ncclGroupEnd"
    );
    assert_eq!(found(&facts, "rank").detail, "7 python: rank 3 of 4");
    assert!(
        from_facts(&facts)
            .to_string()
            .contains("8 python: rank unknown")
    );
}
