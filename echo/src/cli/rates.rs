//! `fleet-echo rates`: validation of a rates file, and the prices it gives the GPUs of a fleet.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use echo_core::clock::{Clock, SystemClock};
use echo_core::pattern::Pattern;
use echo_core::units::Nanos;
use echo_tools::rates::{Rates, RatesError};
use fleet::{Fleet, FleetArgs};
use serde_json::{Value, json};

use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::{CliError, json_output};

pub mod fleet;
mod price;
mod print;

/// Rates file commands.
#[derive(Debug, Clone, Args)]
pub struct RatesArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: RatesCommand,
}

/// Subcommands of `rates`.
#[derive(Debug, Clone, Subcommand)]
pub enum RatesCommand {
    /// Validate a rates file, list its rates, and list GPUs of a fleet without a price
    Check(CheckArgs),
}

/// File to check, and the fleet to price.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct CheckArgs {
    /// Rates file, in the format of `testdata/rates.yaml` or of a published `gpu_rates.yaml`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Output format; CSV has the GPUs of the fleet, or without one the rates
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

const HELP: &str = "\
Without a fleet, validates the file and lists its rates in order of precedence. With a fleet \
(--server with a token that may use SQL, or --db of a stopped instance), also lists the price of \
each GPU today, and the GPUs without a price.

  fleet-echo rates check rates.yaml
  fleet-echo rates check rates.yaml --server https://echo.example:8081 \\
      --token-file token
  fleet-echo rates check rates.yaml --db fleet.duckdb --json \\
      | jq .fleet.unpriced_nodes

A rate is the price of one GPU for one hour:
  rates:
    - { gpu_model: H200, rate_class: on_demand, rate: 3.80, currency: USD }
    - cluster: prod
      rate_class: internal
      rate: 2
      currency: USD
      effective_from: 2026-01-01
    - { node: gpu-7, rate_class: owned, rate: 1.10, currency: USD }
    - provider: example-cloud
      region: north
      gpu_model: H200
      rate_class: reserved       # or on_demand, spot, owned, internal
      rate: 2.50
      currency: USD
  locations:                     # location of nodes; the first match applies
    - { cluster: \"prod-*\", provider: example-cloud, region: north }
  aliases:                       # site-specific names of GPU models
    our-gpu: NVIDIA H200

A rate for a node takes precedence over one for a cluster, and that over one for a model; among \
those, a rate with provider and region over one with a provider only, and that over one without. \
Different currencies are never added up.

Exit codes: 0 valid file (some GPUs may have no price), 64 file cannot be read, 65 invalid file, \
69 server unavailable, 75 database in use by another process.";

/// Runs the command.
pub fn run(args: &RatesArgs, out: &mut Screen<'_>) -> Result<(), CliError> {
    let RatesCommand::Check(args) = &args.command;
    let file = args.file.display().to_string();
    let text = fs::read_to_string(&args.file)
        .map_err(|error| CliError::Usage(format!("cannot read {file}: {error}")))?;
    let rates = match Rates::parse(&text) {
        Ok(rates) => rates,
        Err(RatesError { mistakes }) => {
            if args.output.is_json() {
                let answer = json!({ "file": file, "valid": false, "mistakes": mistakes });
                json_output::print(format!("{answer}\n").as_bytes(), out)?;
            }
            return Err(CliError::Rates { file, mistakes });
        }
    };
    let now = SystemClock.now();
    let fleet = args.fleet.load()?;
    let fleet = fleet.map(|fleet| fleet.priced(&rates, now));
    if args.output.is_json() {
        let report = report(&file, &rates, fleet.as_ref(), now);
        return Ok(json_output::print(format!("{report}\n").as_bytes(), out)?);
    }
    if args.output.has_rows_only() {
        let report = report(&file, &rates, fleet.as_ref(), now);
        return Ok(print::rows(&report, args.output, out)?);
    }
    let layout = args.output.layout();
    let printed = print::Printed { layout, now };
    printed.table(&file, &rates, out)?;
    if let Some(fleet) = &fleet {
        printed.fleet(fleet, out)?;
    }
    Ok(())
}

fn report(file: &str, rates: &Rates, fleet: Option<&Fleet>, now: Nanos) -> Value {
    let rows = rates.by_precedence().into_iter().map(|(at, rate)| {
        json!({
            "at": at,
            "node": rate.node.as_ref().map(ToString::to_string),
            "cluster": rate.cluster.as_ref().map(ToString::to_string),
            "provider": rate.provider,
            "region": rate.region,
            "gpu_model": rate.gpu_model.as_ref().map(ToString::to_string),
            "per_gpu_hour": price::number(rate.per_gpu_hour),
            "currency": rate.currency.to_string(),
            "rate_class": rate.class.name(),
            "pricing_category": rate.class.pricing_category(),
            "from": rate.from.to_string(),
            "to": rate.to.map(|to| to.to_string()),
            "in_force": rate.is_in_force(now),
            "source": rate.source,
        })
    });
    let locations = rates.locations().iter().map(|place| {
        json!({
            "cluster": place.cluster.as_ref().map(Pattern::as_str),
            "node": place.node.as_ref().map(Pattern::as_str),
            "provider": place.provider,
            "region": place.region,
        })
    });
    json!({
        "file": file,
        "valid": true,
        "mistakes": [],
        "notes": rates.notes(),
        "rates": rows.collect::<Vec<_>>(),
        "locations": locations.collect::<Vec<_>>(),
        "fleet": fleet.map(Fleet::to_json),
    })
}
