//! Attaching to jobs, whenever and however they load their libraries.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use fleet_agent_bpf::programs::Mechanism;
use fleet_agent_core::event::{CallKind, Event, Process};
use fleet_agent_sources::watch::WatchSettings;

use crate::PROBES;
use crate::fixture::{Gpu, Linking, Observer, settings};
use crate::job::{assert_no_failures, wait_for};

fn traces_all(linking: Linking, settings: &WatchSettings) {
    let gpu = Gpu::new();
    let mut observer = Observer::new(settings);
    let job = gpu.job(linking, 3, 40, &["ops=3", "step=1"]);
    observer.follow(&job);
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn a_job_that_starts_after_the_agent_is_traced_completely() {
    traces_all(Linking::Dynamic, &settings());
}

#[test]
#[needs(PROBES)]
fn a_statically_linked_program_is_traced() {
    traces_all(Linking::Static, &settings());
}

#[test]
#[needs(PROBES)]
fn a_job_on_rccl_and_hip_is_traced_like_one_on_nccl() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let job = gpu.job(Linking::Hip, 2, 40, &["ops=3", "step=1"]);
    let pids = job.pids();
    observer.follow(&job);
    let is_wait =
        |event: &Event| matches!(event, Event::Call(call) if call.kind == CallKind::Synchronize);
    for pid in pids {
        assert!(observer.events_of(pid).any(is_wait));
    }
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn one_perf_event_per_function_traces_the_same() {
    let perf = WatchSettings {
        mechanism: Some(Mechanism::PerfEvent),
        ..settings()
    };
    traces_all(Linking::Dynamic, &perf);
}

#[test]
#[needs(PROBES)]
fn a_job_that_loaded_its_libraries_before_the_agent_is_traced() {
    let gpu = Gpu::new();
    let job = gpu.job(Linking::Dynamic, 2, 40, &["step=1"]);
    let mapped = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/maps"))
            .unwrap()
            .contains("libnccl")
    };
    wait_for("the library in all ranks", || {
        let has_mapped: Vec<bool> = job.pids().iter().map(mapped).collect();
        let is_enough = has_mapped.iter().all(|has| *has);
        if is_enough {
            Ok(())
        } else {
            Err(format!("{has_mapped:?}"))
        }
    });
    let mut observer = Observer::new(&settings());
    observer.follow(&job);
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn ranks_are_those_of_the_launcher() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let job = gpu.job(Linking::Dynamic, 3, 5, &[]);
    let pids = job.pids();
    observer.follow(&job);
    for (pid, rank) in pids.into_iter().zip(0..) {
        let started = observer.events_of(pid).find_map(|event| match event {
            Event::Started(started) => Some(started.process),
            _ => None,
        });
        assert_eq!(
            started,
            Some(Process {
                pid,
                rank,
                world_size: 3
            })
        );
    }
}

#[test]
#[needs(PROBES)]
fn a_long_wait_is_reported_before_it_ends() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let begin = gpu.gate("begin");
    // Rank 1 is late to the first step, by far more than the agent's longest pause.
    let job = gpu.job(
        Linking::Dynamic,
        2,
        3,
        &["slow=1:1500:0:1", &format!("begin={}", begin.display())],
    );
    fs::write(begin, "").unwrap();
    let pids = job.pids();
    observer.follow(&job);
    let of_wait = |event: &&Event| {
        matches!(event, Event::Entered(half) if half.kind == CallKind::Synchronize)
            || matches!(event, Event::Returned(half) if half.kind == CallKind::Synchronize)
    };
    let halves: Vec<&Event> = observer.events_of(pids[0]).filter(of_wait).collect();
    let [Event::Entered(entered), Event::Returned(returned), ..] = halves[..] else {
        panic!("{halves:?}");
    };
    assert_eq!((entered.ts_ns, entered.tid), (returned.ts_ns, returned.tid));
    // Sums are stamped when they are read, also before calls that happened earlier.
    let is_sum = |event: &&Event| {
        matches!(
            event,
            Event::Activity(_) | Event::Delays(_) | Event::CallDurations(_)
        )
    };
    let times: Vec<u64> = observer
        .events_of(pids[0])
        .filter(|event| !is_sum(event))
        .map(Event::ts_ns)
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
#[needs(PROBES)]
fn copies_and_launches_are_counted_once_each() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let job = gpu.job(Linking::Dynamic, 2, 50, &["ops=3", "step=1"]);
    let pids = job.pids();
    observer.follow(&job);
    for pid in pids {
        let (mut launches, mut to_device) = (0, 0);
        for event in observer.events_of(pid) {
            if let Event::Activity(measured) = event {
                launches += measured.activity.launches.unwrap_or(0);
                to_device += measured
                    .activity
                    .memcpy_bytes
                    .map_or(0, |bytes| bytes.to_device);
            }
        }
        // The first copy precedes the first NCCL operation, but follows the join of the
        // communicator.
        assert_eq!((launches, to_device), (150, 50 * 4096));
    }
}

