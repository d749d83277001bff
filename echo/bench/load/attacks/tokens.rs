//! Attacks that guess tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::interval;

use super::Attackers;
use super::line::HttpConnection;
use super::site::Site;

/// Number of concurrent connections that guess.
const CONNECTIONS: u64 = 10;

/// Interval between two guesses of a connection.
const PAUSE: Duration = Duration::from_millis(10);

/// Starts clients that send queries and metrics with invalid tokens.
pub(super) fn bad(attackers: &mut Attackers, site: &Arc<Site>) {
    for connection in 0..CONNECTIONS {
        let site = Arc::clone(site);
        attackers.spawn(move |attempts| async move {
            let mut ticks = interval(PAUSE);
            let (mut line, mut guess) = (None, connection);
            loop {
                ticks.tick().await;
                attempts.add();
                guess += CONNECTIONS;
                line = guess_once(&site, line, guess).await.ok();
            }
        });
    }
}

/// Sends one guess; reuses the connection until the server closes it.
async fn guess_once(
    site: &Site,
    line: Option<HttpConnection>,
    guess: u64,
) -> std::io::Result<HttpConnection> {
    let is_query = guess.is_multiple_of(2);
    let mut line = if let Some(line) = line {
        line
    } else {
        let address = if is_query {
            &site.http
        } else {
            &site.otlp_http
        };
        HttpConnection::open(address, site.http1()).await?
    };
    let request = if is_query {
        "GET /api/v1/tools/list HTTP/1.1\r\n"
    } else {
        "POST /v1/metrics HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 0\r\n"
    };
    let head =
        format!("{request}host: localhost\r\nauthorization: Bearer echo_{guess:043}\r\n\r\n");
    line.send(head.as_bytes()).await?;
    line.read_response().await?;
    Ok(line)
}
