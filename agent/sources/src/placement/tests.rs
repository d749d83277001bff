use proptest::prelude::*;

use super::*;

const UID: &str = "6ac5b8a3-2f4e-4c4b-9d5e-0f1a2b3c4d5e";
const SLICE: &str = "kubepods-burstable-pod6ac5b8a3_2f4e_4c4b_9d5e_0f1a2b3c4d5e.slice";

fn container_id() -> String {
    "0123456789abcdef".repeat(4)
}

fn environ(variables: &[&str]) -> Vec<u8> {
    let ended = variables.iter().map(|variable| format!("{variable}\0"));
    ended.collect::<String>().into_bytes()
}

fn placement(variables: &[&str], cgroup: &str) -> Placement {
    Placement::parse(&environ(variables), cgroup, Network::Container)
}

fn ranks(variables: &[&str]) -> (Option<u32>, Option<u32>, Option<u32>) {
    let placement = placement(variables, "0::/\n");
    (placement.rank, placement.world_size, placement.local_rank)
}

fn pod_cgroup() -> String {
    format!(
        "0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{}.scope\n",
        container_id()
    )
}

#[test]
fn every_launcher_is_supported() {
    let reported = (Some(3), Some(8), Some(1));
    for variables in [
        ["RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1"],
        [
            "OMPI_COMM_WORLD_RANK=3",
            "OMPI_COMM_WORLD_SIZE=8",
            "OMPI_COMM_WORLD_LOCAL_RANK=1",
        ],
        ["PMI_RANK=3", "PMI_SIZE=8", "MPI_LOCALRANKID=1"],
        ["SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_LOCALID=1"],
    ] {
        assert_eq!(ranks(&variables), reported, "{variables:?}");
    }
}

#[test]
fn the_innermost_launcher_counts() {
    let nested = [
        "SLURM_PROCID=0",
        "SLURM_NTASKS=2",
        "SLURM_LOCALID=0",
        "RANK=5",
        "WORLD_SIZE=16",
        "LOCAL_RANK=5",
    ];
    assert_eq!(ranks(&nested), (Some(5), Some(16), Some(5)));
}

#[test]
fn rank_and_world_size_come_from_one_launcher_and_are_consistent() {
    let other = ["PMI_RANK=1", "PMI_SIZE=2"];
    for first in [
        ["RANK=0", "HOME=/"],
        ["RANK=8", "WORLD_SIZE=8"],
        ["RANK=-1", "WORLD_SIZE=8"],
        ["RANK=+1", "WORLD_SIZE=8"],
        ["RANK=0", "WORLD_SIZE=0"],
        ["RANK=0", "WORLD_SIZE=1048577"],
        ["RANK=0", "WORLD_SIZE=99999999999999999999"],
        ["RANK=1e0", "WORLD_SIZE=8"],
        ["RANK=", "WORLD_SIZE=8"],
    ] {
        let both: Vec<&str> = first.into_iter().chain(other).collect();
        assert_eq!(ranks(&both), (Some(1), Some(2), None), "{first:?}");
    }
    assert_eq!(
        ranks(&["RANK=1048575", "WORLD_SIZE=1048576"]).0,
        Some(1_048_575)
    );
}

#[test]
fn an_implausible_local_rank_is_ignored() {
    assert_eq!(
        ranks(&["RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=2"]),
        (Some(1), Some(2), None)
    );
}

#[test]
fn pmix_sets_only_the_rank() {
    assert_eq!(ranks(&["PMIX_RANK=4"]), (Some(4), None, None));
    assert_eq!(ranks(&["PMIX_RANK=4294967294"]), (None, None, None));
    assert_eq!(
        ranks(&["PMIX_RANK=4", "SLURM_PROCID=4", "SLURM_NTASKS=8"]).1,
        Some(8)
    );
}

#[test]
fn the_script_of_a_slurm_job_is_not_a_rank() {
    let variables = ["SLURM_JOB_ID=123", "SLURM_PROCID=0", "SLURM_NTASKS=8"];
    let in_step = |step: &str| {
        placement(
            &variables,
            &format!("0::/system.slice/slurmstepd.scope/job_123/{step}/user/task_0\n"),
        )
    };
    assert_eq!(in_step("step_batch").rank, None);
    assert_eq!(in_step("step_batch").job.as_deref(), Some("123"));
    assert_eq!(in_step("step_0").rank, Some(0));
}

