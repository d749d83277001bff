//! Columns of a report: those of FOCUS 1.2 (FinOps Open Cost and Usage Specification), the
//! additional ones of FOCUS 1.3, and Echo's own, which begin with `x_Echo`. Their meaning is
//! documented in
//! `echo/docs/reference/focus.md`.
//!
//! The cost of a straggler is an estimated part of spend that a provider bills separately. Rows are
//! therefore GPU usage with a `BilledCost` of 0, and the lost part has columns of its own.

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

/// Version of FOCUS.
pub const VERSION: &str = "1.2";

/// Identifier of the method by which GPU time and losses are computed. Another method needs another
/// identifier.
const METHOD: &str = "fleet-echo/reported-time/1";

const UNIT: &str = "GPU-Hours";

/// Placeholder for names that were not reported.
const UNKNOWN: &str = "unknown";

/// Rate class of usage without a price.
pub(super) const UNPRICED: &str = "unpriced";

/// ISO 4217 code for no currency: a row without a price must not add a zero to the sum of any
/// currency.
const NO_CURRENCY: &str = "XXX";

/// A row with its price.
#[derive(Debug, Clone, Copy)]
pub(super) struct PricedRow<'a> {
    pub(super) usage: &'a ReportRow,
    pub(super) rate: Option<&'a Rate>,
}

/// A column: its name and the function that computes its value.
pub(super) type Column = (&'static str, fn(&PricedRow<'_>) -> Cell);

/// All columns, in order.
pub(super) const COLUMNS: [Column; 58] = [
    ("AllocatedMethodDetails", method_details),
    ("AllocatedMethodId", |_| text(METHOD)),
    ("AllocatedResourceId", resource),
    ("AllocatedResourceName", |row| {
        text(row.usage.node_hour.node.as_str())
    }),
    ("AllocatedTags", tags),
    ("BilledCost", |_| Cell::Number(Decimal::ZERO)),
    ("BillingAccountId", |_| text("fleet-echo")),
    ("BillingAccountName", |_| {
        text("Echo (estimate, not billed)")
    }),
    ("BillingAccountType", |_| text("Estimate")),
    ("BillingCurrency", |row| Cell::Text(row.currency())),
    ("BillingPeriodEnd", |row| Cell::Time(row.month().1)),
    ("BillingPeriodStart", |row| Cell::Time(row.month().0)),
    ("ChargeCategory", |_| text("Usage")),
    ("ChargeClass", |_| Cell::Null),
    ("ChargeDescription", |row| Cell::Text(row.description())),
    ("ChargeFrequency", |_| text("Usage-Based")),
    ("ChargePeriodEnd", |row| {
        Cell::Time(row.usage.node_hour.hour.end())
    }),
    ("ChargePeriodStart", |row| {
        Cell::Time(row.usage.node_hour.hour.begin())
    }),
    ("CommitmentDiscountCategory", |_| Cell::Null),
    ("CommitmentDiscountId", |_| Cell::Null),
    ("CommitmentDiscountName", |_| Cell::Null),
    ("CommitmentDiscountStatus", |_| Cell::Null),
    ("CommitmentDiscountType", |_| Cell::Null),
    ("ConsumedQuantity", |row| {
        Cell::hours(row.usage.node_hour.allocated)
    }),
    ("ConsumedUnit", |_| text(UNIT)),
    ("ContractedCost", cost),
    ("ContractedUnitPrice", unit_price),
    ("EffectiveCost", cost),
    ("HostProviderName", provider),
    ("InvoiceIssuerName", provider),
    ("ListCost", cost),
    ("ListUnitPrice", unit_price),
    ("PricingCategory", |row| text(row.pricing())),
    ("PricingQuantity", |row| {
        Cell::hours(row.usage.node_hour.allocated)
    }),
    ("PricingUnit", |_| text(UNIT)),
    ("ProviderName", provider),
    ("PublisherName", provider),
    ("RegionId", region),
    ("RegionName", region),
    ("ResourceId", resource),
    ("ResourceName", |row| {
        text(row.usage.node_hour.node.as_str())
    }),
    ("ResourceType", |_| text("GPU node")),
    ("ServiceCategory", |_| text("AI and Machine Learning")),
    ("ServiceName", |_| text("GPU time")),
    ("ServiceProviderName", provider),
    ("SkuId", |row| text(row.model())),
    ("SkuPriceId", price_id),
    ("SubAccountId", |row| {
        text(row.usage.node_hour.cluster.as_str())
    }),
    ("SubAccountName", |row| {
        text(row.usage.node_hour.cluster.as_str())
    }),
    ("Tags", tags),
    ("x_EchoClosed", |row| {
        Cell::Flag(row.usage.revision.is_some())
    }),
    ("x_EchoCoverage", coverage),
    ("x_EchoGpus", |row| {
        Cell::Count(u64::from(row.usage.node_hour.gpus))
    }),
    ("x_EchoRateClass", |row| text(row.class())),
    ("x_EchoRevision", |row| {
        row.usage.revision.map_or(Cell::Null, Cell::Count)
    }),
    ("x_EchoStragglerCost", |row| {
        row.lost_cost().map_or(Cell::Null, Cell::Number)
    }),
    ("x_EchoStragglerGpuHours", |row| {
        Cell::hours(row.usage.node_hour.lost)
    }),
    ("x_EchoUnpricedGpuHours", |row| Cell::hours(row.unpriced())),
];

impl<'a> PricedRow<'a> {
    /// Looks up the price in force in the hour of the row.
    pub(super) fn new(row: &'a ReportRow, rates: &'a Rates) -> Self {
        let node_hour = &row.node_hour;
        let gpu = Gpu {
            cluster: &node_hour.cluster,
            node: &node_hour.node,
            model: node_hour.gpu_model.as_deref(),
        };
        Self {
            usage: row,
            rate: rates.rate(&gpu, node_hour.hour.begin()),
        }
    }

