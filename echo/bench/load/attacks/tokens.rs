//! Attacks that guess tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::interval;

use super::Attackers;
use super::line::HttpConnection;
use super::site::Site;

/// Connections that guess at once.
const CONNECTIONS: u64 = 10;

/// From one guess of a connection to its next.
const PAUSE: Duration = Duration::from_millis(10);

/// Queries and metrics with invalid tokens.
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
                line = one(&site, line, guess).await.ok();
            }
        });
    }
}

/// One guess, on a connection that is kept while the other side keeps it.
async fn one(
    site: &Site,
    line: Option<HttpConnection>,
    guess: u64,
) -> std::io::Result<HttpConnection> {
    let asks = guess.is_multiple_of(2);
    let mut line = if let Some(line) = line {
        line
    } else {
        let door = if asks { &site.http } else { &site.otlp_http };
        HttpConnection::open(door, site.http1()).await?
    };
    let request = if asks {
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
