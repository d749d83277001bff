//! An HTTP server for tests: it gives the configured answers and keeps the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Method and path.
    pub(crate) line: String,
    /// Headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Body.
    pub(crate) body: String,
}

impl Received {
    /// Value of a header.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// How a request is answered.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Status and body.
    Status(u16, String),
    /// The request is read, and the connection is closed without an answer.
    Close,
    /// Bytes that are no HTTP.
    Garbage,
    /// No answer until [`Server::release`], then 200.
    Hold,
}

impl Reply {
    /// Success without content.
    pub(crate) fn ok() -> Self {
        Self::Status(200, "{}".to_owned())
    }
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    replies: Mutex<Vec<Reply>>,
    is_released: Mutex<bool>,
    released: Condvar,
}

/// A running server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Address, such as `http://127.0.0.1:1234`.
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Server {
    /// Starts a server that gives these answers in turn, and the last one from then on.
    pub(crate) fn start(replies: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        *shared.replies.lock().unwrap() = replies.iter().rev().cloned().collect();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { url, shared }
    }

    /// Requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Answers the requests that are held.
    pub(crate) fn release(&self) {
        *self.shared.is_released.lock().unwrap() = true;
        self.shared.released.notify_all();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let Some(received) = read(&stream) else {
            return;
        };
        let reply = {
            let mut replies = self.replies.lock().unwrap();
            match replies.as_slice() {
                [last] => last.clone(),
                _ => replies.pop().unwrap(),
            }
        };
        self.received.lock().unwrap().push(received);
        let text = match reply {
            Reply::Close => return,
            Reply::Garbage => "no HTTP at all\r\n\r\n".to_owned(),
            Reply::Status(status, body) => answer(status, &body),
            Reply::Hold => {
                let mut is_released = self.is_released.lock().unwrap();
                while !*is_released {
                    is_released = self.released.wait(is_released).unwrap();
                }
                drop(is_released);
                answer(200, "{}")
            }
        };
        let _closed = stream.write_all(text.as_bytes());
    }
}

fn answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\nlocation: /elsewhere\r\n\r\n{body}"
    )
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    Some(Received {
        line: words.join(" "),
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}
