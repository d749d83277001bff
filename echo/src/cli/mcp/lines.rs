//! Line reader for arbitrary bytes.

use std::io;
use std::mem;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Maximum line length. The server accepts less and returns its own error.
pub(super) const MAX_LINE_BYTES: usize = 1024 * 1024;

/// One line, without the line feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Complete line.
    Whole(Vec<u8>),
    /// Line above [`MAX_LINE_BYTES`].
    TooLong,
}

/// Reads lines from an input.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    /// Received part of the current line.
    partial: Line,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            partial: Line::Whole(Vec::new()),
        }
    }

    /// Returns the next line; `None` at the end of the input. Cancel safe: the received part is
    /// kept when the future is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.input.fill_buf().await?;
            let part = available
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or(available);
            let (is_end, is_whole) = (available.is_empty(), part.len() < available.len());
            self.partial.push(part);
            let used = part.len() + usize::from(is_whole);
            self.input.consume(used);
            if is_end && self.partial == Line::Whole(Vec::new()) {
                return Ok(None);
            }
            if is_end || is_whole {
                let next = Line::Whole(Vec::new());
                return Ok(Some(mem::replace(&mut self.partial, next)));
            }
        }
    }
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        match self {
            Self::Whole(bytes) if bytes.len() + part.len() <= MAX_LINE_BYTES => {
                bytes.extend_from_slice(part);
            }
            line => *line = Self::TooLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, BufReader, duplex};

    use super::{Line, Lines, MAX_LINE_BYTES};

    async fn read(input: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(BufReader::with_capacity(1_000, input));
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        read
    }

    fn whole(bytes: &[u8]) -> Line {
        Line::Whole(bytes.to_vec())
    }

    #[tokio::test]
    async fn lines_are_arbitrary_bytes_and_the_last_needs_no_line_feed() {
        assert_eq!(read(b"").await, []);
        assert_eq!(read(b"\n").await, [whole(b"")]);
        let expected = [whole(b"a\xff"), whole(b""), whole(b"b")];
        assert_eq!(read(b"a\xff\n\nb").await, expected);
        assert_eq!(read(b"a\xff\n\nb\n").await, expected);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_does_not_affect_others() {
        let longest = vec![b'x'; MAX_LINE_BYTES];
        let input = [&longest[..], b"\n", &longest, b"y\nz\n", &longest, b"y"].concat();
        let expected = [whole(&longest), Line::TooLong, whole(b"z"), Line::TooLong];
        assert_eq!(read(&input).await, expected);
    }

    #[tokio::test]
    async fn a_partial_line_survives_cancellation() {
        let (mut ours, theirs) = duplex(16);
        let mut lines = Lines::new(BufReader::new(theirs));
        for part in [b"a", b"b"] {
            ours.write_all(part).await.unwrap();
            tokio::select! {
                biased;
                line = lines.next() => panic!("{line:?} has not ended"),
                () = std::future::ready(()) => {}
            }
        }
        ours.write_all(b"\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap(), Some(whole(b"ab")));
    }
}
