//! Output of a process, read by a thread of its own, so that a wait for a line can end without one.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;

/// Unread lines of the output of a process, with their line ends.
#[derive(Debug, Clone)]
pub(crate) struct Output(Arc<Mutex<Unread>>);

#[derive(Debug, Default)]
struct Unread {
    lines: VecDeque<String>,
    has_ended: bool,
}

impl Output {
    pub(crate) fn read(pipe: impl Read + Send + 'static) -> Self {
        let output = Self(Arc::default());
        let unread = Arc::clone(&output.0);
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                unread.lock().unwrap().lines.push_back(line + "\n");
            }
            unread.lock().unwrap().has_ended = true;
        });
        output
    }

    /// Returns the next line, or `None` after the last one of a process that has closed its output.
    pub(crate) fn next(&self) -> Poll<Option<String>> {
        let mut unread = self.0.lock().unwrap();
        match unread.lines.pop_front() {
            None if !unread.has_ended => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}
