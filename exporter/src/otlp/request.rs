//! A request as the client holds it: encoded, but for the lengths of the messages around its points.
//!
//! The message of a request is a tree: resources, in them scopes, in them metrics, in them data with points. What is
//! sent is mostly points. Each is encoded once, when it is made, and lies beside those of the same metric; the messages
//! around them are few. So length, halves and bytes of a request are a matter of metrics, not of points. Log records are
//! points of a scope.
//!
//! Format: Protocol Buffers, "Encoding"; opentelemetry-proto `collector`, `metrics/v1`, `logs/v1`.

use std::io::{self, Write};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, metric::Data};
use prost::{DecodeError, Message};

/// Wire types, the low three bits of a key.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;

/// A request of OTLP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    levels: Vec<Level>,
}

/// A message in the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Level {
    /// What it is in the message around it.
    field: u32,
    /// All of it but `inner`, encoded.
    head: Vec<u8>,
    inner: Inner,
}

#[derive(Clone, Debug, PartialEq)]
enum Inner {
    Levels(Vec<Level>),
    Points(Points),
}

/// Points, each with key and length before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Points {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Request {
    /// Adds what another one has.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.levels.append(&mut other.levels);
    }

    /// Adds a message after the others.
    pub(crate) fn push(&mut self, level: Level) {
        self.levels.push(level);
    }

    /// The last message in it.
    pub(crate) fn last(&mut self) -> Option<&mut Level> {
        self.levels.last_mut()
    }

    /// How many points it has.
    #[must_use]
    pub fn points(&self) -> usize {
        points(&self.levels)
    }

    /// Bytes of the message.
    #[must_use]
    pub fn size(&self) -> usize {
        size(&self.levels)
    }

    /// Writes the message.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        write(&self.levels, to)
    }

    /// The message, for who reads it.
    ///
    /// # Errors
    /// When it is a request of something else.
    pub fn decode<M: Message + Default>(&self) -> Result<M, DecodeError> {
        let mut bytes = Vec::with_capacity(self.size());
        self.write(&mut bytes).expect("memory takes all");
        M::decode(&*bytes)
    }

    /// Two requests with half the points each; the request itself where there are no two points.
    pub(super) fn halves(mut self) -> Result<(Self, Self), Self> {
        let half = self.points() / 2;
        if half == 0 {
            return Err(self);
        }
        let levels = cut(&mut self.levels, half);
        Ok((self, Self { levels }))
    }
}

impl Level {
    /// A message with others in it.
    pub(crate) fn around(field: u32, head: &impl Message, inner: Vec<Self>) -> Self {
        Self { field, head: head.encode_to_vec(), inner: Inner::Levels(inner) }
    }

    /// A message with points in it.
    pub(crate) fn of(field: u32, head: &impl Message, points: Points) -> Self {
        Self { field, head: head.encode_to_vec(), inner: Inner::Points(points) }
    }

    /// The last message in it.
    pub(crate) fn last(&mut self) -> Option<&mut Self> {
        match &mut self.inner {
            Inner::Levels(levels) => levels.last_mut(),
            Inner::Points(_) => None,
        }
    }

    /// Adds a message after those in it. One that has points has no others.
    pub(crate) fn push(&mut self, level: Self) {
        match &mut self.inner {
            Inner::Levels(levels) => levels.push(level),
            Inner::Points(_) => {}
        }
    }

    /// The last points in it.
    pub(crate) fn points(&mut self) -> Option<&mut Points> {
        match &mut self.inner {
            Inner::Levels(levels) => levels.last_mut()?.points(),
            Inner::Points(points) => Some(points),
        }
    }

    /// Bytes with key and length.
    pub(crate) fn size(&self) -> usize {
        let length = self.length();
        varint_size(u64::from(self.field << 3)) + varint_size(length as u64) + length
    }

    fn length(&self) -> usize {
        let inner = match &self.inner {
            Inner::Levels(levels) => size(levels),
            Inner::Points(points) => points.bytes.len(),
        };
        self.head.len() + inner
    }
}

impl Points {
    /// Adds a point that is encoded as field number `field` of the message around it.
    pub(crate) fn push(&mut self, field: u32, point: &[u8]) {
        text(&mut self.bytes, field, point);
        self.ends.push(self.bytes.len());
    }

    /// Leaves the first `at` and returns the others.
    fn cut(&mut self, at: usize) -> Self {
        let ends = self.ends.split_off(at);
        let end = self.ends.last().copied().unwrap_or(0);
        let bytes = self.bytes.split_off(end);
        Self { bytes, ends: ends.into_iter().map(|at| at - end).collect() }
    }
}

fn points(levels: &[Level]) -> usize {
    let inside = |level: &Level| match &level.inner {
        Inner::Levels(levels) => points(levels),
        Inner::Points(points) => points.ends.len(),
    };
    levels.iter().map(inside).sum()
}

fn size(levels: &[Level]) -> usize {
    levels.iter().map(Level::size).sum()
}

