//! Strips and bars as SVG. The style sheet sets their colors for light and dark mode.

use maud::{Markup, html};

/// Shades of a strip, lightest first.
pub(super) const SHADES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// Adjacent cells of the same shade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) shade: usize,
    /// Tooltip.
    pub(super) tooltip: String,
}

/// A line across a strip.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// Position, in cells.
    pub(super) at: f64,
    /// Tooltip.
    pub(super) tooltip: String,
}

/// Renders a row of `n` cells; cells without a run stay empty and are hatched.
pub(super) fn strip(runs: &[Run], lines: &[Line], n: usize, label: &str) -> Markup {
    let view = format!("0 0 {} 1", n.max(1));
    html! {
        svg.strip role="img" aria-label=(label) viewBox=(view) preserveAspectRatio="none" {
            @for run in runs {
                rect class=(SHADES.get(run.shade).copied().unwrap_or_default())
                    x=(run.from) y="0" width=(run.to - run.from) height="1" { title { (run.tooltip) } }
            }
            @for line in lines {
                line.opened x1=(line.at) x2=(line.at) y1="0" y2="1" { title { (line.tooltip) } }
            }
        }
    }
}

/// Renders a bar as a share of the longest one. Hidden from screen readers, because it repeats the
/// number beside it.
pub(super) fn bar(share: f64) -> Markup {
    let width = format!("{:.1}", (share * 100.0).clamp(0.0, 100.0));
    html! {
        svg.bar aria-hidden="true" viewBox="0 0 100 1" preserveAspectRatio="none" {
            rect x="0" y="0" width=(width) height="1" {}
        }
    }
}
