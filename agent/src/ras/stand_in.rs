//! Stand-in for the server of NCCL's RAS subsystem, as in `src/ras/client_support.cc` of NCCL
//! 2.30.7: lines of commands, one line in reply to each, and the end of the connection after the
//! status.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Behaviour of the server.
#[derive(Debug, Clone)]
pub(crate) enum Server {
    /// Answers in JSON.
    Json(String),
    /// Knows no other format than text.
    Text(String),
    /// Begins to answer and never ends.
    Endless,
    /// Never replies.
    Silent,
    /// Speaks another protocol.
    Foreign,
}

impl Server {
    /// Listens, and serves every connection in turn.
    pub(crate) fn listen(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for connection in listener.incoming() {
                // A client that has seen enough closes the connection.
                let _closed = self.serve(&connection.unwrap());
            }
        });
        address
    }

    fn serve(&self, connection: &TcpStream) -> std::io::Result<()> {
        let mut output = connection;
        for line in BufReader::new(connection).lines() {
            let line = line?.to_ascii_lowercase();
            let reply = match (self, line.as_str()) {
                (Self::Silent, _) => continue,
                (Self::Foreign, _) => return output.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
                (_, line) if line.starts_with("client protocol ") => "SERVER PROTOCOL 2\n",
                (_, line) if line.starts_with("timeout ") => "OK\n",
                (Self::Text(_), "set format json") => "ERROR: Unknown command set format json\n",
                (_, "set format json") => "OK\n",
                (Self::Json(status), "status") | (Self::Text(status), "verbose status") => {
                    return output.write_all(status.as_bytes());
                }
                (Self::Endless, _) => loop {
                    output.write_all(b"{\"communicators\": [")?;
                },
                _ => "ERROR: Unknown command\n",
            };
            output.write_all(reply.as_bytes())?;
        }
        Ok(())
    }
}

/// Answer about one communicator in the layout of NCCL: host and number of launched all-reduces of
/// each rank, or `None` for a rank that is considered dead.
pub(crate) fn json(ranks: &[(&str, Option<u64>)]) -> String {
    let (mut answered, mut missing) = (Vec::new(), Vec::new());
    for (rank, (host, launched)) in ranks.iter().enumerate() {
        let who = format!(
            "\"rank\": {rank}, \"host\": \"{host}\", \"pid\": {}, \"cuda_dev\": {rank}, \
             \"nvml_dev\": {rank}",
            1_000_000_000 + rank
        );
        match launched {
            Some(launched) => answered.push(format!(
                "{{{who}, \"status\": {{\"init_state\": 0, \"async_error\": 0, \
                 \"finalize_called\": false, \"destroy_flag\": false, \"abort_flag\": false}}, \
                 \"collective_counts\": {{\"Broadcast\": 0, \"Reduce\": 0, \"AllGather\": 0, \
                 \"ReduceScatter\": 0, \"AllReduce\": {launched}}}}}"
            )),
            None => missing.push(format!(
                "{{{who}, \"status\": {{\"unresponsive\": true, \"considered_dead\": true}}}}"
            )),
        }
    }
    let mut status = String::from("{\"nccl_version\": \"2.30.7\", \"communicators\": [{");
    let lists = (answered.join(",\n"), missing.join(",\n"));
    writeln!(
        status,
        "\"hash\": \"0xcafe\", \"secondary_hash\": \"0x1:0x2\", \"size\": {}, \
         \"ranks\": [{}], \"missing_ranks\": [{}]}}], \"ras\": {{\"timeouts_count\": 0}}}}",
        ranks.len(),
        lists.0,
        lists.1
    )
    .unwrap();
    status
}
