//! Standard output of a command, and what its reader can display.

use std::io::{self, IsTerminal, Stdout, Write};

/// Output of a command. A pipe or file has no width and no colours.
pub struct Screen<'w> {
    out: &'w mut dyn Write,
    /// Number of columns; `None` if lines may be of any length.
    pub(super) width: Option<u16>,
    /// Whether colours are displayed.
    pub(super) has_color: bool,
}

impl std::fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("width", &self.width)
            .field("has_color", &self.has_color)
            .finish_non_exhaustive()
    }
}

impl<'w> Screen<'w> {
    /// Standard output, with the width of the terminal if it is one. `NO_COLOR` and `TERM=dumb`
    /// turn colours off.
    pub fn stdout(out: &'w mut Stdout) -> Self {
        let is_terminal = out.is_terminal();
        let width = is_terminal.then(|| comfy_table::Table::new().width());
        Self {
            width: width.flatten().filter(|width| *width > 0),
            has_color: is_terminal
                && anstyle_query::term_supports_ansi_color()
                && !anstyle_query::no_color(),
            out,
        }
    }

    /// Output that is not a terminal.
    pub fn plain(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            width: None,
            has_color: false,
        }
    }

    /// Output of this width for a terminal that another part draws on, without colours.
    pub(super) fn with_width(out: &'w mut dyn Write, width: u16) -> Self {
        Self {
            width: Some(width),
            ..Self::plain(out)
        }
    }

    /// Whether a person reads it. A pipe has no width.
    pub(super) const fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// Clears a terminal.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if self.is_terminal() {
            self.out.write_all(b"\x1b[H\x1b[2J")?;
        }
        Ok(())
    }
}

impl Write for Screen<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
