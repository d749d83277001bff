//! The columns of a report: those of FOCUS 1.2 (FinOps Open Cost and Usage Specification), those that 1.3 adds beside them, and
//! Echo's own, which begin with `x_Echo`. What each means is in `echo/docs/focus.md`.
//!
//! A straggler's cost is an estimate inside spend that a provider bills anyway. So rows are GPU usage with `BilledCost` 0, and
//! the part of it that was lost stands in columns of its own.

use echo_core::units::{GpuTime, Nanos};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;
use serde_json::json;

use crate::ToolError;
use crate::cost_report::cell::Cell;
use crate::cost_report::{Report, ReportRow};
use crate::rates::{Gpu, Rate, RateClass, Rates};

/// The version of FOCUS.
pub const VERSION: &str = "1.2";

/// How GPU time and losses are found. Another way gets another name.
const METHOD: &str = "fleet-echo/reported-time/1";

const UNIT: &str = "GPU-Hours";

/// What stands for names that nobody said.
const UNKNOWN: &str = "unknown";

/// The class of what has no price.
const UNPRICED: &str = "unpriced";

/// The code of ISO 4217 for no currency: where there is no price, a zero must not join the sum of any currency.
const NO_CURRENCY: &str = "XXX";

/// A row with its price.
#[derive(Debug, Clone, Copy)]
pub(super) struct PricedRow<'a> {
    pub(super) row: &'a ReportRow,
    pub(super) rate: Option<&'a Rate>,
}

/// A column.
pub(super) type Column = (&'static str, fn(&PricedRow<'_>) -> Cell);

/// All columns, in their order.
pub(super) const COLUMNS: [Column; 58] = [
    ("AllocatedMethodDetails", method_details),
    ("AllocatedMethodId", |_| text(METHOD)),
    ("AllocatedResourceId", resource),
    ("AllocatedResourceName", |line| {
        text(line.row.node_hour.node.as_str())
    }),
    ("AllocatedTags", tags),
    ("BilledCost", |_| Cell::Number(Decimal::ZERO)),
    ("BillingAccountId", |_| text("fleet-echo")),
    ("BillingAccountName", |_| {
        text("Echo, an estimate that nobody bills")
    }),
    ("BillingAccountType", |_| text("Estimate")),
    ("BillingCurrency", |line| Cell::Text(line.currency())),
    ("BillingPeriodEnd", |line| Cell::Time(line.month().1)),
    ("BillingPeriodStart", |line| Cell::Time(line.month().0)),
    ("ChargeCategory", |_| text("Usage")),
    ("ChargeClass", |_| Cell::Null),
    ("ChargeDescription", |line| Cell::Text(line.description())),
    ("ChargeFrequency", |_| text("Usage-Based")),
    ("ChargePeriodEnd", |line| {
        Cell::Time(line.row.node_hour.hour.end())
    }),
    ("ChargePeriodStart", |line| {
        Cell::Time(line.row.node_hour.hour.begin())
    }),
    ("CommitmentDiscountCategory", |_| Cell::Null),
    ("CommitmentDiscountId", |_| Cell::Null),
    ("CommitmentDiscountName", |_| Cell::Null),
    ("CommitmentDiscountStatus", |_| Cell::Null),
    ("CommitmentDiscountType", |_| Cell::Null),
    ("ConsumedQuantity", |line| {
        Cell::hours(line.row.node_hour.allocated)
    }),
    ("ConsumedUnit", |_| text(UNIT)),
    ("ContractedCost", cost),
    ("ContractedUnitPrice", unit_price),
    ("EffectiveCost", cost),
    ("HostProviderName", provider),
    ("InvoiceIssuerName", provider),
    ("ListCost", cost),
    ("ListUnitPrice", unit_price),
    ("PricingCategory", |line| text(line.pricing())),
    ("PricingQuantity", |line| {
        Cell::hours(line.row.node_hour.allocated)
    }),
    ("PricingUnit", |_| text(UNIT)),
    ("ProviderName", provider),
    ("PublisherName", provider),
    ("RegionId", region),
    ("RegionName", region),
    ("ResourceId", resource),
    ("ResourceName", |line| {
        text(line.row.node_hour.node.as_str())
    }),
    ("ResourceType", |_| text("GPU node")),
    ("ServiceCategory", |_| text("AI and Machine Learning")),
    ("ServiceName", |_| text("GPU time")),
    ("ServiceProviderName", provider),
    ("SkuId", |line| text(line.model())),
    ("SkuPriceId", price_id),
    ("SubAccountId", |line| {
        text(line.row.node_hour.cluster.as_str())
    }),
    ("SubAccountName", |line| {
        text(line.row.node_hour.cluster.as_str())
    }),
    ("Tags", tags),
    ("x_EchoClosed", |line| {
        Cell::Flag(line.row.revision.is_some())
    }),
    ("x_EchoCoverage", coverage),
    ("x_EchoGpus", |line| {
        Cell::Count(u64::from(line.row.node_hour.gpus))
    }),
    ("x_EchoRateClass", |line| text(line.class())),
    ("x_EchoRevision", |line| {
        line.row.revision.map_or(Cell::Null, Cell::Count)
    }),
    ("x_EchoStragglerCost", |line| {
        line.lost_cost().map_or(Cell::Null, Cell::Number)
    }),
    ("x_EchoStragglerGpuHours", |line| {
        Cell::hours(line.row.node_hour.lost)
    }),
    ("x_EchoUnpricedGpuHours", |line| {
        Cell::hours(line.unpriced())
    }),
];

