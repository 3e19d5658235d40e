//! Whom a group of points is about.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memprov_semconv as semconv;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use uuid::Uuid;

use super::{attribute, text};
use crate::report::{Identity, Process};

/// Below it the instance ids of observed services are made (UUIDv5).
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1c_9d0a_4b7e_4e52_9c3d_2a8f_5b61_d704);

/// Nanoseconds of one clock tick of `/proc/PID/stat` (`USER_HZ` is 100 on every architecture that Linux exports it for
/// but Alpha and Itanium).
const TICK_NANOS: u64 = 10_000_000;

/// Whom a resource stands for, in the order of export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place<'a> {
    /// The host, and the agent on it.
    Host,
    /// A container, by its id.
    Container(&'a str),
    /// A process outside any container.
    Process { pid: u32, start_time: u64 },
}

impl<'a> Place<'a> {
    /// Where a process belongs.
    pub(super) fn of(process: &'a Process) -> Self {
        match &process.container {
            Some(id) => Self::Container(id),
            None => Self::Process { pid: process.pid, start_time: process.start_time },
        }
    }
}

impl Identity {
    /// The resource of a place. `first` is its oldest process, after which the service is named.
    pub(super) fn resource(&self, place: Place<'_>, first: Option<&Process>) -> Resource {
        let name = first.map_or("memprov", |process| &process.comm);
        let (instance, own) = match place {
            Place::Host => ("host".to_owned(), Vec::new()),
            Place::Container(id) => {
                (format!("container/{id}"), vec![text(semconv::CONTAINER_ID, id)])
            }
            Place::Process { pid, start_time } => {
                (format!("process/{pid}/{start_time}"), self.process(pid, start_time, name))
            }
        };
        let instance = format!("{}/{instance}", self.host_id);
        let instance = Uuid::new_v5(&NAMESPACE, instance.as_bytes()).to_string();
        let mut attributes = vec![
            text(semconv::HOST_ID, &self.host_id),
            text(semconv::HOST_NAME, &self.host_name),
            text(semconv::SERVICE_INSTANCE_ID, &instance),
            text(semconv::SERVICE_NAME, name),
        ];
        attributes.extend(own);
        Resource { attributes, ..Default::default() }
    }

    fn process(&self, pid: u32, start_time: u64, name: &str) -> Vec<KeyValue> {
        let since_boot = start_time.checked_mul(TICK_NANOS);
        let began = self.boot.zip(since_boot).and_then(|(boot, since)| boot.checked_add(since));
        let began = began.and_then(|nanos| UNIX_EPOCH.checked_add(Duration::from_nanos(nanos)));
        let mut attributes = vec![
            text(semconv::PROCESS_EXECUTABLE_NAME, name),
            attribute(semconv::PROCESS_PID, Value::IntValue(i64::from(pid))),
        ];
        if let Some(began) = began {
            let began = humantime::format_rfc3339_millis(began).to_string();
            attributes.push(text(semconv::PROCESS_CREATION_TIME, &began));
        }
        attributes
    }
}

/// Reads an RFC 3339 instant in UTC; `None` when it is none, or lies outside 1970 to 2554.
pub(super) fn unix_nanos(text: &str) -> Option<u64> {
    let instant: SystemTime = humantime::parse_rfc3339(text).ok()?;
    let since = instant.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}
