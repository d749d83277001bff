//! Raw HTTP/1.1 client: HTTP libraries do not send malformed traffic.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::wire::encrypted;

/// Maximum size of a response head, bytes.
const MAX_HEAD: usize = 64 * 1024;

/// An encrypted connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    stream: TlsStream<TcpStream>,
}

impl HttpConnection {
    /// Opens a connection.
    pub(super) async fn open(address: &str, tls: TlsConnector) -> io::Result<Self> {
        let stream = encrypted(address, tls).await?;
        Ok(Self { stream })
    }

    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads until the server closes the connection.
    pub(super) async fn read_to_end(&mut self) {
        let mut buffer = [0; 4096];
        while self
            .stream
            .read(&mut buffer)
            .await
            .is_ok_and(|read| read > 0)
        {}
    }

    /// Reads one response, and discards it.
    pub(super) async fn read_response(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() > MAX_HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            head.push(self.stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        let mut rest = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut rest).await?;
        Ok(())
    }
}
