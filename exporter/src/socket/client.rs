//! The asking side, for `memprov report`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;

use super::path;

/// Time that a daemon may take: it may scan first.
const PATIENCE: Duration = Duration::from_secs(25);
/// Longest answer that is taken.
const MAX_ANSWER: u64 = 256 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no memprov daemon answers on {}: start one with `memprov run`, or name its directory with --state-dir",
        socket.display()
    )]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
    },
    /// It ended while it was asked.
    #[error("the memprov daemon on {} ended before it answered: ask again once it runs", socket.display())]
    Ended {
        /// The socket.
        socket: PathBuf,
    },
    /// The daemon has no report for us, and says why.
    #[error("the memprov daemon has no report: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Why.
        message: String,
    },
    /// The socket is another user's.
    #[error("may not talk to the memprov daemon on {}: ask as the user that runs it", socket.display())]
    Forbidden {
        /// The socket.
        socket: PathBuf,
    },
    /// The daemon did not answer in time, or the connection broke.
    #[error("talk to the memprov daemon on {}", socket.display())]
    Io {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What came is no answer of memprov.
    #[error("what answers on {} is no memprov daemon: {message}", socket.display())]
    Malformed {
        /// The socket.
        socket: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// Asks the daemon of a state directory for its report, about one process or all.
///
/// # Errors
/// When nobody answers, or has nothing to say, or says it wrongly.
pub fn fetch(state_dir: &Path, pid: Option<u32>) -> Result<Vec<u8>, ClientError> {
    let socket = path(state_dir);
    let query = pid.map_or_else(String::new, |pid| format!("?pid={pid}"));
    let request =
        format!("GET /v1/report{query} HTTP/1.1\r\nHost: memprov\r\nConnection: close\r\n\r\n");
    let mut stream = UnixStream::connect(&socket).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::NoDaemon { socket: socket.clone() }
        }
        io::ErrorKind::PermissionDenied => ClientError::Forbidden { socket: socket.clone() },
        _ => ClientError::Io { socket: socket.clone(), source },
    })?;
    let mut bytes = Vec::new();
    // A daemon that refuses may have closed its end before the request is written: what it said counts all the same.
    let sent = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(request.as_bytes()));
    let received = stream.take(MAX_ANSWER).read_to_end(&mut bytes);
    if bytes.is_empty() {
        return Err(match sent.and(received.map(|_| ())) {
            Err(source) if !went_away(&source) => ClientError::Io { socket, source },
            _ => ClientError::Ended { socket },
        });
    }
    let malformed = |message: String| ClientError::Malformed { socket: socket.clone(), message };
    let (status, body) = parse(&bytes).map_err(malformed)?;
    if status == 200 {
        return Ok(body.to_vec());
    }
    let message = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|value| value.get("error")?.as_str().map(str::to_owned))
        .ok_or_else(|| malformed(format!("status {status} without a message")))?;
    Err(ClientError::Refused { status, message })
}

fn went_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Status and body of a complete answer.
fn parse(bytes: &[u8]) -> Result<(u16, &[u8]), String> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("the answer ended early".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let status = response.code.unwrap_or_default();
    let promised = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
    let body = bytes.get(length..).unwrap_or_default();
    match promised {
        Some(promised) if promised == body.len() => Ok((status, body)),
        Some(promised) => Err(format!("{promised} bytes were promised, {} came", body.len())),
        None => Err("the answer has no length".to_owned()),
    }
}

/// The process that listens on the socket of a state directory, if one does.
pub fn listener_pid(state_dir: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path(state_dir)).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}
