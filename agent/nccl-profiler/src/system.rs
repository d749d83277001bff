//! System calls: the clock that the agent's probes use, the existence of a file, and a socket. They
//! go through the C library of the process, as NCCL's do; other ways to read the kernel's clock
//! inspect the process, which is not ours.
#![expect(unsafe_code, reason = "C functions take pointers")]

use std::ffi::{CStr, c_char, c_int};

/// Size of a path with its terminating zero, as in a socket address.
const PATH_BYTES: usize = 108;

/// Path in memory of fixed size: a heap allocation would leak when NCCL unloads the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortPath([u8; PATH_BYTES]);

impl ShortPath {
    /// Creates a path; none if it is empty, too long, or contains a zero.
    pub(crate) fn new(path: &[u8]) -> Option<Self> {
        let mut bytes = [0; PATH_BYTES];
        let is_path = !path.is_empty() && path.len() < PATH_BYTES && !path.contains(&0);
        bytes.get_mut(..path.len())?.copy_from_slice(path);
        is_path.then_some(Self(bytes))
    }

    fn name(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.0).ok()
    }
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns whether a file exists.
pub(crate) fn exists(file: &ShortPath) -> bool {
    let Some(name) = file.name() else {
        return false;
    };
    // SAFETY: the name is a C string.
    unsafe { libc::access(name.as_ptr(), libc::F_OK) == 0 }
}

/// Result of sending a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Accepted by the reader's queue.
    Accepted,
    /// The reader's queue is full.
    Full,
    /// There is no reader.
    Gone,
}

/// Creates a non-blocking datagram socket; none at the limit of open files.
pub(crate) fn socket() -> Option<c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    (socket >= 0).then_some(socket)
}

/// Connects a socket to its reader; returns whether there is one.
pub(crate) fn connect(socket: c_int, path: &ShortPath) -> bool {
    let mut address = libc::sockaddr_un {
        sun_family: libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0),
        sun_path: [0; PATH_BYTES],
    };
    for (to, from) in address.sun_path.iter_mut().zip(path.0) {
        *to = c_char::from_ne_bytes([from]);
    }
    let address = &raw const address;
    let bytes = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).unwrap_or(0);
    // SAFETY: the address lives until the call returns, and has this size.
    unsafe { libc::connect(socket, address.cast(), bytes) == 0 }
}

/// Sends a datagram.
pub(crate) fn send(socket: c_int, bytes: &[u8]) -> Sent {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes live until the call returns.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent >= 0 {
        return Sent::Accepted;
    }
    match std::io::Error::last_os_error().kind() {
        std::io::ErrorKind::WouldBlock => Sent::Full,
        _ => Sent::Gone,
    }
}

/// Closes a socket.
pub(crate) fn close(socket: c_int) {
    // SAFETY: the number is one of `socket`, and its owner has given it up.
    unsafe { libc::close(socket) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_paths_are_rejected() {
        assert!(ShortPath::new(&[b'a'; PATH_BYTES - 1]).is_some());
        assert!(ShortPath::new(&[b'a'; PATH_BYTES]).is_none());
        assert!(ShortPath::new(b"").is_none());
        assert!(ShortPath::new(b"a\0b").is_none());
    }
}
