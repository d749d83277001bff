//! Files about a process that does nothing.

/// File that was made about a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFile {
    /// Name, such as `threads.txt`.
    pub name: &'static str,
    /// Size of its content, bytes.
    pub size: u64,
    /// Its content, compressed by gzip.
    pub gzip: Vec<u8>,
}

impl CapturedFile {
    /// Largest number of bytes of a part.
    const PART: usize = 9_000;

    /// Returns the parts in which it is sent: a point holds 16 KiB.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.gzip.chunks(Self::PART)
    }
}
