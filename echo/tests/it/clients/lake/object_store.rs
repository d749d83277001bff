//! A stand-in for an object store, behind a port that refuses connections when a test asks for it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::clients::python_with;
use crate::testbed::{free_port, wait_for};

/// Packages for Python.
const PACKAGES: [&str; 1] = ["moto[server]==5.2.5"];

/// The stand-in, killed on drop.
pub(super) struct ObjectStore {
    server: Child,
    front: Arc<Front>,
    /// URL of the port in front of it.
    pub(super) url: String,
}

/// State of the port.
#[derive(Debug)]
struct Front {
    server: String,
    refuses: AtomicBool,
    refuses_at: Mutex<Option<&'static str>>,
    refused: AtomicU64,
    has_ended: AtomicBool,
}

impl ObjectStore {
    /// Starts it with a bucket `bucket`.
    pub(super) fn start() -> Self {
        let port = free_port().to_string();
        let mut server = python_with(&PACKAGES, "moto_server");
        let server = server.args(["-p", &port]).stderr(Stdio::null()).spawn();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = Self {
            server: server.unwrap(),
            front: Arc::new(Front {
                server: format!("127.0.0.1:{port}"),
                refuses: AtomicBool::default(),
                refuses_at: Mutex::default(),
                refused: AtomicU64::default(),
                has_ended: AtomicBool::default(),
            }),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        let front = Arc::clone(&store.front);
        thread::spawn(move || front.serve(&listener));
        wait_for("the object store", || {
            let bucket = ureq::put(format!("{}/bucket", store.url)).send_empty();
            bucket.is_ok()
        });
        store
    }

    /// Closes all connections, and new ones, until `accept`.
    pub(super) fn refuse(&self) {
        self.front.refuses.store(true, Ordering::Release);
    }

    /// Refuses from the next request whose path contains a text.
    pub(super) fn refuse_at(&self, path: &'static str) {
        *self.front.refuses_at.lock().unwrap() = Some(path);
    }

    /// Ends the refusal.
    pub(super) fn accept(&self) {
        self.front.refuses.store(false, Ordering::Release);
    }

    /// Number of refused connections.
    pub(super) fn refused(&self) -> u64 {
        self.front.refused.load(Ordering::Acquire)
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.front.has_ended.store(true, Ordering::Release);
        // The thread sees it with the next connection. The server has ended if it could not start.
        let _seen = TcpStream::connect(self.url.trim_start_matches("http://"));
        let _gone = self.server.kill();
        let _reaped = self.server.wait();
    }
}

impl Front {
    fn serve(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.has_ended.load(Ordering::Acquire) {
                return;
            }
            let server = TcpStream::connect(&self.server).ok();
            let Some(server) = server.filter(|_| !self.is_refusing()) else {
                // The server starts, or the test refuses.
                continue;
            };
            let (back, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (request, response) = (Arc::clone(&self), Arc::clone(&self));
            thread::spawn(move || request.copy(client, to));
            thread::spawn(move || response.copy(server, back));
        }
    }

    /// Returns whether a connection has to be closed, which counts it.
    fn is_refusing(&self) -> bool {
        let refuses = self.refuses.load(Ordering::Acquire);
        self.refused.fetch_add(u64::from(refuses), Ordering::AcqRel);
        refuses
    }

    /// Refuses from now on if the request is the one that was waited for.
    fn note(&self, request: &[u8]) {
        let line = request.split(|&byte| byte == b'\r').next().unwrap();
        let line = String::from_utf8_lossy(line);
        let is_awaited = |path: &mut &str| line.ends_with(" HTTP/1.1") && line.contains(*path);
        let awaited = self.refuses_at.lock().unwrap().take_if(is_awaited);
        if awaited.is_some() {
            self.refuses.store(true, Ordering::Release);
        }
    }

    /// Copies one direction of a connection until it ends or is refused.
    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            self.note(&buffer[..n]);
            if self.is_refusing() || to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        // The other side has closed it, or is closed by this.
        let _closed = from.shutdown(Shutdown::Both);
        let _closed = to.shutdown(Shutdown::Both);
    }
}
