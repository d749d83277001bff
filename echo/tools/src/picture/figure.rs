//! Content of a plot as data, complete before the drawing begins.

/// Size of every plot, pixels.
pub const SIZE: (u32, u32) = (900, 400);

/// A quantity over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Title.
    pub title: String,
    /// Description for readers who cannot see the plot.
    pub description: String,
    /// Time axis, seconds after the first instant.
    pub time: Axis,
    /// Value axis.
    pub value: Axis,
    /// Band around zero: instants with half the width of the band. Clipped to the axis.
    pub band: Series,
    /// Line of the quantity.
    pub line: Series,
    /// Marked spans of time.
    pub spans: Vec<(f64, f64)>,
    /// Texts that an SVG shows where a reader points, in the order of time.
    pub tooltips: Vec<Tooltip>,
    /// Legend.
    pub legend: Legend,
    /// Message shown in place of the line when there is none.
    pub message: Option<String>,
}

/// Text about an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Tooltip {
    /// Position on the time axis.
    pub at: f64,
    /// Text, such as the time and the value.
    pub text: String,
}

/// Segments of points; the values between two segments are unknown.
pub type Series = Vec<Vec<(f64, f64)>>;

/// Labels of the marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legend {
    /// Label of the line.
    pub line: String,
    /// Label of the band.
    pub band: &'static str,
    /// Label of the spans.
    pub spans: &'static str,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Label with unit.
    pub label: String,
    /// Lower end.
    pub from: f64,
    /// Upper end, above the lower one.
    pub to: f64,
    /// Ticks: position and text.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns the text of a tick.
    pub(super) fn text(&self, at: f64) -> String {
        let tick = self
            .ticks
            .iter()
            .find(|(position, _)| (position - at).abs() < 1e-9);
        tick.map_or_else(String::new, |(_, text)| text.clone())
    }
}
