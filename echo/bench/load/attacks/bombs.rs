//! Attacks with oversized bodies.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::time::interval;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::{Service, ServiceExt};

use crate::wire::Target;

use super::line::HttpConnection;
use super::site::Site;
use super::{Attackers, Attempts};

/// Decompressed size of a bomb, bytes.
const UNPACKED: u64 = 1 << 30;

/// Interval between two bombs of an attacker.
const BOMB_PAUSE: Duration = Duration::from_millis(500);

/// Interval between two endless bodies of an attacker.
const BODY_PAUSE: Duration = Duration::from_millis(300);

/// Starts attackers with bodies that do not end.
pub(super) fn oversized(attackers: &mut Attackers, site: &Arc<Site>) {
    let (agent, reader) = (&site.agent_token, &site.reader_token);
    for (address, path, token) in [
        (&site.otlp_http, "/v1/metrics", agent),
        (&site.http, "/mcp", reader),
        (&site.http, "/api/v1/tools/fleet.cluster.get_cost", reader),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             authorization: Bearer {token}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let (site, address) = (Arc::clone(site), address.clone());
        attackers.spawn(move |attempts| async move {
            let mut ticks = interval(BODY_PAUSE);
            loop {
                ticks.tick().await;
                attempts.add();
                // A disconnect ends one attempt.
                let _disconnected = endless(&site, &address, &head).await;
            }
        });
    }
}

async fn endless(site: &Site, address: &str, head: &str) -> io::Result<()> {
    let mut line = HttpConnection::open(address, site.http1()).await?;
    line.send(head.as_bytes()).await?;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x1_0000));
    loop {
        line.send(chunk.as_bytes()).await?;
    }
}

/// Starts attackers with small requests that decompress to large ones.
pub(super) fn compressed(attackers: &mut Attackers, site: &Arc<Site>) {
    for (encoding, packed) in [("gzip", gzip()), ("zstd", zstd())] {
        // An attacker whose compression fails does nothing: the number of attempts shows it.
        let Ok(packed) = packed.map(Bytes::from) else {
            continue;
        };
        let (by_http, bomb) = (Arc::clone(site), packed.clone());
        attackers.spawn(move |attempts| async move {
            let mut ticks = interval(BOMB_PAUSE);
            loop {
                ticks.tick().await;
                attempts.add();
                let _disconnected = attack_http(&by_http, encoding, &bomb).await;
            }
        });
        let by_grpc = Arc::clone(site);
        attackers.spawn(move |attempts| attack_grpc(by_grpc, encoding, packed, attempts));
    }
}

async fn attack_http(site: &Site, encoding: &str, packed: &[u8]) -> io::Result<()> {
    let mut line = HttpConnection::open(&site.otlp_http, site.http1()).await?;
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-encoding: {encoding}\r\n\
         authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        site.agent_token,
        packed.len()
    );
    line.send(head.as_bytes()).await?;
    line.send(packed).await?;
    line.read_response().await
}

async fn attack_grpc(site: Arc<Site>, encoding: &'static str, packed: Bytes, attempts: Attempts) {
    let target = Target::with_token(&site.otlp, site.http2(), &site.agent_token);
    let mut ticks = interval(BOMB_PAUSE);
    let Ok(target) = target else { return };
    loop {
        let Ok(mut channel) = target.connect().await else {
            continue;
        };
        loop {
            ticks.tick().await;
            attempts.add();
            let request = grpc_request(&site.agent_token, encoding, &packed);
            let Ok(request) = request else { return };
            let Ok(channel) = channel.ready().await else {
                break;
            };
            if channel.call(request).await.is_err() {
                break;
            }
        }
    }
}

/// Frames a compressed gRPC message: a flag, the length, and the message.
fn grpc_request(
    token: &str,
    encoding: &str,
    packed: &Bytes,
) -> Result<Request<Body>, tonic::codegen::http::Error> {
    let mut framed = BytesMut::with_capacity(packed.len() + 5);
    framed.put_u8(1);
    framed.put_u32(u32::try_from(packed.len()).unwrap_or(u32::MAX));
    framed.put_slice(packed);
    Request::post("http://localhost/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .header("authorization", format!("Bearer {token}"))
        .body(Body::new(axum::body::Body::from(framed.freeze())))
}

fn gzip() -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    fill(&mut encoder)?;
    encoder.finish()
}

fn zstd() -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3)?;
    fill(&mut encoder)?;
    encoder.finish()
}

fn fill(encoder: &mut impl Write) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    for _ in 0..UNPACKED >> 20 {
        encoder.write_all(&zeros)?;
    }
    Ok(())
}
