//! What leaves the host, where to, and how: the keys of `[export]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::detail::Detail;
use super::pairs::{Attributes, Headers};
use super::units;

/// What leaves the host, where to, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// Length of a pane: how often books are closed and sent.
    #[serde(with = "units::duration")]
    pub interval: Duration,
    /// URL of an OTLP receiver, `http://host:port` or `https://host:port`; empty: nothing is sent. With HTTP a URL
    /// without any path gets `/v1/metrics`; with gRPC the path says nothing.
    pub endpoint: String,
    /// How OTLP travels.
    pub protocol: Protocol,
    /// How requests are compressed.
    pub compression: Compression,
    /// The longest wait for one answer, connecting included.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Bytes of a request before compression.
    #[serde(with = "units::size")]
    pub max_request: u32,
    /// Sent with each request.
    pub headers: Headers,
    /// PEM file of the authorities that may sign the server's certificate; empty: those of the system.
    pub ca: PathBuf,
    /// PEM file of the client's certificate and its chain; empty: none.
    pub cert: PathBuf,
    /// PEM file of the client certificate's private key.
    pub key: PathBuf,
    /// What kind of backend is at the other end.
    pub preset: Preset,
    /// Which time a counter's point covers.
    pub temporality: OrPreset<Temporality>,
    /// Which kind of histogram is sent.
    pub histograms: OrPreset<Histograms>,
    /// `service.name` of the agent itself.
    pub service_name: String,
    /// Facts of this host for the resource of the agent.
    pub resource_attributes: Attributes,
    /// Whether exemplars are sent as log records, too.
    pub exemplar_logs: bool,
    /// How much of each resource is told.
    pub detail: Detail,
    /// What is a resource of its own.
    pub resources: Grain,
    /// Resources at most, beside the host's; the host tells the sum of the others.
    pub max_resources: u32,
    /// Owners of a resource that become series of their own where owners are told; the rest is one exact remainder.
    pub max_owners: u32,
}

impl Default for Export {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            endpoint: String::new(),
            protocol: Protocol::Grpc,
            compression: Compression::Gzip,
            timeout: Duration::from_secs(10),
            max_request: 3 << 20,
            headers: Headers::default(),
            ca: PathBuf::new(),
            cert: PathBuf::new(),
            key: PathBuf::new(),
            preset: Preset::Prometheus,
            temporality: OrPreset::Preset,
            histograms: OrPreset::Preset,
            service_name: "memprov".to_owned(),
            resource_attributes: Attributes::default(),
            exemplar_logs: false,
            detail: Detail::Kinds,
            resources: Grain::Container,
            max_resources: 32,
            max_owners: 50,
        }
    }
}

impl Export {
    /// The temporality that is meant.
    #[must_use]
    pub fn temporality(&self) -> Temporality {
        match (self.temporality, self.preset) {
            (OrPreset::Fixed(choice), _) => choice,
            (OrPreset::Preset, Preset::Prometheus) => Temporality::Cumulative,
            (OrPreset::Preset, Preset::Delta) => Temporality::Delta,
        }
    }

    /// The kind of histogram that is meant.
    #[must_use]
    pub fn histograms(&self) -> Histograms {
        match (self.histograms, self.preset) {
            (OrPreset::Fixed(choice), _) => choice,
            (OrPreset::Preset, Preset::Prometheus) => Histograms::Explicit,
            (OrPreset::Preset, Preset::Delta) => Histograms::Exponential,
        }
    }
}

choice! {
    /// How OTLP travels.
    Protocol {
        /// gRPC, usually on port 4317.
        Grpc = "grpc",
        /// HTTP with binary messages, usually on port 4318.
        HttpProtobuf = "http/protobuf",
    }
}

choice! {
    /// How requests are compressed.
    Compression {
        /// Not at all.
        None = "none",
        /// What every receiver must take.
        Gzip = "gzip",
        /// A third of gzip's CPU time, where the receiver knows it.
        Zstd = "zstd",
    }
}

choice! {
    /// What is a resource of its own.
    Grain {
        /// A container or systemd unit; the host for what is in neither.
        Container = "container",
        /// Every process.
        Process = "process",
    }
}

choice! {
    /// What kind of backend is at the other end.
    Preset {
        /// Cumulative points and explicit buckets.
        Prometheus = "prometheus",
        /// Delta points and exponential buckets.
        Delta = "delta",
    }
}

choice! {
    /// Which time a counter's point covers (OTLP exporter of the metrics SDK, "temporality preference").
    Temporality {
        /// From the series' start.
        Cumulative = "cumulative",
        /// From the last point, for counters and histograms; what goes up and down stays cumulative.
        Delta = "delta",
        /// As `delta`: memprov has no asynchronous counters, in which alone the two differ.
        LowMemory = "lowmemory",
    }
}

choice! {
    /// Which kind of histogram is sent.
    Histograms {
        /// Fixed bounds.
        Explicit = "explicit",
        /// Base-2 exponential bounds.
        Exponential = "exponential",
    }
}

/// A choice of its own, or what [`Preset`] says: the word `preset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[serde(bound(
    serialize = "T: Clone + Into<String>",
    deserialize = "T: TryFrom<String, Error = String>"
))]
pub enum OrPreset<T> {
    /// As the preset has it.
    Preset,
    /// Whatever the preset says.
    Fixed(T),
}

impl<T: TryFrom<String, Error = String>> TryFrom<String> for OrPreset<T> {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "preset" => Ok(Self::Preset),
            _ => T::try_from(word).map(Self::Fixed).map_err(|allowed| format!("{allowed}, preset")),
        }
    }
}

impl<T: Into<String>> From<OrPreset<T>> for String {
    fn from(value: OrPreset<T>) -> Self {
        match value {
            OrPreset::Preset => "preset".to_owned(),
            OrPreset::Fixed(choice) => choice.into(),
        }
    }
}
