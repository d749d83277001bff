//! Cost of Echo as a process, from the socket to the disk, compared with other OTLP receivers.
//!
//! `cargo bench -p fleet-echo --bench load -- --quick` is a smoke test of a minute; without
//! `--quick` it takes about ten minutes. `--load` and `--soak` measure one instance for longer,
//! under a simulated fleet and under continuous deletion.

#![expect(
    clippy::disallowed_methods,
    reason = "a load generator measures real time, and answers a codec's errors itself"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use indicatif::ProgressBar;

mod attacks;
mod echo;
mod fleet;
mod generator;
mod growth;
mod ingest;
mod lake;
mod machine;
mod measure;
mod message;
mod process;
mod programs;
mod prost_server;
mod receiver;
mod samples;
mod soak;
mod table;
mod template;
mod viewers;
mod wire;

use fleet::Fleet;
use measure::Timing;
use programs::Programs;

/// Measures Echo's ingest path as a process, beside other receivers of OTLP.
#[derive(Debug, Parser)]
#[command(name = "load")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Short measurements and a small database: a smoke test without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Run only this part: ingest, growth, lake, connections or attacks
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Duration of each measurement, seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    #[command(flatten)]
    ingest: ingest::Rows,
    /// Numbers of stored rows at which costs are measured, ascending
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [1_000_000, 10_000_000])]
    rows: Vec<u64>,
    /// Run a simulated fleet against one instance instead
    #[arg(long)]
    load: bool,
    /// Run one instance under continuous deletion instead
    #[arg(long)]
    soak: bool,
    /// Duration of --load or --soak
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    minutes: f64,
    #[command(flatten)]
    fleet: Fleet,
    #[command(flatten)]
    lake: lake::LakeArgs,
    /// Writes the tables to this file as well
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Run as the receiver that decodes with prost and discards
    #[arg(long, hide = true)]
    serve_prost: bool,
    /// Flag that cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(clippy::print_stdout, reason = "the benchmark prints its tables")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.serve_prost {
        return prost_server::serve().await;
    }
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    let tables = args.tables(&progress).await?;
    progress.finish_and_clear();
    let text = format!("{}{tables}", args.preface());
    println!("{text}");
    if let Some(file) = &args.markdown {
        std::fs::write(file, text)?;
    }
    Ok(())
}

impl Args {
    async fn tables(&self, progress: &ProgressBar) -> anyhow::Result<String> {
        let (programs, timing) = (&self.programs, self.timing());
        let duration = Duration::from_secs_f64(self.minutes * 60.0);
        if self.load {
            return self.fleet.table(programs, duration, progress).await;
        }
        if self.soak {
            return soak::table(programs, duration, progress).await;
        }
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut text = String::new();
        if is_wanted("ingest") {
            text += &ingest::tables(&self.ingest, programs, timing, progress).await?;
        }
        let rows: &[u64] = if self.quick { &[20_000] } else { &self.rows };
        if is_wanted("growth") {
            text += &growth::by_rows(programs, rows, timing, progress).await?;
        }
        if is_wanted("lake") {
            text += &lake::tables(&self.lake, programs, rows, progress).await?;
        }
        if is_wanted("connections") {
            text += &growth::by_connections(programs, timing, progress).await?;
        }
        if is_wanted("attacks") {
            text += &attacks::table(programs, timing, progress).await?;
        }
        Ok(text)
    }

    const fn timing(&self) -> Timing {
        let (warm_up, measured) = if self.quick {
            (Duration::from_millis(300), Duration::from_secs(1))
        } else {
            (Duration::from_secs(2), Duration::from_secs(self.seconds))
        };
        Timing { warm_up, measured }
    }

    fn preface(&self) -> String {
        let title = if self.load || self.soak {
            "# Echo under load\n\n"
        } else {
            "# Performance of the ingest path\n\nWritten by `make bench`. "
        };
        let machine = machine::describe();
        format!(
            "{title}Measured on {machine}; the load came from the same machine, so points/s are a lower limit, and CPU per \
             point is the figure to compare.\n\n"
        )
    }
}