#[test]
#[needs(PROBES)]
fn rdma_events_are_counted_in_the_library_version_that_the_rank_uses() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    // The device reports five port failures.
    let mut job = gpu.job(Linking::Dynamic, 1, 5, &["rdma=10"]);
    job.libraries = 3;
    let pids = job.pids();
    observer.follow(&job);
    let errors = observer.events_of(pids[0]).filter_map(|event| match event {
        Event::Activity(measured) => measured.activity.rdma_errors,
        _ => None,
    });
    assert_eq!(errors.sum::<u64>(), 5);
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn a_job_whose_library_is_changed_in_place_restarts_without_sequence_numbers() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&WatchSettings {
        rescan: Duration::from_millis(200),
        ..settings()
    });
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 1, 0, &["step=1", &end]);
    job.release();
    let pid = job.pids()[0];
    let has_begun = |observer: &Observer| observer.collectives(pid).len() > 20;
    observer.until("20 collectives", has_begun);
    let library = fs::File::options()
        .write(true)
        .open(gpu.path().join("libnccl.so.2"))
        .unwrap();
    library.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let is_over = |event: &Event| matches!(event, Event::Ended(_));
    observer.until("the end of the process", |observer| {
        observer.events_of(pid).any(is_over)
    });
    observer.events.clear();
    observer.until("20 collectives again", has_begun);
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    // Its calls in between were not counted, so no number can be right.
    let numbers = observer.collectives(pid).into_iter().map(|seen| seen.seq);
    assert!(numbers.into_iter().all(|seq| seq.is_none()));
}

#[test]
#[needs(PROBES)]
fn attaching_and_detaching_probes_does_not_affect_a_running_job() {
    let gpu = Gpu::new();
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 2, 0, &["ops=50", "step=0", &end]);
    job.release();
    for _ in 0..5 {
        let mut observer = Observer::new(&settings());
        let before = observer.live.watched().len();
        observer.until("a probed library or an event", |observer| {
            before + observer.events.len() > 0
        });
        observer.live.clear();
        assert_no_failures();
    }
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
}

#[test]
#[needs(PROBES)]
fn a_split_communicator_has_the_same_id_on_its_members_and_another_elsewhere() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 4, 0, &["split", &end]);
    let pids = job.pids();
    observer.release(&job);
    // The sizes of the parts are read from the memory of the ranks, which must still run.
    observer.until("two communicators of each rank", |observer| {
        pids.iter().all(|pid| observer.inits(*pid).len() == 2)
    });
    fs::write(gpu.gate("end"), "").unwrap();
    observer.until_ended(&pids);
    let parts: Vec<u64> = pids
        .iter()
        .map(|pid| observer.inits(*pid)[1].unique_id)
        .collect();
    assert_eq!((parts[0], parts[1]), (parts[2], parts[3]));
    assert_ne!(parts[0], parts[1]);
    // Rank and size are not arguments of a split; they are read from the communicator.
    let places: Vec<(u32, u32)> = pids
        .iter()
        .map(|pid| (observer.inits(*pid)[1].rank, observer.inits(*pid)[1].nranks))
        .collect();
    assert_eq!(places, [(0, 2), (0, 2), (1, 2), (1, 2)]);
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn a_function_that_a_probe_would_slow_down_is_skipped_and_reported() {
    let gpu = Gpu::new();
    // Replaces the first instruction of one function by `xor %eax,%eax`.
    let library = gpu.path().join("libnccl.so.2");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&library)
        .unwrap();
    let place =
        fleet_agent_sources::symbols::find(&file, &["ncclBroadcast"]).unwrap()["ncclBroadcast"];
    file.write_all_at(&[0x31, 0xc0], place.offset).unwrap();
    drop(file);
    let mut observer = Observer::new(&settings());
    let job = gpu.job(Linking::Dynamic, 1, 5, &[]);
    observer.follow(&job);
    let refused = observer.live.health().refused;
    assert_eq!(
        refused.into_values().collect::<Vec<_>>(),
        [["ncclBroadcast"]]
    );
    observer.assert_saw_all(&job.issued());
}

