//! Check of the host for node-problem-detector: reads the answer of the agent that runs here.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::protocol::nvhcd::HealthCheckRequest;
use crate::protocol::nvhcd::health_check_service_client::HealthCheckServiceClient;
use crate::server::Output;
use crate::standing::{State, shorten};

/// Time for the answer. A plugin has five seconds.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Standing of the host; unknown if the agent does not answer.
    pub state: State,
    /// Description, of at most 80 bytes.
    pub message: String,
}

impl Finding {
    fn unknown(why: String) -> Self {
        Self {
            state: State::Unknown,
            message: shorten(why),
        }
    }

    /// Returns the exit code of a plugin: 0 OK, 1 not OK, 2 unknown.
    pub fn exit_code(&self) -> u8 {
        match self.state {
            State::Ok => 0,
            State::Straggler => 1,
            State::Unknown => 2,
        }
    }
}

/// Asks the agent that serves `socket`.
pub async fn check(socket: &Path) -> Finding {
    match timeout(TIMEOUT, ask(socket)).await {
        Ok(Ok(output)) => match serde_json::from_str::<Output>(&output) {
            Ok(Output { state, message, .. }) => Finding {
                state,
                message: shorten(message),
            },
            Err(_other) => Finding::unknown("the socket is not served by fleet-agent".to_owned()),
        },
        Ok(Err(why)) => Finding::unknown(format!("fleet-agent does not answer: {why}")),
        Err(_elapsed) => {
            let seconds = TIMEOUT.as_secs();
            Finding::unknown(format!("fleet-agent has not answered within {seconds} s"))
        }
    }
}

async fn ask(socket: &Path) -> Result<String, String> {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|_error| "no connection".to_owned())?;
    let answer = HealthCheckServiceClient::new(channel)
        .run_health_check(HealthCheckRequest::default())
        .await;
    let answer = answer.map_err(|status| status.code().to_string())?;
    Ok(answer.into_inner().output)
}
