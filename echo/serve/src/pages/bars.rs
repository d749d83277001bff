//! Strips and bars, as drawings of one line. Colours are the style sheet's, so that they suit light and dark.

use maud::{Markup, html};

/// Shades of a strip, the palest first.
pub(super) const SHADES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// Neighbours of one shade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) shade: usize,
    /// What a pointer that rests on it is told.
    pub(super) says: String,
}

/// Cells in a row, `n` of them wide; what has no run stays empty.
pub(super) fn strip(runs: &[Run], n: usize, label: &str) -> Markup {
    let view = format!("0 0 {} 1", n.max(1));
    html! {
        svg.strip role="img" aria-label=(label) viewBox=(view) preserveAspectRatio="none" {
            @for run in runs {
                rect class=(SHADES.get(run.shade).copied().unwrap_or_default())
                    x=(run.from) y="0" width=(run.to - run.from) height="1" { title { (run.says) } }
            }
        }
    }
}

/// A bar that is a share of the longest one. It repeats the number beside it, so readers of the page are not told of it.
pub(super) fn bar(share: f64) -> Markup {
    let width = format!("{:.1}", (share * 100.0).clamp(0.0, 100.0));
    html! {
        svg.bar aria-hidden="true" viewBox="0 0 100 1" preserveAspectRatio="none" {
            rect x="0" y="0" width=(width) height="1" {}
        }
    }
}
