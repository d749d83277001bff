//! Document that shows the figures.

use std::fs;
use std::path::Path;

use anyhow::Context;

const BEGIN: &str = "<!-- figures: written by `make bench-agent` -->";
const END: &str = "<!-- end of figures -->";

/// Writes the figures between the markers of a document.
pub(crate) fn write_figures(file: &Path, figures: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)?;
    let split = || {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    };
    let (before, after) =
        split().with_context(|| format!("{} has no line {BEGIN}", file.display()))?;
    fs::write(file, format!("{before}{BEGIN}\n\n{figures}{END}{after}"))?;
    Ok(())
}
