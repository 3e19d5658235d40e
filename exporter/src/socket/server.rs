//! The listening side: one thread that accepts, and one short-lived thread a connection.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;

use super::{Handler, Refusal, path};
use crate::statedir::StateDir;

/// Connections served at once; one more is told to come back.
const CONNECTIONS: usize = 8;
/// Longest request head.
const MAX_REQUEST: usize = 8 << 10;
/// Time a client has to send its whole request.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Time a client may stand still while it is sent an answer.
const SEND_TIME: Duration = Duration::from_secs(5);

/// A listening socket. It stops and its file is gone when the value is dropped; connections that are being answered
/// then end by themselves.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket cannot be made.
    #[error("listen on {}", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("start the thread of the socket")]
    Thread(#[source] io::Error),
}

impl Server {
    /// Listens in a directory that this process holds. The socket of a daemon that is gone is replaced.
    ///
    /// # Errors
    /// When the socket cannot be made or its thread not be started.
    pub fn start(directory: &StateDir, handler: Arc<dyn Handler>) -> Result<Self, ServerError> {
        let path = path(directory.path());
        let listener = bind(directory, &path)
            .map_err(|source| ServerError::Bind { path: path.clone(), source })?;
        let (stop, stopped) = UnixStream::pair().map_err(ServerError::Thread)?;
        let thread = Builder::new()
            .name("socket".to_owned())
            .spawn(move || accept(&listener, &stopped, &handler))
            .map_err(ServerError::Thread)?;
        Ok(Self { path, stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
        // The other end sees the end of the stream.
        if let Err(error) = self.stop.shutdown(std::net::Shutdown::Both) {
            tracing::debug!(%error, "the thread of the socket had ended before");
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the socket panicked");
        }
    }
}

/// Makes the socket where nobody else can reach it, gives it its mode, and only then moves it to its place, over
/// whatever a dead daemon left there.
fn bind(directory: &StateDir, path: &std::path::Path) -> io::Result<UnixListener> {
    // Shorter than the socket's own name, so that no path is too long here and short enough there.
    let private = directory.path().join(".new");
    remove_private(&private)?;
    DirBuilder::new().mode(0o700).create(&private)?;
    let fresh = private.join("s");
    let bound = UnixListener::bind(&fresh).and_then(|listener| {
        std::fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        std::fs::rename(&fresh, path)?;
        Ok(listener)
    });
    remove_private(&private)?;
    bound
}

/// Removes what this or a killed daemon left of [`bind`].
fn remove_private(private: &std::path::Path) -> io::Result<()> {
    match std::fs::remove_dir_all(private) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn accept(listener: &UnixListener, stopped: &UnixStream, handler: &Arc<dyn Handler>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "the socket cannot be waited for; reports are over");
                return;
            }
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => dispatch(stream, handler, &busy),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The client went away, or descriptors are short: neither ends the service, and neither may spin.
            Err(error) => {
                tracing::debug!(%error, "accept on the socket");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Counts a connection for as long as it lives.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn dispatch(stream: UnixStream, handler: &Arc<dyn Handler>, busy: &Arc<AtomicUsize>) {
    let before = busy.fetch_add(1, Ordering::AcqRel);
    let slot = Slot(Arc::clone(busy));
    let started = if before < CONNECTIONS {
        let handler = Arc::clone(handler);
        Builder::new().name("socket-client".to_owned()).spawn(move || {
            let _slot = slot;
            if let Err(error) = serve(stream, handler.as_ref()) {
                tracing::debug!(%error, "a client of the socket went away");
            }
        })
    } else {
        // Few bytes: they fit in the socket's buffer, so a client that does not read holds up nobody.
        let answer = Answer::error(503, "too many requests at once, try again");
        if let Err(error) = answer.send(stream, Duration::from_millis(100)) {
            tracing::debug!(%error, "a client of the socket went away");
        }
        return;
    };
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start a thread for a client of the socket");
    }
}

fn serve(mut stream: UnixStream, handler: &dyn Handler) -> io::Result<()> {
    let answer = match read(&mut stream)? {
        Ok(head) => answer(&head, handler),
        Err(refusal) => refusal,
    };
    answer.send(stream, SEND_TIME)
}

/// The request head, or why it is none.
fn read(stream: &mut UnixStream) -> io::Result<Result<Vec<u8>, Answer>> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(Answer::error(408, "the request did not arrive in time")));
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut chunk) {
            Ok(0) => return Ok(Err(Answer::error(400, "the request ended early"))),
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        head.extend(chunk.iter().take(count));
        if head.len() > MAX_REQUEST {
            return Ok(Err(Answer::error(431, "the request is longer than 8 KiB")));
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Ok(head));
        }
    }
}

/// Status and body.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn error(status: u16, message: &str) -> Self {
        Self { status, body: json!({ "error": message }).to_string().into_bytes() }
    }

    fn send(&self, mut stream: UnixStream, time: Duration) -> io::Result<()> {
        let phrase = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             {allow}Connection: close\r\n\r\n",
            self.status,
            self.body.len()
        );
        stream.set_write_timeout(Some(time))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        // A socket that is closed with bytes unread resets its peer, which may then miss the end of the answer.
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.set_nonblocking(true)?;
        let mut rest = [0; MAX_REQUEST];
        match stream.read(&mut rest) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

fn answer(head: &[u8], handler: &dyn Handler) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let (method, target) = match (request.parse(head), request.method, request.path) {
        (Ok(httparse::Status::Complete(_)), Some(method), Some(target)) => (method, target),
        (Err(error), ..) => return Answer::error(400, &format!("this is no HTTP/1.1: {error}")),
        _ => return Answer::error(400, "the request is not complete"),
    };
    let (route, query) = target.split_once('?').unwrap_or((target, ""));
    if !matches!(route, "/v1/report" | "/v1/health") {
        return Answer::error(404, "there are /v1/report and /v1/health");
    }
    if method != "GET" {
        return Answer::error(405, "only GET");
    }
    if route == "/v1/health" {
        let body = json!({
            "status": "ok",
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        return Answer { status: 200, body: body.to_string().into_bytes() };
    }
    let pid = match pid(query) {
        Ok(pid) => pid,
        Err(message) => return Answer::error(400, &message),
    };
    match handler.report(pid) {
        Ok(body) => Answer { status: 200, body },
        Err(Refusal::NotReady(message)) => Answer::error(503, &message),
        Err(Refusal::NothingToSay(message)) => Answer::error(404, &message),
    }
}

/// The process that a query asks for.
fn pid(query: &str) -> Result<Option<u32>, String> {
    let mut pid = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "pid" {
            return Err("the only parameter is pid".to_owned());
        }
        if pid.is_some() {
            return Err("pid is given twice".to_owned());
        }
        let number = value.parse::<u32>().ok().filter(|number| *number > 0);
        pid = Some(number.ok_or_else(|| "pid is no process id".to_owned())?);
    }
    Ok(pid)
}
