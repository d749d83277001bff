//! Viewers of the page of a cluster, who load it again as browsers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use hdrhistogram::Histogram;

use crate::table::{millis, times};

/// Time after which a browser loads the page again: the `Refresh` header of a page.
const RELOAD: Duration = Duration::from_secs(30);

/// Viewers of one page, each with a connection.
#[derive(Debug)]
pub(crate) struct Viewers {
    threads: Vec<JoinHandle<anyhow::Result<Views>>>,
    is_over: Arc<AtomicBool>,
}

/// Loads of the page.
#[derive(Debug)]
struct Views {
    times: Histogram<u64>,
    failed: u32,
}

impl Viewers {
    /// Starts so many viewers of a URL, who arrive one after the other within a reload.
    pub(crate) fn start(n: u32, url: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let viewer = |nth: u32| {
            let (url, is_over) = (url.to_owned(), Arc::clone(&is_over));
            thread::spawn(move || {
                park_timeout(RELOAD * nth / n);
                view(&url, &is_over)
            })
        };
        let threads = (0..n).map(viewer).collect();
        Self { threads, is_over }
    }

    /// Ends the viewing, and returns the cells of the table.
    pub(crate) fn end(self) -> anyhow::Result<[(&'static str, String); 2]> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Views::new()?;
        for viewer in self.threads {
            viewer.thread().unpark();
            let views = viewer
                .join()
                .map_err(|_panic| anyhow!("a viewer failed"))??;
            all.times.add(views.times)?;
            all.failed += views.failed;
        }
        let page = [0.5, 0.99, 1.0].map(|at| millis(&all.times, at));
        let loads = format!("{}, {}", all.times.len(), all.failed);
        Ok([
            ("page of the cluster p50, p99, max", page.join(", ")),
            ("pages loaded, failed", loads),
        ])
    }
}

impl Views {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            times: times()?,
            failed: 0,
        })
    }
}

/// Loads the page until viewing is over. It is not there before the first points have arrived.
fn view(url: &str, is_over: &AtomicBool) -> anyhow::Result<Views> {
    let mut views = Views::new()?;
    let mut is_known = false;
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let page = ureq::get(url)
            .call()
            .and_then(|mut page| page.body_mut().read_to_string());
        match page {
            Ok(_page) => {
                is_known = true;
                let took = u64::try_from(begin.elapsed().as_micros())?;
                views.times.saturating_record(took);
            }
            Err(_counted) => views.failed += u32::from(is_known),
        }
        park_timeout(RELOAD);
    }
    Ok(views)
}