impl<'a> PricedRow<'a> {
    /// The row with the price that holds for its hour.
    pub(super) fn new(row: &'a ReportRow, rates: &'a Rates) -> Self {
        let node_hour = &row.node_hour;
        let gpu = Gpu {
            cluster: &node_hour.cluster,
            node: &node_hour.node,
            model: node_hour.gpu_model.as_deref(),
        };
        Self {
            row,
            rate: rates.rate(&gpu, node_hour.hour.begin()),
        }
    }

    /// What the GPU time costs; nothing when it has no price.
    pub(super) fn cost(&self) -> Option<Decimal> {
        self.rate
            .map(|rate| rate.cost(self.row.node_hour.allocated))
    }

    /// What the part of it costs that was lost.
    pub(super) fn lost_cost(&self) -> Option<Decimal> {
        self.rate.map(|rate| rate.cost(self.row.node_hour.lost))
    }

    /// How the GPUs are paid for.
    pub(super) fn class(&self) -> &'static str {
        self.rate.map_or(UNPRICED, |rate| rate.class.name())
    }

    /// The currency of the price.
    pub(super) fn currency(&self) -> String {
        self.rate
            .map_or_else(|| NO_CURRENCY.to_owned(), |rate| rate.currency.to_string())
    }

    fn unpriced(&self) -> GpuTime {
        match self.rate {
            Some(_) => GpuTime::ZERO,
            None => self.row.node_hour.allocated,
        }
    }

    fn model(&self) -> &str {
        self.row.node_hour.gpu_model.as_deref().unwrap_or(UNKNOWN)
    }

    fn description(&self) -> String {
        let model = self.model();
        match self.rate {
            Some(_) => format!("GPU time of {model}, estimated from what its ranks reported"),
            None => format!("GPU time of {model} without a price: its cost is not known, not zero"),
        }
    }

    /// `Committed` would ask for the commitment, which the rates file does not name.
    fn pricing(&self) -> &'static str {
        match self.rate.map(|rate| rate.class) {
            Some(RateClass::OnDemand | RateClass::Reserved) => "Standard",
            Some(RateClass::Spot) => "Dynamic",
            Some(RateClass::Owned | RateClass::Internal) | None => "Other",
        }
    }

    /// Beginning and end of the month.
    fn month(&self) -> (Nanos, Nanos) {
        let hour = self.row.node_hour.hour.begin();
        let utc = Timestamp::from_nanosecond(i128::from(hour.value())).unwrap_or_default();
        let first = utc.to_zoned(TimeZone::UTC).date().first_of_month();
        let next = first.last_of_month().tomorrow().unwrap_or(first);
        (midnight(first), midnight(next))
    }
}

fn coverage(line: &PricedRow<'_>) -> Cell {
    let row = &line.row.node_hour;
    if row.ranks_expected == 0 {
        return Cell::Null;
    }
    let share = Decimal::from(row.ranks_reporting) / Decimal::from(row.ranks_expected);
    Cell::Number(share.round_dp(6))
}

fn midnight(date: Date) -> Nanos {
    let since_1970 = date.duration_since(Date::constant(1970, 1, 1));
    Nanos::new(since_1970.as_secs().saturating_mul(1_000_000_000))
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// FOCUS wants a number where nothing is known, too; the currency of such a row is none, and its class says why.
fn cost(line: &PricedRow<'_>) -> Cell {
    Cell::Number(line.cost().unwrap_or_default())
}

fn unit_price(line: &PricedRow<'_>) -> Cell {
    line.rate
        .map_or(Cell::Null, |rate| Cell::Number(rate.per_gpu_hour))
}

fn provider(line: &PricedRow<'_>) -> Cell {
    let provider = line.rate.and_then(|rate| rate.provider.as_deref());
    text(provider.unwrap_or(UNKNOWN))
}

fn region(line: &PricedRow<'_>) -> Cell {
    Cell::optional_text(line.rate.and_then(|rate| rate.region.as_deref()))
}

fn resource(line: &PricedRow<'_>) -> Cell {
    let row = &line.row.node_hour;
    Cell::Text(format!("{}/{}", row.cluster, row.node))
}

fn price_id(line: &PricedRow<'_>) -> Cell {
    let id = |rate: &Rate| {
        let price = rate.per_gpu_hour.normalize();
        format!(
            "{}/{}/{price} {}",
            line.model(),
            rate.class.name(),
            rate.currency
        )
    };
    Cell::optional_text(line.rate.map(id))
}

fn tags(line: &PricedRow<'_>) -> Cell {
    let row = &line.row.node_hour;
    Cell::Object(json!({
        "fleet-echo/cluster": row.cluster.as_str(),
        "fleet-echo/gpu_model": row.gpu_model.as_deref(),
        "fleet-echo/node": row.node.as_str(),
    }))
}

fn method_details(line: &PricedRow<'_>) -> Cell {
    let hours = Cell::hours(line.row.node_hour.allocated).json();
    Cell::Object(json!({
        "Elements": [{ "AllocatedRatio": 1.0, "UsageUnit": UNIT, "UsageQuantity": hours }],
    }))
}

impl Report {
    /// The report as CSV (RFC 4180), with a header.
    pub fn csv(&self, rates: &Rates) -> Result<Vec<u8>, ToolError> {
        let mut csv = csv::WriterBuilder::new()
            .terminator(csv::Terminator::CRLF)
            .from_writer(Vec::new());
        csv.write_record(COLUMNS.map(|(name, _)| name))?;
        for row in &self.rows {
            let line = PricedRow::new(row, rates);
            csv.write_record(COLUMNS.map(|(_, cell)| cell(&line).csv()))?;
        }
        csv.into_inner()
            .map_err(|error| ToolError::Csv(error.into_error().into()))
    }
}
