//! A receiver of OTLP over HTTP, for tests of the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use serde_json::Value;

/// The status of a request that is taken.
const TAKEN: &str = "200 OK";

/// Requests that were taken, in order; and the port where they are.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<Taken>>>,
}

/// The path of a request, and its message in OTLP/JSON.
type Taken = (String, Value);

/// One point: whose it is and of which metric, its time, and all that is said, as text.
pub(crate) struct Point {
    pub(crate) metric: String,
    pub(crate) series: String,
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    pub(crate) told: Value,
}

impl Receiver {
    /// Takes what comes to a port of the loopback for as long as the program runs.
    pub(crate) fn start() -> Self {
        Self::answering(|_| TAKEN)
    }

    /// The same, of what it answers with [`TAKEN`]: the answer to a path is asked for when its request has come.
    pub(crate) fn answering(
        answer: impl Fn(&str) -> &'static str + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::<Mutex<Vec<Taken>>>::default();
        let taken = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (taken, answer) = (Arc::clone(&taken), answer.clone());
                std::thread::spawn(move || take(BufReader::new(stream), &taken, &answer));
            }
        });
        Self { port, requests }
    }

    /// The points that have come so far.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.messages("/v1/metrics").iter().flat_map(points).collect()
    }

    /// The messages to one path that have come so far.
    pub(crate) fn messages(&self, to: &str) -> Vec<Value> {
        let requests = self.requests.lock().expect("no panic");
        let to = requests.iter().filter(|(path, _)| path == to);
        to.map(|(_, message)| message.clone()).collect()
    }
}

fn take(
    mut stream: BufReader<TcpStream>,
    taken: &Mutex<Vec<Taken>>,
    answer: &dyn Fn(&str) -> &'static str,
) -> std::io::Result<()> {
    loop {
        let (mut length, mut line, mut path) = (0, String::new(), String::new());
        while line != "\r\n" {
            if let Some(to) = line.strip_prefix("POST ") {
                path = to.split(' ').next().unwrap_or_default().to_owned();
            }
            if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
                length = number.trim().parse().unwrap_or(0);
            }
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let failed = std::io::Error::other;
        let message = if path == "/v1/logs" {
            serde_json::to_value(ExportLogsServiceRequest::decode(&body[..]).map_err(failed)?)?
        } else {
            serde_json::to_value(ExportMetricsServiceRequest::decode(&body[..]).map_err(failed)?)?
        };
        let status = answer(&path);
        if status == TAKEN {
            taken.lock().expect("no panic").push((path, message));
        }
        write!(stream.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")?;
    }
}

/// The points of a request in OTLP/JSON.
pub(crate) fn points(request: &Value) -> Vec<Point> {
    let items = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for resource in items(request, "resourceMetrics") {
        let whose = &resource["resource"];
        for metric in items(&resource, "scopeMetrics").iter().flat_map(|s| items(s, "metrics")) {
            let name = metric["name"].as_str().expect("a name");
            let kinds = ["sum", "gauge", "histogram"];
            let data = kinds.iter().find_map(|kind| Some((kind, metric.get(*kind)?)));
            let (kind, data) = data.expect("data of a known kind");
            for told in items(data, "dataPoints") {
                let time = told["timeUnixNano"].as_str().and_then(|at| at.parse().ok());
                found.push(Point {
                    metric: name.to_owned(),
                    series: format!(
                        "{whose} {name} {} {kind} {} {} {}",
                        metric["unit"],
                        data["aggregationTemporality"],
                        data["isMonotonic"],
                        told["attributes"]
                    ),
                    time: time.expect("a time"),
                    told,
                });
            }
        }
    }
    found
}