fn write(levels: &[Level], to: &mut impl Write) -> io::Result<()> {
    let mut head = Vec::new();
    for level in levels {
        head.clear();
        key(&mut head, level.field, DELIMITED);
        varint(&mut head, level.length() as u64);
        head.extend_from_slice(&level.head);
        to.write_all(&head)?;
        match &level.inner {
            Inner::Levels(levels) => write(levels, to)?,
            Inner::Points(points) => to.write_all(&points.bytes)?,
        }
    }
    Ok(())
}

/// Leaves the first `at` points in `levels` and returns the others. The message in which the cut lies is in both.
fn cut(levels: &mut Vec<Level>, mut at: usize) -> Vec<Level> {
    let mut whole = 0;
    for level in levels.iter() {
        let here = points(std::slice::from_ref(level));
        if here > at {
            break;
        }
        at -= here;
        whole += 1;
    }
    let mut rest = levels.split_off(whole);
    if at > 0
        && let Some(first) = rest.first_mut()
    {
        let inner = match &mut first.inner {
            Inner::Levels(levels) => Inner::Levels(cut(levels, at)),
            Inner::Points(points) => Inner::Points(points.cut(at)),
        };
        let tail = Level { field: first.field, head: first.head.clone(), inner };
        levels.push(std::mem::replace(first, tail));
    }
    rest
}

impl From<ExportMetricsServiceRequest> for Request {
    fn from(request: ExportMetricsServiceRequest) -> Self {
        Self { levels: request.resource_metrics.into_iter().map(Level::from).collect() }
    }
}

impl From<ExportLogsServiceRequest> for Request {
    fn from(request: ExportLogsServiceRequest) -> Self {
        let of_resource = |mut resource: ResourceLogs| {
            let scopes = std::mem::take(&mut resource.scope_logs).into_iter().map(|mut scope| {
                let records = encoded(2, std::mem::take(&mut scope.log_records));
                Level::of(2, &scope, records)
            });
            Level::around(1, &resource, scopes.collect())
        };
        Self { levels: request.resource_logs.into_iter().map(of_resource).collect() }
    }
}

impl From<ResourceMetrics> for Level {
    fn from(mut resource: ResourceMetrics) -> Self {
        let scopes = std::mem::take(&mut resource.scope_metrics).into_iter().map(|mut scope| {
            let metrics = std::mem::take(&mut scope.metrics).into_iter().map(Self::from);
            Self::around(2, &scope, metrics.collect())
        });
        Self::around(1, &resource, scopes.collect())
    }
}

impl From<Metric> for Level {
    fn from(mut metric: Metric) -> Self {
        use std::mem::take;
        let data = metric.data.take().map(|data| match data {
            Data::Gauge(mut data) => {
                let points = encoded(POINT, take(&mut data.data_points));
                Self::of(5, &data, points)
            }
            Data::Sum(mut data) => {
                let points = encoded(POINT, take(&mut data.data_points));
                Self::of(7, &data, points)
            }
            Data::Histogram(mut data) => {
                let points = encoded(POINT, take(&mut data.data_points));
                Self::of(9, &data, points)
            }
            Data::ExponentialHistogram(mut data) => {
                let points = encoded(POINT, take(&mut data.data_points));
                Self::of(10, &data, points)
            }
            Data::Summary(mut data) => {
                let points = encoded(POINT, take(&mut data.data_points));
                Self::of(11, &data, points)
            }
        });
        Self::around(2, &metric, data.into_iter().collect())
    }
}

/// The field of points in each kind of data.
pub(crate) const POINT: u32 = 1;

fn encoded<M: Message>(field: u32, messages: Vec<M>) -> Points {
    let mut points = Points::default();
    messages.iter().for_each(|message| points.push(field, &message.encode_to_vec()));
    points
}

fn key(to: &mut Vec<u8>, field: u32, wire: u32) {
    varint(to, u64::from(field << 3 | wire));
}

fn varint(to: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        to.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    to.push((n & 0x7f) as u8);
}

fn varint_size(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes a field that is text, bytes or an encoded message.
pub(crate) fn text(to: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    key(to, field, DELIMITED);
    varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Writes an unsigned number or a flag.
pub(crate) fn number(to: &mut Vec<u8>, field: u32, n: u64) {
    key(to, field, VARINT);
    varint(to, n);
}

/// Writes a number of eight bytes.
pub(crate) fn fixed64(to: &mut Vec<u8>, field: u32, bytes: [u8; 8]) {
    key(to, field, FIXED64);
    to.extend_from_slice(&bytes);
}

/// Writes the beginning of a message, of which `length` bytes follow.
pub(crate) fn open(to: &mut Vec<u8>, field: u32, length: usize) {
    key(to, field, DELIMITED);
    varint(to, length as u64);
}

/// Bytes of a field with `length` bytes in it, whose number is below 16.
pub(crate) fn framed(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}