#[test]
fn the_job_of_the_batch_system_precedes_run_ids() {
    let job = |variables: &[&str]| placement(variables, "0::/\n").job;
    assert_eq!(
        job(&["TORCHELASTIC_RUN_ID=100", "SLURM_JOB_ID=123"]).as_deref(),
        Some("123")
    );
    assert_eq!(
        job(&["TORCHELASTIC_RUN_ID=llama"]).as_deref(),
        Some("llama")
    );
    assert_eq!(
        job(&["TORCHELASTIC_RUN_ID=none", "PET_RDZV_ID=bert"]).as_deref(),
        Some("bert")
    );
    assert_eq!(job(&["TORCHELASTIC_RUN_ID=none"]), None);
    assert_eq!(
        job(&["SLURM_JOB_ID=", "SLURM_JOBID=9"]).as_deref(),
        Some("9")
    );
}

#[test]
fn the_slurm_job_is_taken_from_the_cgroup_without_an_environment_variable() {
    for cgroup in [
        "5:memory:/slurm/uid_1000/job_123/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service\n",
        "0::/system.slice/node1_slurmstepd.scope/job_123/step_0/user/task_0\n",
        "0::/../../job_123/step_extern\n",
    ] {
        assert_eq!(
            placement(&[], cgroup).job.as_deref(),
            Some("123"),
            "{cgroup}"
        );
    }
    for cgroup in ["0::/ci/job_123\n", "0::/job_x/step_0\n", "0::/step_0\n"] {
        assert_eq!(placement(&[], cgroup).job, None, "{cgroup}");
    }
}

#[test]
fn pod_variables_count_only_in_pods() {
    let variables = ["HOSTNAME=bert-worker-1", "JOB_NAME=bert"];
    let outside = placement(&variables, "0::/user.slice\n");
    assert_eq!((outside.pod, outside.job), (None, None));
    let inside = placement(&variables, &pod_cgroup());
    assert_eq!(inside.pod.as_deref(), Some("bert-worker-1"));
    assert_eq!(inside.job.as_deref(), Some("bert"));
    assert_eq!(inside.pod_uid.as_deref(), Some(UID));
}

#[test]
fn the_host_name_is_not_mistaken_for_a_pod() {
    let in_hosts_network =
        |variables: &[&str]| Placement::parse(&environ(variables), &pod_cgroup(), Network::Host);
    assert_eq!(in_hosts_network(&["HOSTNAME=node-7"]).pod, None);
    let reported = in_hosts_network(&["HOSTNAME=node-7", "POD_NAME=bert-1", "POD_NAMESPACE=team"]);
    assert_eq!(reported.pod.as_deref(), Some("bert-1"));
    assert_eq!(reported.namespace.as_deref(), Some("team"));
}

#[test]
fn pods_and_containers_are_found_in_all_path_formats() {
    let id = container_id();
    for path in [
        format!("/kubepods/burstable/pod{UID}/{id}"),
        format!("/kubepods/pod{UID}/{id}"),
        format!("/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{id}.scope"),
        format!("/kubepods.slice/{SLICE}/crio-{id}.scope/container"),
        format!("/kubepods.slice/{SLICE}/docker-{id}.scope"),
        format!("/system.slice/containerd.service/{SLICE}:cri-containerd:{id}"),
        format!("/../../{SLICE}/cri-containerd-{id}.scope"),
        format!("/kubelet.slice/kubelet-kubepods.slice/kubelet-{SLICE}/cri-containerd-{id}.scope"),
        format!("/docker/{}/kubelet/kubepods/pod{UID}/{id}", "f".repeat(64)),
    ] {
        for line in [
            format!("0::{path}\n"),
            format!("12:pids:/\n4:cpu,cpuacct:{path}\n"),
        ] {
            let placement = placement(&[], &line);
            assert_eq!(placement.pod_uid.as_deref(), Some(UID), "{line}");
            assert_eq!(placement.container.as_deref(), Some(id.as_str()), "{line}");
        }
    }
}

#[test]
fn containers_without_a_pod_are_found() {
    let id = container_id();
    for path in [
        format!("/docker/{id}"),
        format!("/system.slice/docker-{id}.scope"),
        format!("/machine.slice/libpod-{id}.scope/container"),
    ] {
        let placement = placement(&["HOSTNAME=abc"], &format!("0::{path}\n"));
        assert_eq!(placement.container.as_deref(), Some(id.as_str()), "{path}");
        assert_eq!((placement.pod_uid, placement.pod), (None, None), "{path}");
    }
    let monitor = placement(
        &[],
        &format!("0::/machine.slice/libpod-conmon-{id}.scope\n"),
    );
    assert_eq!(monitor.container, None);
}

#[test]
fn a_static_pod_has_a_hash_as_its_uid() {
    let hash = "0f1e2d3c4b5a69780f1e2d3c4b5a6978";
    assert_eq!(
        placement(&[], &format!("0::/kubepods/pod{hash}/x\n"))
            .pod_uid
            .as_deref(),
        Some(hash)
    );
    assert_eq!(
        placement(&[], "0::/tripod/pod-of-peas/kubepods\n").pod_uid,
        None
    );
}

