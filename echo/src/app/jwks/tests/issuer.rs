//! A local issuer with real TLS and configurable responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use echo_serve::tls::authority::Authority;

/// Response of the issuer.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// Status line with headers, and body.
    Text(&'static str, String),
    /// An endless body.
    Endless,
    /// No response, while the connection stays open.
    Silent,
}

/// An issuer that runs as long as the test.
pub(super) struct Issuer {
    pub(super) address: SocketAddr,
    /// CA certificate in PEM.
    pub(super) authority: String,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    /// Starts an issuer that responds with these keys.
    pub(super) fn with(keys: &str) -> Self {
        let authority = Authority::new();
        let (cert, key) = authority.certify(&["127.0.0.1"]);
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = Self {
            address: listener.local_addr().unwrap(),
            authority: authority.pem(),
            answer: Arc::new(Mutex::new(Answer::Silent)),
            requests: Arc::default(),
        };
        issuer.publish(keys);
        let (answer, requests) = (Arc::clone(&issuer.answer), Arc::clone(&issuer.requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let session = ServerConnection::new(Arc::new(config.clone())).unwrap();
                let mut stream = StreamOwned::new(session, stream.unwrap());
                let Some(request) = request(&mut stream) else {
                    continue;
                };
                requests.lock().unwrap().push(request);
                let answer = answer.lock().unwrap().clone();
                // The client may hang up early.
                let _hung_up = respond(&mut stream, &answer);
            }
        });
        issuer
    }

    pub(super) fn publish(&self, keys: &str) {
        self.answer(Answer::Text("200 OK", keys.to_owned()));
    }

    pub(super) fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Reads the head of a request; `None` if the handshake fails.
fn request(stream: &mut Stream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

fn respond(stream: &mut Stream, answer: &Answer) -> std::io::Result<()> {
    match answer {
        Answer::Silent => {
            let _heard = stream.read(&mut [0])?;
        }
        Answer::Text(status, body) => {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )?;
        }
        Answer::Endless => {
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[b' '; 4_096])?;
            }
        }
    }
    stream.conn.send_close_notify();
    stream.flush()
}
