use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use super::*;

/// Two GPUs; process 7 uses the second, which is throttled one second of every two.
struct Fake {
    present: bool,
    reads: u64,
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: Some(format!("GPU-{index}")),
        model: Some("H100".to_owned()),
    }
}

impl Driver for Fake {
    fn gpus(&mut self) -> Vec<Gpu> {
        let count = if self.present { 2 } else { 0 };
        (0..count).map(gpu).collect()
    }

    fn processes(&mut self, index: u32) -> Vec<GpuProcess> {
        let process = GpuProcess { pid: 7, bytes: 10 };
        (index == 1).then_some(process).into_iter().collect()
    }

    fn throttling(&mut self, index: u32) -> Option<Throttling> {
        self.reads += 1;
        let total = ("power", self.reads * 1_000_000_000);
        (index == 1).then(|| Throttling::Totals(vec![total]))
    }
}

fn fake(present: bool) -> Box<dyn Driver> {
    Box::new(Fake { present, reads: 0 })
}

#[tokio::test]
async fn the_gpu_of_a_process_is_the_one_on_which_it_has_memory() {
    let gpus = Gpus::with_driver(|| fake(true));
    assert_eq!(
        gpus.for_process(7, &Placement::default()).await,
        Some(gpu(1))
    );
    assert_eq!(gpus.for_process(8, &Placement::default()).await, None);
    assert_eq!(gpus.all().await, Some(vec![gpu(0), gpu(1)]));
}

#[tokio::test]
async fn throttled_gpus_are_reported_with_their_reasons() {
    let gpus = Gpus::with_driver(|| fake(true));
    let first = gpus.throttled(0).await.unwrap();
    assert_eq!(first.len(), 1);
    let second = gpus.throttled(5_000_000_000).await.unwrap();
    let expected = Throttled {
        gpu: gpu(1),
        total_ms: 2000.0,
        reasons: vec!["power"],
    };
    assert_eq!(second, [expected]);
}

#[tokio::test]
async fn a_driver_that_is_loaded_later_is_found() {
    let present = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&present);
    let gpus = Gpus::with_driver(move || fake(seen.load(Ordering::SeqCst)));
    assert_eq!(gpus.for_process(7, &Placement::default()).await, None);
    assert_eq!(gpus.throttled(0).await, Some(Vec::new()));
    present.store(true, Ordering::SeqCst);
    assert_eq!(
        gpus.for_process(7, &Placement::default()).await,
        Some(gpu(1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_does_not_block_callers() {
    let released = Arc::new(Barrier::new(2));
    let stuck = Arc::clone(&released);
    let gpus = Gpus::with_driver(move || {
        stuck.wait();
        fake(true)
    });
    for _ in 0..2 * MAX_REQUESTS {
        assert_eq!(gpus.for_process(7, &Placement::default()).await, None);
    }
    released.wait();
}

#[tokio::test]
async fn a_driver_that_panics_does_not_affect_the_agent() {
    let gpus = Gpus::with_driver(|| panic!("a broken driver"));
    assert_eq!(gpus.for_process(7, &Placement::default()).await, None);
    assert_eq!(gpus.throttled(0).await, None);
}

#[tokio::test]
async fn a_host_without_a_driver_has_no_gpus() {
    let proc = tempfile::tempdir().unwrap();
    let gpus = Gpus::with_driver({
        let path = proc.path().to_owned();
        move || Box::new(ProcFiles::new(&path))
    });
    assert_eq!(gpus.for_process(7, &Placement::default()).await, None);
    assert_eq!(gpus.throttled(0).await, Some(Vec::new()));
}
