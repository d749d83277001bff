//! Authorities that no library accepts: gRPC for Python names the percent-encoded path of the socket
//! as `:authority`, which `h2` refuses as malformed.
//!
//! [`Accepted`] is a connection whose requests have valid authorities. A path is replaced by a name
//! of the same length, in place: so no frame and no table of compressed fields changes its size,
//! nothing is buffered or decompressed, and what is not understood passes as it is. Nothing reads
//! the authority of a request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

use crate::server::authority::frames::Frames;

mod fields;
mod frames;

/// Accepted connection.
#[derive(Debug)]
pub(super) struct Accepted {
    stream: UnixStream,
    frames: Frames,
}

impl Accepted {
    /// Takes a connection from which nothing has been read.
    pub(super) fn new(stream: UnixStream) -> Self {
        let frames = Frames::default();
        Self { stream, frames }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let received = buffer.filled_mut().iter_mut().skip(n_before);
        self.frames.correct(received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Accepted {
    type ConnectInfo = <UnixStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests;
