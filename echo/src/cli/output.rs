//! Output: flags for format and headers, and files.

use std::path::Path;
use std::{fs, io};

use clap::{Args, ValueEnum};

use crate::cli::column::Layout;

/// Format of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text that fits the terminal
    #[default]
    Text,
    /// Text with all columns, on lines of any length
    Wide,
    /// The response unchanged, indented on a terminal
    Json,
    /// The rows of the table as JSON, one object per line
    Jsonl,
    /// The rows of the table, with exact numbers
    Csv,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        env = "FLEET_ECHO_OUTPUT",
        help_heading = "Output"
    )]
    pub output: Format,
    /// Print the JSON response, like --output json
    #[arg(
        long,
        env = "FLEET_ECHO_JSON",
        overrides_with = "output",
        help_heading = "Output"
    )]
    pub json: bool,
    /// Print tables without their header lines
    #[arg(long, help_heading = "Output", display_order = 502)]
    pub no_headers: bool,
}

impl OutputArgs {
    /// Whether the response is printed as JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json || self.output == Format::Json
    }

    /// Whether rows are printed as lines of JSON.
    pub(super) fn is_jsonl(self) -> bool {
        !self.json && self.output == Format::Jsonl
    }

    /// Whether rows are printed and nothing else, for programs.
    pub(crate) fn has_rows_only(self) -> bool {
        self.is_jsonl() || (!self.json && self.output == Format::Csv)
    }

    /// Returns the layout of tables.
    pub(super) fn layout(self) -> Layout {
        Layout {
            is_wide: self.output == Format::Wide,
            has_header: !self.no_headers,
        }
    }
}

/// Writes a file; the error names it.
pub(super) fn write_file(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let named = |error: io::Error| {
        let message = format!("{}: {error}", file.display());
        io::Error::new(error.kind(), message)
    };
    fs::write(file, bytes).map_err(named)
}