#[test]
#[needs(PROBES)]
fn a_replaced_library_is_probed_as_the_new_file() {
    let gpu = Gpu::new();
    let mut observer = Observer::new(&settings());
    let first = gpu.job(Linking::Dynamic, 1, 5, &[]);
    observer.follow(&first);
    let library = gpu.path().join("libnccl.so.2");
    let newer = gpu.path().join("newer");
    fs::copy(&library, &newer).unwrap();
    fs::rename(newer, library).unwrap();
    let second = gpu.job(Linking::Dynamic, 1, 5, &["job=2"]);
    observer.follow(&second);
    observer.assert_saw_all(&first.issued());
    observer.assert_saw_all(&second.issued());
}

#[test]
#[needs(PROBES)]
fn many_processes_with_separate_libraries_are_deferred_and_a_job_is_still_traced() {
    const STORM: usize = 200;
    let gpu = Gpu::new();
    let library = gpu.path().join("libnccl.so.2");
    let copies: Vec<_> = (0..STORM)
        .map(|number| {
            let folder = gpu.path().join(format!("storm-{number}"));
            fs::create_dir(&folder).unwrap();
            let copy = folder.join("libnccl.so.2");
            fs::copy(&library, &copy).unwrap();
            copy
        })
        .collect();
    let mut observer = Observer::new(&WatchSettings {
        // Longer than a process of the storm lasts.
        rescan: Duration::from_secs(2),
        ..settings()
    });
    let before = observer.live.watched().len();
    let mut storm = Vec::new();
    for some in copies.chunks(4) {
        storm.extend(some.iter().map(|copy| {
            let mut sleep = Command::new("sleep");
            sleep.arg("1").env("LD_PRELOAD", copy).spawn().unwrap()
        }));
        observer.live.poll();
    }
    let job = gpu.job(Linking::Dynamic, 2, 5, &[]);
    observer.follow(&job);
    observer.assert_saw_all(&job.issued());
    let of_storm = observer.live.watched().len() - before;
    assert!((30..90).contains(&of_storm), "{of_storm} files are probed");
    assert!(
        observer.live.deferred_files() >= 110,
        "{}",
        observer.live.deferred_files()
    );
    for process in &mut storm {
        process.wait().unwrap();
    }
}

#[test]
#[needs(PROBES)]
fn no_event_is_lost_while_a_large_program_is_inspected() {
    let gpu = Gpu::new();
    let mut program = large_program(gpu.path());
    let mut observer = Observer::new(&settings());
    let begin = gpu.gate("begin");
    let gate = format!("begin={}", begin.display());
    // Twice as many events as the ring holds.
    let job = gpu.job(Linking::Dynamic, 2, 500, &["ops=20", "step=0", &gate]);
    observer.release(&job);
    let mut running = program.spawn().unwrap();
    fs::write(begin, "").unwrap();
    observer.until_ended(&job.pids());
    running.kill().unwrap();
    running.wait().unwrap();
    observer.assert_saw_all(&job.issued());
}

/// Program with names of 100 MB, which waits.
fn large_program(folder: &Path) -> Command {
    let [names, main, program] = ["names.s", "main.c", "large"].map(|name| folder.join(name));
    let long = "n".repeat(25_000_000);
    let lines: Vec<String> = (0..4).map(|n| format!(".set {long}{n}, {n}\n")).collect();
    let mark = ".section .note.GNU-stack, \"\", %progbits\n";
    fs::write(&names, lines.concat() + mark).unwrap();
    fs::write(&main, "int pause(void); int main(void) { return pause(); }").unwrap();
    let mut cc = Command::new("cc");
    let status = cc.arg("-o").args([&program, &main, &names]).status();
    assert!(status.unwrap().success());
    Command::new(program)
}
