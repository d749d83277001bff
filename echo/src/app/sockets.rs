//! Sockets of the listeners, bound before the database is created.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::app::AppError;
use crate::config::ServeArgs;

/// Connections that the kernel keeps per listener until they are accepted.
const BACKLOG: u32 = 1024;

/// The bound sockets of an instance.
#[derive(Debug)]
pub(super) struct Sockets {
    /// OTLP over gRPC.
    pub(super) otlp: BoundSocket,
    /// OTLP over HTTP.
    pub(super) otlp_http: BoundSocket,
    /// The API.
    pub(super) api: BoundSocket,
}

impl Sockets {
    /// Binds all sockets.
    pub(super) fn bind(args: &ServeArgs) -> Result<Self, AppError> {
        let sockets = Self {
            otlp: BoundSocket::bind("--otlp-listen", args.otlp_listen)?,
            otlp_http: BoundSocket::bind("--otlp-http-listen", args.otlp_http_listen)?,
            api: BoundSocket::bind("--http-listen", args.http_listen)?,
        };
        let [otlp, otlp_http, api] = sockets.addresses();
        // The kernel reports this only when the second one listens.
        if overlap(otlp_http, otlp) {
            return Err(sockets.otlp_http.failed(ErrorKind::AddrInUse.into()));
        }
        if overlap(api, otlp) || overlap(api, otlp_http) {
            return Err(sockets.api.failed(ErrorKind::AddrInUse.into()));
        }
        Ok(sockets)
    }

    /// Local addresses.
    pub(super) const fn addresses(&self) -> [SocketAddr; 3] {
        [self.otlp.address, self.otlp_http.address, self.api.address]
    }
}

/// A socket that refuses connections until it listens.
#[derive(Debug)]
pub(super) struct BoundSocket {
    /// Local address.
    pub(super) address: SocketAddr,
    flag: &'static str,
    socket: TcpSocket,
}

impl BoundSocket {
    /// Binds the address of a flag.
    pub(super) fn bind(flag: &'static str, address: SocketAddr) -> Result<Self, AppError> {
        let failed = |source| AppError::Bind {
            flag,
            address,
            source,
        };
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        };
        let socket = socket.map_err(failed)?;
        // Connections of an earlier process that are still closing do not prevent a restart.
        socket.set_reuseaddr(true).map_err(failed)?;
        socket.bind(address).map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(AppError::Address)?,
            flag,
            socket,
        })
    }

    /// Starts to listen.
    pub(super) fn listen(self) -> Result<TcpListener, AppError> {
        let (flag, address) = (self.flag, self.address);
        let failed = |source| AppError::Bind {
            flag,
            address,
            source,
        };
        self.socket.listen(BACKLOG).map_err(failed)
    }

    const fn failed(&self, source: Error) -> AppError {
        AppError::Bind {
            flag: self.flag,
            address: self.address,
            source,
        }
    }
}

/// Returns whether two listeners would receive the same connections.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (one_ip, other_ip) = (one.ip(), other.ip());
    one.port() == other.port()
        && (one_ip == other_ip || one_ip.is_unspecified() || other_ip.is_unspecified())
}
