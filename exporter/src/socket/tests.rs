use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::{ClientError, Handler, Refusal, Server, fetch, listener_pid, path};
use crate::statedir::{StateDir, StateDirError};

struct Echo;

impl Handler for Echo {
    fn report(&self, pid: Option<u32>) -> Result<Vec<u8>, Refusal> {
        match pid {
            Some(7) => Err(Refusal::NothingToSay("process 7 is not observed".to_owned())),
            Some(8) => Err(Refusal::NotReady("hooks are being attached".to_owned())),
            other => Ok(format!("{other:?}").into_bytes()),
        }
    }
}

fn server(directory: &Path) -> (StateDir, Server) {
    let held = StateDir::hold(directory).unwrap();
    let server = Server::start(&held, Arc::new(Echo)).unwrap();
    (held, server)
}

/// Sends bytes as they are, and returns status and body.
fn raw(directory: &Path, request: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(path(directory)).unwrap();
    let mut answer = Vec::new();
    // A server that refuses closes before it has read all: that may break the sending, not the answer.
    let sent = stream.write_all(request).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let received = stream.read_to_end(&mut answer);
    assert!(!answer.is_empty(), "{sent:?} {received:?}");
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn a_report_comes_through_whole_for_all_and_for_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let _running = server(dir.path());
    assert_eq!(fetch(dir.path(), None).unwrap(), b"None");
    assert_eq!(fetch(dir.path(), Some(42)).unwrap(), b"Some(42)");
}

#[test]
fn the_socket_is_for_its_owner_only_and_nothing_is_left_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let (held, server) = server(dir.path());
    let mode = std::fs::metadata(path(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names = |dir: &Path| -> Vec<_> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(dir.path()), ["memprov.sock"]);
    drop(server);
    drop(held);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn refusals_reach_the_client_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let _running = server(dir.path());
    for (pid, status, text) in [(7, 404, "not observed"), (8, 503, "being attached")] {
        let error = fetch(dir.path(), Some(pid)).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: s, .. } if s == status), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn bad_requests_are_answered_and_the_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let _running = server(dir.path());
    let long = [b"GET /v1/report?".as_slice(), &[b'a'; 9000], b" HTTP/1.1\r\n\r\n"].concat();
    let headers = format!("GET /v1/health HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    let cases: [(&[u8], u16); 14] = [
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"", 400),
        (b"GET /v1/report HTTP/1.1\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /v1/report HTTP/9.9\r\n\r\n", 400),
        (b"POST /v1/report HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /v1/report/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /v1/report?pid=x HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/report?pid=0 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/report?pid=1&pid=2 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/report?what=1 HTTP/1.1\r\n\r\n", 400),
        (headers.as_bytes(), 400),
        (&long, 431),
    ];
    for (request, status) in cases {
        let (got, body) = raw(dir.path(), request);
        assert_eq!(got, status, "{}", String::from_utf8_lossy(request));
        assert!(body.starts_with("{\"error\":"), "{body}");
    }
    let (status, body) = raw(dir.path(), b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(status, 200);
    assert!(body.contains(&format!("\"pid\":{}", std::process::id())), "{body}");
}

#[test]
fn a_client_that_says_nothing_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let _running = server(dir.path());
    let silent: Vec<_> = (0..7).map(|_| UnixStream::connect(path(dir.path())).unwrap()).collect();
    let mut slow = UnixStream::connect(path(dir.path())).unwrap();
    slow.write_all(b"GET /v1/rep").unwrap();
    // All eight places may be taken now; the ninth client is answered in either case.
    assert!(matches!(raw(dir.path(), b"GET /v1/health HTTP/1.1\r\n\r\n").0, 200 | 503));
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    drop(silent);
}

/// Holds every request until it is told to go on.
struct Gate {
    entered: Sender<()>,
    open: Mutex<Receiver<()>>,
}

impl Handler for Gate {
    fn report(&self, _pid: Option<u32>) -> Result<Vec<u8>, Refusal> {
        self.entered.send(()).unwrap();
        self.open.lock().unwrap().recv().unwrap();
        Ok(b"{}".to_vec())
    }
}

#[test]
fn more_clients_than_places_are_told_to_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let held = StateDir::hold(dir.path()).unwrap();
    let (entered, inside) = channel();
    let (open, gate) = channel();
    let handler = Arc::new(Gate { entered, open: Mutex::new(gate) });
    let _server = Server::start(&held, handler).unwrap();
    let root = dir.path().to_owned();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let root = root.clone();
            std::thread::spawn(move || fetch(&root, None).unwrap())
        })
        .collect();
    for _ in 0..8 {
        inside.recv().unwrap();
    }
    let error = fetch(dir.path(), None).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 503, .. }), "{error}");
    for _ in 0..8 {
        open.send(()).unwrap();
    }
    for client in clients {
        assert_eq!(client.join().unwrap(), b"{}");
    }
}

#[test]
fn a_second_daemon_is_refused_and_the_first_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let _running = server(dir.path());
    assert_eq!(listener_pid(dir.path()), Some(std::process::id()));
    let error = StateDir::hold(dir.path()).unwrap_err();
    assert!(matches!(error, StateDirError::Busy { pid: Some(_), .. }));
    assert!(error.to_string().contains(&format!("(pid {})", std::process::id())), "{error}");
}

#[test]
fn what_a_dead_daemon_left_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(path(dir.path())).unwrap());
    std::fs::create_dir(dir.path().join(".new")).unwrap();
    std::fs::write(dir.path().join(".new/s"), "").unwrap();
    assert!(matches!(fetch(dir.path(), None), Err(ClientError::NoDaemon { .. })));
    let _running = server(dir.path());
    assert_eq!(fetch(dir.path(), None).unwrap(), b"None");
}

#[test]
fn no_daemon_is_told_apart_from_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let error = fetch(dir.path(), None).unwrap_err();
    assert!(matches!(error, ClientError::NoDaemon { .. }));
    assert!(error.to_string().contains("memprov run"), "{error}");

    let listener = UnixListener::bind(path(dir.path())).unwrap();
    let answers: [&[u8]; 4] = [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\n\r\nab",
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nab",
    ];
    let count = answers.len();
    let impostor = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(answer).unwrap();
        }
    });
    for _ in 0..count {
        let error = fetch(dir.path(), None).unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
    }
    impostor.join().unwrap();
}

#[test]
fn a_daemon_that_ends_while_it_is_asked_is_told_apart_from_none() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(path(dir.path())).unwrap();
    let ending = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = fetch(dir.path(), None).unwrap_err();
    assert!(matches!(error, ClientError::Ended { .. }), "{error}");
    ending.join().unwrap();
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120));
    let held = StateDir::hold(&deep).unwrap();
    let error = Server::start(&held, Arc::new(Echo)).unwrap_err();
    assert!(error.to_string().contains("memprov.sock"), "{error}");
    assert_eq!(std::fs::read_dir(&deep).unwrap().count(), 0);
}
