//! Attacks that hold connections open.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Attackers;
use super::line::HttpConnection;
use super::site::Site;

/// Interval between two pieces of a slow request.
const PAUSE: Duration = Duration::from_secs(1);

/// Delay before a closed connection is opened again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// First bytes of a TLS `ClientHello`: they announce a length, and the rest never comes.
const CLIENT_HELLO: [u8; 9] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];

/// Starts connections with incomplete handshakes.
pub(super) fn half_open(attackers: &mut Attackers, site: &Arc<Site>) {
    for number in 0..1_000 {
        let address = address(site, number);
        attackers.spawn(|attempts| async move {
            loop {
                attempts.add();
                if let Ok(mut stream) = TcpStream::connect(&address).await {
                    let _sent = stream.write_all(&CLIENT_HELLO).await;
                    let mut buffer = [0; 64];
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                }
                sleep(RETRY_AFTER).await;
            }
        });
    }
}

/// Starts connections without traffic.
pub(super) fn idle(attackers: &mut Attackers, site: &Arc<Site>) {
    for number in 0..1_000 {
        let site = Arc::clone(site);
        attackers.spawn(move |attempts| async move {
            loop {
                attempts.add();
                let line = HttpConnection::open(&address(&site, number), site.http1()).await;
                if let Ok(mut line) = line {
                    line.read_to_end().await;
                }
                sleep(RETRY_AFTER).await;
            }
        });
    }
}

/// Starts requests whose headers arrive one line at a time.
pub(super) fn slow_headers(attackers: &mut Attackers, site: &Arc<Site>) {
    let head = "GET / HTTP/1.1\r\nhost: localhost\r\n";
    drip(attackers, site, head, b"x-more: 1\r\n");
}

/// Starts requests whose bodies arrive one byte at a time.
pub(super) fn slow_bodies(attackers: &mut Attackers, site: &Arc<Site>) {
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\nauthorization: Bearer {}\r\n\
         content-length: 100000\r\n\r\n",
        site.agent_token
    );
    drip(attackers, site, &head, b"\n");
}

fn drip(attackers: &mut Attackers, site: &Arc<Site>, head: &str, more: &'static [u8]) {
    for _ in 0..500 {
        let (site, head) = (Arc::clone(site), head.to_owned());
        attackers.spawn(move |attempts| async move {
            loop {
                attempts.add();
                // A disconnect ends one attempt.
                let _disconnected = drip_once(&site, &head, more).await;
                sleep(RETRY_AFTER).await;
            }
        });
    }
}

async fn drip_once(site: &Site, head: &str, more: &[u8]) -> std::io::Result<()> {
    let mut line = HttpConnection::open(&site.otlp_http, site.http1()).await?;
    line.send(head.as_bytes()).await?;
    loop {
        sleep(PAUSE).await;
        line.send(more).await?;
    }
}

/// Address of one of the three listeners, in turn.
fn address(site: &Site, number: usize) -> String {
    let listeners = [&site.otlp, &site.otlp_http, &site.http];
    listeners
        .into_iter()
        .cycle()
        .nth(number % 3)
        .cloned()
        .unwrap_or_default()
}
