//! What a picture shows, as data: everything that is drawn is decided before anything is drawn.

/// Size of every picture, in pixels.
pub const SIZE: (u32, u32) = (900, 400);

/// Quantities over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What is shown and of whom.
    pub title: String,
    /// The same in words, for whoever cannot see it.
    pub description: String,
    /// Time, in seconds after the first instant.
    pub time: Axis,
    /// The quantity.
    pub value: Axis,
    /// A band around zero: instants with half its width. It is cut where the axis ends.
    pub band: Series,
    /// The quantity itself.
    pub line: Series,
    /// Stretches of time that are marked.
    pub spans: Vec<(f64, f64)>,
    /// What the marks mean.
    pub legend: Legend,
    /// Said across the picture when there is no line.
    pub message: Option<String>,
}

/// Points, in stretches: what lies between two of them is not known.
pub type Series = Vec<Vec<(f64, f64)>>;

/// What is said beside the title about each kind of mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legend {
    /// The line.
    pub line: String,
    /// The band.
    pub band: &'static str,
    /// The spans.
    pub spans: &'static str,
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends, above its beginning.
    pub to: f64,
    /// Where there is a number, and which.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The text of a tick.
    pub(super) fn text(&self, at: f64) -> String {
        let tick = self
            .ticks
            .iter()
            .find(|(place, _)| (place - at).abs() < 1e-9);
        tick.map_or_else(String::new, |(_, text)| text.clone())
    }
}
