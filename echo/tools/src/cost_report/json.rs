//! Report as JSON: metadata, sums, and rows with the same columns as the CSV.

use echo_core::units::Hour;
use serde_json::{Map, Value, json};

use crate::cost_report::Report;
use crate::cost_report::cell::Cell;
use crate::cost_report::focus::{COLUMNS, PricedRow, VERSION};
use crate::rates::Rates;

impl Report {
    /// Serializes the report as JSON, with or without rows.
    pub fn json(&self, rates: &Rates, with_rows: bool) -> String {
        let mut answer = json!({
            "metadata": self.metadata(rates),
            "summary": self.summary(rates),
        });
        if with_rows {
            let rows = self.rows.iter().map(|row| {
                let line = PricedRow::new(row, rates);
                let cells = COLUMNS.map(|(name, cell)| (name.to_owned(), cell(&line).json()));
                Value::Object(Map::from_iter(cells))
            });
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("rows".to_owned(), rows.collect());
            }
        }
        answer.to_string()
    }

    /// Number of rows, also of a report without them.
    fn n_rows(&self) -> u64 {
        let summed: u64 = self.sums.iter().map(|sum| sum.hours).sum();
        summed + self.rows.len() as u64
    }

    /// Metadata: version of the specification, and which hours are final.
    fn metadata(&self, rates: &Rates) -> Value {
        let begins = |hours: &[Hour]| -> Vec<Value> {
            hours
                .iter()
                .map(|hour| Cell::Time(hour.begin()).json())
                .collect()
        };
        let mut metadata = json!({
            "focus_version": VERSION,
            "focus_columns_of_1_3": [
                "AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId",
                "AllocatedResourceName", "AllocatedTags", "HostProviderName", "ServiceProviderName",
            ],
            "generator": concat!("fleet-echo ", env!("CARGO_PKG_VERSION")),
            "from": Cell::Time(self.window.from()).json(),
            "to": Cell::Time(self.window.to()).json(),
            "is_closed": self.open.is_empty(),
            "open_hours": begins(&self.open),
            "hours_revised_soon": begins(&self.revised_soon),
            "rates_as_of": rates.as_of(),
            "n_rows": self.n_rows(),
        });
        if let (Some(note), Some(metadata)) = (&self.note, metadata.as_object_mut()) {
            metadata.insert("note".to_owned(), json!(note));
        }
        metadata
    }
}
