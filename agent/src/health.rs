//! Health of the host by Echo's statements: the socket for launchers and monitors of the host, and
//! reports to `NVSentinel`.

use std::io;
use std::time::Duration;

use fleet_agent_health::sentinel::{Sentinel, SentinelCounts, SentinelError, Strategy};
use fleet_agent_health::server::serve;
use fleet_agent_health::standing::Standings;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use crate::config::HealthArgs;
use crate::socket::{Socket, SocketError};

/// Pause after `accept` has failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Socket and reporter, as far as they are configured.
#[derive(Debug)]
pub struct HostHealth {
    socket: Option<Socket>,
    sentinel: Option<Sentinel>,
}

impl HostHealth {
    /// Creates the socket.
    pub async fn bind(args: &HealthArgs) -> Result<Self, SocketError> {
        let socket = match &args.health_socket {
            Some(path) => Some(Socket::bind(path, "--health-socket").await?),
            None => None,
        };
        Ok(Self {
            socket,
            sentinel: None,
        })
    }

    /// Reports to `NVSentinel` as well, as `node`, if that is configured.
    pub fn with_sentinel(self, args: &HealthArgs, node: &str) -> Result<Self, SentinelError> {
        let strategy = if args.nvsentinel_execute {
            Strategy::Execute
        } else {
            Strategy::StoreOnly
        };
        let path = args.nvsentinel_socket.as_deref();
        let sentinel = path.map(|path| Sentinel::new((path, node), strategy));
        Ok(Self {
            sentinel: sentinel.transpose()?,
            ..self
        })
    }

    /// Returns the counts of reports to `NVSentinel`; zeros without it.
    pub fn sentinel_counts(&self) -> SentinelCounts {
        let counts = self.sentinel.as_ref().map(Sentinel::counts);
        counts.unwrap_or_default()
    }

    /// Serves and reports the standing until `stop` resolves.
    pub async fn run(self, standings: Standings, stop: impl Future<Output = ()> + Send) {
        let answering = answer(self.socket, standings.clone());
        let reporting = async {
            match self.sentinel {
                Some(sentinel) => sentinel.run(standings).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop => {}
            () = answering => {}
            () = reporting => {}
        }
    }
}

/// Answers on the socket; never returns.
async fn answer(socket: Option<Socket>, standings: Standings) {
    if let Some(socket) = socket {
        let (sender, connections) = mpsc::channel(1);
        tokio::select! {
            () = accept(&socket, sender) => {}
            served = serve(ReceiverStream::new(connections), standings) => {
                if let Err(error) = served {
                    tracing::warn!("the health socket is no longer served: {error}");
                }
            }
        }
    }
    std::future::pending::<()>().await;
}

/// Accepts connections and sends them to the server until it has ended.
async fn accept(socket: &Socket, connections: mpsc::Sender<io::Result<UnixStream>>) {
    loop {
        match socket.accept().await {
            Ok(stream) => {
                if connections.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!("health socket cannot accept a connection: {error}");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}