    /// Cost of the GPU time; `None` without a price.
    pub(super) fn cost(&self) -> Option<Decimal> {
        self.rate
            .map(|rate| rate.cost(self.usage.node_hour.allocated))
    }

    /// Cost of the lost part; `None` without a price.
    pub(super) fn lost_cost(&self) -> Option<Decimal> {
        self.rate.map(|rate| rate.cost(self.usage.node_hour.lost))
    }

    /// Rate class.
    pub(super) fn class(&self) -> &'static str {
        self.rate.map_or(UNPRICED, |rate| rate.class.name())
    }

    /// Currency of the price.
    pub(super) fn currency(&self) -> String {
        self.rate
            .map_or_else(|| NO_CURRENCY.to_owned(), |rate| rate.currency.to_string())
    }

    fn unpriced(&self) -> GpuTime {
        match self.rate {
            Some(_) => GpuTime::ZERO,
            None => self.usage.node_hour.allocated,
        }
    }

    fn model(&self) -> &str {
        self.usage.node_hour.gpu_model.as_deref().unwrap_or(UNKNOWN)
    }

    fn description(&self) -> String {
        let model = self.model();
        match self.rate {
            Some(_) => format!("GPU time of {model}, estimated from the reports of its ranks"),
            None => format!("GPU time of {model} without a price: the cost is unknown, not zero"),
        }
    }

    /// `Committed` would require the commitment, which the rates file does not name.
    fn pricing(&self) -> &'static str {
        match self.rate.map(|rate| rate.class) {
            Some(RateClass::OnDemand | RateClass::Reserved) => "Standard",
            Some(RateClass::Spot) => "Dynamic",
            Some(RateClass::Owned | RateClass::Internal) | None => "Other",
        }
    }

    /// Start and end of the month.
    fn month(&self) -> (Nanos, Nanos) {
        let hour = self.usage.node_hour.hour.begin();
        let utc = Timestamp::from_nanosecond(i128::from(hour.value())).unwrap_or_default();
        let first = utc.to_zoned(TimeZone::UTC).date().first_of_month();
        let next = first.last_of_month().tomorrow().unwrap_or(first);
        (midnight(first), midnight(next))
    }
}

fn coverage(row: &PricedRow<'_>) -> Cell {
    let node_hour = &row.usage.node_hour;
    if node_hour.ranks_expected == 0 {
        return Cell::Null;
    }
    let share = Decimal::from(node_hour.ranks_reporting) / Decimal::from(node_hour.ranks_expected);
    Cell::Number(share.round_dp(6))
}

fn midnight(date: Date) -> Nanos {
    let since_1970 = date.duration_since(Date::constant(1970, 1, 1));
    Nanos::new(since_1970.as_secs().saturating_mul(1_000_000_000))
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// FOCUS requires a number even when the cost is unknown; the currency of such a row is `XXX`, and
/// its rate class is `unpriced`.
fn cost(row: &PricedRow<'_>) -> Cell {
    Cell::Number(row.cost().unwrap_or_default())
}

fn unit_price(row: &PricedRow<'_>) -> Cell {
    row.rate
        .map_or(Cell::Null, |rate| Cell::Number(rate.per_gpu_hour))
}

fn provider(row: &PricedRow<'_>) -> Cell {
    let provider = row.rate.and_then(|rate| rate.provider.as_deref());
    text(provider.unwrap_or(UNKNOWN))
}

fn region(row: &PricedRow<'_>) -> Cell {
    Cell::optional_text(row.rate.and_then(|rate| rate.region.as_deref()))
}

fn resource(row: &PricedRow<'_>) -> Cell {
    let node_hour = &row.usage.node_hour;
    Cell::Text(format!("{}/{}", node_hour.cluster, node_hour.node))
}

fn price_id(row: &PricedRow<'_>) -> Cell {
    let id = |rate: &Rate| {
        let price = rate.per_gpu_hour.normalize();
        format!(
            "{}/{}/{price} {}",
            row.model(),
            rate.class.name(),
            rate.currency
        )
    };
    Cell::optional_text(row.rate.map(id))
}

fn tags(row: &PricedRow<'_>) -> Cell {
    let node_hour = &row.usage.node_hour;
    Cell::Object(json!({
        "fleet-echo/cluster": node_hour.cluster.as_str(),
        "fleet-echo/gpu_model": node_hour.gpu_model.as_deref(),
        "fleet-echo/node": node_hour.node.as_str(),
    }))
}

fn method_details(row: &PricedRow<'_>) -> Cell {
    let hours = Cell::hours(row.usage.node_hour.allocated).json();
    Cell::Object(json!({
        "Elements": [{ "AllocatedRatio": 1.0, "UsageUnit": UNIT, "UsageQuantity": hours }],
    }))
}

impl Report {
    /// Serializes the report as CSV (RFC 4180), with a header.
    pub fn csv(&self, rates: &Rates) -> Result<Vec<u8>, ToolError> {
        let mut csv = csv::WriterBuilder::new()
            .terminator(csv::Terminator::CRLF)
            .from_writer(Vec::new());
        csv.write_record(COLUMNS.map(|(name, _)| name))?;
        for row in &self.rows {
            let priced = PricedRow::new(row, rates);
            csv.write_record(COLUMNS.map(|(_, cell)| cell(&priced).csv()))?;
        }
        csv.into_inner()
            .map_err(|error| ToolError::Csv(error.into_error().into()))
    }
}
