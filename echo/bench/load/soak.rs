//! Long run of Echo with minimal retention, so that it deletes continuously.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::time::sleep;

use crate::echo::Echo;
use crate::generator::{Generator, Load, Tally};
use crate::message::{CLUSTER, Shape};
use crate::programs::Programs;
use crate::samples::Samples;
use crate::table::{Table, megabytes, millis, whole};
use crate::wire::Target;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Points per second, one request per second and node: with `LIMITS`, a partition is deleted each
/// minute.
const RATE: f64 = 51_200.0;

/// Retention limits by age and by size.
const LIMITS: [&str; 4] = ["--retention-age", "3m", "--retention-size", "400MB"];

/// Runs for `duration`; returns the table.
pub(crate) async fn table(
    programs: &Programs,
    duration: Duration,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let echo = Echo::start(&programs.echo()?, &LIMITS)?;
    let load = Load {
        nodes: 128,
        connections: 64,
        rate: Some(RATE),
        ..Load::closed(Shape::Blocks, 400)
    };
    let generator = Generator::start(load, &Target::plain(&echo.otlp)).await?;
    let (begin, every) = (Instant::now(), SAMPLE_INTERVAL.min(duration / 10));
    let (mut resident, mut file) = (Samples::default(), Samples::default());
    let mut failed_queries = 0;
    while begin.elapsed() < duration {
        sleep(every).await;
        let at_s = begin.elapsed().as_secs_f64();
        resident.add(at_s, echo.process.memory()?.resident);
        file.add(at_s, echo.file_mb());
        failed_queries += u32::from(echo.find_outliers(CLUSTER).is_err());
        progress.set_message(format!(
            "Soak: {:.0?} of {duration:?}, {} points, file {}",
            begin.elapsed(),
            generator.points(),
            megabytes(echo.file_mb()),
        ));
    }
    let (tally, _) = generator.stop().await?;
    let description = format!(
        "Echo with `{}` for {duration:.0?}: 128 nodes of 8 ranks on 64 connections send {} points/s, more than Echo keeps, \
         so that it deletes continuously. Sampled every {every:.0?}; growth is over the second half, by least squares.",
        LIMITS.join(" "),
        whole(RATE),
    );
    let mut table = Table::new("Soak", &description, &["measurement", "value"]);
    for (name, samples) in [("RSS", &resident), ("file", &file)] {
        let slope = samples.slope_per_hour().unwrap_or(f64::NAN);
        table.row(&[format!("{name} first, last, max"), samples.ends()]);
        table.row(&[
            format!("growth of the {name}"),
            format!("{slope:+.1} MB per hour"),
        ]);
    }
    let peak = megabytes(echo.process.memory()?.peak);
    table.row(&["peak RSS".to_owned(), peak]);
    for (name, value) in tally_cells(&tally) {
        table.row(&[name.to_owned(), value]);
    }
    table.row(&["failed queries".to_owned(), failed_queries.to_string()]);
    let cpu = format!("{:.1} s", echo.process.cpu_seconds()?);
    table.row(&["CPU of Echo".to_owned(), cpu]);
    Ok(table.end(""))
}

#[expect(clippy::cast_precision_loss, reason = "a count to read by eye")]
fn tally_cells(tally: &Tally) -> [(&'static str, String); 4] {
    let acks = [0.5, 0.99, 1.0].map(|at| millis(&tally.acks, at));
    let failed: u64 = tally.failures.values().sum();
    [
        ("points acknowledged", whole(tally.points as f64)),
        ("points rejected", tally.rejected.to_string()),
        ("failed attempts", failed.to_string()),
        ("acknowledgement p50, p99, max", acks.join(", ")),
    ]
}
