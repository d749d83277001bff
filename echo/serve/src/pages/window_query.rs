//! The time window that a page shows.

use echo_tools::ToolError;
use echo_tools::time::TimeRange;
use serde::Deserialize;

/// Time window of a page, from its query. Empty fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct WindowQuery {
    /// Length up to now, or `all`.
    pub(super) window: String,
    /// Start.
    pub(super) from: String,
    /// End.
    pub(super) to: String,
}

impl WindowQuery {
    /// Returns the window of the last hour.
    pub(super) fn last_hour() -> Self {
        Self {
            window: "1h".to_owned(),
            ..Self::default()
        }
    }

    /// Returns this window, or the last hour if no field is set.
    pub(super) fn or_last_hour(&self) -> Self {
        if self.given().next().is_some() {
            self.clone()
        } else {
            Self::last_hour()
        }
    }

    /// Returns the fields that are set, by the names of the tools' arguments.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("window", &self.window),
            ("from", &self.from),
            ("to", &self.to),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name, value.trim()));
        fields.filter(|(_, value)| !value.is_empty())
    }

    /// Parses the window.
    pub(super) fn time(&self) -> Result<TimeRange, ToolError> {
        let mut time = TimeRange::default();
        for (name, value) in self.given() {
            let wrong = |message| ToolError::invalid(name, message);
            match name {
                "window" => time.window = Some(value.parse().map_err(wrong)?),
                "from" => time.from = Some(value.parse().map_err(wrong)?),
                _ => time.to = Some(value.parse().map_err(wrong)?),
            }
        }
        Ok(time)
    }
}
