//! Where the client sends, and how: the configuration, made ready.

use std::path::Path;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Uri};

use super::StartError;
use super::pace::Pace;
use super::tls::{self, Files, Named};
use crate::config::{Attributes, Compression, Config, Export, Logs, Protocol, Temporality};
use crate::report::Identity;

/// What is sent.
struct Signal {
    /// Its path below a receiver (OTLP specification, "OTLP/HTTP Request").
    path: &'static str,
    /// Its call of gRPC, as the path of a URL.
    call: &'static str,
    /// What messages add to the place.
    named: &'static str,
}

const METRICS: Signal = Signal {
    path: "/v1/metrics",
    call: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    named: "",
};
const LOGS: Signal = Signal {
    path: "/v1/logs",
    call: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    named: " (logs)",
};

/// Where the client sends, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL of each request.
    pub(super) url: Uri,
    /// What messages call it: scheme, host and port, and which signal where it is not metrics.
    pub(super) place: String,
    pub(super) protocol: Protocol,
    pub(super) compression: Compression,
    pub(super) headers: HeaderMap,
    /// Nothing where the URL is plain HTTP.
    pub(super) tls: Option<Files>,
    pub(super) pace: Pace,
    /// Encoded bytes of one request before compression.
    pub(super) max_request: usize,
    /// The resource of the client's own metrics; nothing: there are none.
    pub(super) agent: Option<(Attributes, Temporality)>,
}

impl Settings {
    /// Makes the configuration ready for metrics. `identity` tells the agent from others of a fleet.
    ///
    /// # Errors
    /// When the endpoint is no URL of HTTP.
    pub fn new(export: &Export, identity: &Identity) -> Result<Self, StartError> {
        let agent = Some((Attributes(identity.agent()), export.temporality()));
        let keys = ["export.ca", "export.cert", "export.key"];
        Ok(Self { agent, ..Self::of(export, identity, &METRICS, keys)? })
    }

    /// The same for log records, of which the client has no metrics of its own.
    ///
    /// # Errors
    /// When the endpoint is no URL of HTTP.
    pub fn logs(export: &Export, logs: &Logs, identity: &Identity) -> Result<Self, StartError> {
        let own = |path: &Path, own, other| if path.as_os_str().is_empty() { other } else { own };
        let keys = [
            own(&logs.ca, "logs.ca", "export.ca"),
            own(&logs.cert, "logs.cert", "export.cert"),
            own(&logs.key, "logs.key", "export.key"),
        ];
        Self::of(&export.for_logs(logs), identity, &LOGS, keys)
    }

    /// `keys` name authorities, certificate and key of the client.
    fn of(
        export: &Export,
        identity: &Identity,
        signal: &Signal,
        [ca, cert, key]: [&'static str; 3],
    ) -> Result<Self, StartError> {
        let invalid = || StartError::Endpoint { endpoint: export.endpoint.clone() };
        let parts = export.endpoint.parse::<Uri>().map_err(|_| invalid())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(invalid());
        };
        if (scheme != Scheme::HTTP && scheme != Scheme::HTTPS) || authority.host().is_empty() {
            return Err(invalid());
        }
        let place = format!("{scheme}://{}{}", shown(&authority), signal.named);
        let named = |setting, path: &Path| Named { setting, path: path.to_owned() };
        let tls = (scheme == Scheme::HTTPS).then(|| Files {
            ca: named(ca, &export.ca),
            cert: named(cert, &export.cert),
            key: named(key, &export.key),
        });
        let path = match export.protocol {
            Protocol::Grpc => PathAndQuery::from_static(signal.call),
            // A URL without any path and one with the root are the same to a parser, not to the specification.
            Protocol::HttpProtobuf if export.endpoint.ends_with(authority.as_str()) => {
                PathAndQuery::from_static(signal.path)
            }
            Protocol::HttpProtobuf => {
                parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"))
            }
        };
        let url = Uri::builder().scheme(scheme).authority(authority).path_and_query(path);
        Ok(Self {
            url: url.build().map_err(|_| invalid())?,
            place,
            protocol: export.protocol,
            compression: export.compression,
            headers: export.headers.0.clone(),
            tls,
            pace: Pace::of_host(&identity.host_id, export.interval, export.timeout),
            max_request: usize::try_from(export.max_request).unwrap_or(usize::MAX),
            agent: None,
        })
    }

    /// For what has happened already: sent at once, and without metrics of the client's own, whose time is now.
    #[must_use]
    pub fn of_the_past(self) -> Self {
        Self { pace: Pace { phase: Duration::ZERO, ..self.pace }, agent: None, ..self }
    }

    /// Where metrics of a configuration go, and where log records; nothing where none are sent.
    ///
    /// # Errors
    /// When an endpoint is no URL of HTTP.
    pub fn both(config: &Config, identity: &Identity) -> Result<[Option<Self>; 2], StartError> {
        let (export, logs) = (&config.export, &config.logs);
        let sent = !export.endpoint.is_empty();
        let metrics = sent.then(|| Self::new(export, identity)).transpose()?;
        let mirrored = sent && export.exemplar_logs;
        let logs = mirrored.then(|| Self::logs(export, logs, identity)).transpose()?;
        Ok([metrics, logs])
    }

    /// Proves that what TLS needs is there.
    ///
    /// # Errors
    /// When files of TLS cannot be used.
    pub fn proved(self) -> Result<Self, StartError> {
        let proof = tls::config(self.tls.as_ref()).map(drop);
        proof.map_err(|source| StartError::Tls { place: self.place.clone(), source })?;
        Ok(self)
    }
}

/// Host and port, without user and password.
fn shown(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, place)| place)
}