#[test]
fn text_is_truncated_and_sanitized() {
    let pod = |value: &[u8]| {
        Placement::parse(
            &[b"POD_NAME=", value, b"\0"].concat(),
            "",
            Network::Container,
        )
        .pod
    };
    assert_eq!(pod(b"a\x1b[31mb\nc\td").as_deref(), Some("a[31mbcd"));
    assert_eq!(pod(&vec![b'x'; 1 << 20]).unwrap().len(), MAX_TEXT);
    assert_eq!(
        pod("\u{e9}".repeat(100).as_bytes()).unwrap(),
        "\u{e9}".repeat(64)
    );
    assert_eq!(pod(b"\xff\xfe").as_deref(), Some("\u{fffd}\u{fffd}"));
    assert_eq!(pod(b" \x01 "), None);
}

#[test]
fn the_address_of_ras_is_that_of_the_environment() {
    let set = placement(&["NCCL_RAS_ADDR=localhost:3000"], "");
    assert_eq!(set.ras_address.as_deref(), Some("localhost:3000"));
    assert_eq!(placement(&[], "").ras_address, None);
}

#[test]
fn device_lists_may_be_longer() {
    let list = vec!["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"; 16].join(",");
    let placement = placement(
        &[
            &format!("CUDA_VISIBLE_DEVICES={list}"),
            "NVIDIA_VISIBLE_DEVICES=all",
        ],
        "",
    );
    assert_eq!(placement.process_devices, Some(list));
    assert_eq!(placement.container_devices.as_deref(), Some("all"));
}

#[test]
fn the_first_of_duplicate_variables_counts_and_the_last_needs_no_terminator() {
    let placement = Placement::parse(
        b"RANK=1\0RANK=2\0=\0\0X\0RANKS=9\0WORLD_SIZE=4",
        "",
        Network::Container,
    );
    assert_eq!((placement.rank, placement.world_size), (Some(1), Some(4)));
}

/// Returns bytes that resemble variables, and bytes that do not.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(variable_names());
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        any::<i128>().prop_map(|number| number.to_string().into_bytes()),
        (0_u32..20).prop_map(|number| number.to_string().into_bytes()),
        any::<String>().prop_map(String::into_bytes),
    ];
    let variable =
        (name, value).prop_map(|(name, value)| [name.as_bytes(), b"=", &value, b"\0"].concat());
    let anything = prop::collection::vec(any::<u8>(), 0..64);
    prop::collection::vec(prop_oneof![4 => variable, 1 => anything], 0..40)
        .prop_map(|parts| parts.concat())
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        Just(SLICE.to_owned()),
        "(kubepods-)?pod[0-9a-f_-]{30,37}(\\.slice)?",
        "(docker-|crio-conmon-)?[0-9a-f]{63,65}(\\.scope)?",
        "(job|step)_[0-9]{1,25}",
    ]
}

proptest! {
    #[test]
    fn no_environment_and_no_cgroup_gives_nonsense(
        environ in hostile(),
        segments in prop::collection::vec(segment(), 0..8),
    ) {
        let cgroup = format!("0::/{}\n", segments.join("/"));
        let placement = Placement::parse(&environ, &cgroup, Network::Container);
        if let (Some(rank), Some(world_size)) = (placement.rank, placement.world_size) {
            prop_assert!(rank < world_size && world_size <= MAX_WORLD_SIZE);
        }
        prop_assert!(placement.world_size.is_none() || placement.rank.is_some());
        prop_assert!(placement.local_rank <= placement.world_size);
        let texts = [placement.job, placement.pod, placement.namespace, placement.pod_uid, placement.container];
        for text in texts.into_iter().flatten() {
            prop_assert!(!text.is_empty() && text.len() <= MAX_TEXT);
            prop_assert!(!text.contains(char::is_control));
        }
    }

    #[test]
    fn what_a_launcher_says_is_read_whatever_stands_around_it(
        world_size in 1..=MAX_WORLD_SIZE,
        share in 0.0..1.0_f64,
        noise in prop::collection::vec("[a-z]{1,8}=[^\0]{0,20}", 0..20),
    ) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32")]
        let rank = (share * f64::from(world_size)) as u32;
        let reported = [format!("RANK={rank}"), format!("WORLD_SIZE={world_size}")];
        let all: Vec<&str> = noise.iter().chain(&reported).map(String::as_str).collect();
        let placement = placement(&all, "");
        prop_assert_eq!((placement.rank, placement.world_size), (Some(rank), Some(world_size)));
    }
}
