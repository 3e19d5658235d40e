//! Whom a resource stands for: the agent, the host's processes, a container, a systemd unit, or on request a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use memprov_semconv::{self as semconv, Key};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use uuid::Uuid;

use super::proto::attribute;
use crate::config::{Detail, Grain, Term};
use crate::report::{AccessRow, Identity, Process};

/// Below it the instance ids of observed services are made (UUIDv5).
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1c_9d0a_4b7e_4e52_9c3d_2a8f_5b61_d704);

/// Nanoseconds of one clock tick of `/proc/PID/stat` (`USER_HZ` is 100 on every architecture that Linux exports it for
/// but Alpha and Itanium).
const TICK_NANOS: u64 = 10_000_000;

/// What describes the host and not the agent among the attributes that a user gives (`OTEL_RESOURCE_ATTRIBUTES`): keys
/// of these namespaces go on every resource.
const OF_HOST: [&str; 6] = ["host.", "cloud.", "os.", "deployment.", "k8s.node.", "k8s.cluster."];

/// Whom a resource stands for, in the order of export.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// The agent, and what is the host's own: objects that several address spaces map.
    Agent,
    /// Processes of the host that have no resource of their own.
    Host,
    /// A container, by its id.
    Container(Arc<str>),
    /// A systemd unit, by its path in the hierarchy.
    Unit(Arc<str>),
    /// A process.
    Process { pid: u32, start_time: Option<u64> },
}

impl Place {
    /// Where a process belongs.
    pub(super) fn of(process: &Process, grain: Grain) -> Self {
        match grain {
            Grain::Process => Self::Process { pid: process.pid, start_time: process.start_time },
            Grain::Container => {
                Self::of_cgroup(process.container.as_deref(), process.cgroup.as_deref())
            }
        }
    }

    /// Where accesses of a space belong.
    pub(super) fn accessed(row: &AccessRow, grain: Grain) -> Self {
        match (grain, row.pid) {
            (Grain::Process, Some(pid)) => Self::Process { pid, start_time: row.start_time },
            (Grain::Process, ..) => Self::Host,
            (Grain::Container, ..) => {
                Self::of_cgroup(row.container.as_deref(), row.cgroup.as_deref())
            }
        }
    }

    /// Whether a process has its resource told whole.
    pub(super) fn whole(&self, process: &Process, detail: &Detail) -> bool {
        let unit = match self {
            Self::Unit(path) => Some(unit_name(path).0),
            Self::Agent | Self::Host | Self::Container(_) | Self::Process { .. } => None,
        };
        let holds = |term: &Term| term.holds(&process.comm, process.container.as_deref(), unit);
        match detail {
            Detail::Kinds => false,
            Detail::Owners => true,
            Detail::All(terms) => terms.iter().any(holds),
        }
    }

    /// Where a process of this container and cgroup belongs.
    pub(super) fn of_cgroup(container: Option<&str>, cgroup: Option<&str>) -> Self {
        match (container, cgroup.and_then(unit)) {
            (Some(id), _) => Self::Container(id.into()),
            (None, Some(path)) => Self::Unit(path.into()),
            (None, None) => Self::Host,
        }
    }
}

/// The path of the systemd unit that a cgroup belongs to: the innermost service, else the innermost slice, as the scopes
/// in a slice come and go with sessions. Names of units: systemd.unit(5).
fn unit(cgroup: &str) -> Option<&str> {
    let ends = |suffix: &'static str| {
        let mut end = cgroup.len();
        cgroup.rsplit('/').find_map(move |segment| {
            let here = end;
            end = end.saturating_sub(segment.len() + 1);
            let named = segment.strip_suffix(suffix).is_some_and(|name| !name.is_empty());
            named.then_some(here)
        })
    };
    cgroup.get(..ends(".service").or_else(|| ends(".slice"))?)
}

/// The name of the systemd unit that a cgroup belongs to.
pub(crate) fn unit_of(cgroup: &str) -> Option<&str> {
    unit(cgroup).map(|path| unit_name(path).0)
}

/// The last segment of a path, and that without the suffix of services.
fn unit_name(path: &str) -> (&str, &str) {
    let whole = path.rsplit('/').next().unwrap_or(path);
    (whole, whole.strip_suffix(".service").unwrap_or(whole))
}

impl Identity {
    /// The resource of a place. `first` is its oldest process when it was first seen, after which a container is named.
    ///
    /// Of what the user gave, facts of the host are on every resource, and all of it is on the agent's.
    pub(super) fn resource(&self, place: &Place, first: Option<&Process>) -> Resource {
        let name = first.map_or("unknown", |process| &process.comm);
        let (service, instance, own) = match place {
            Place::Agent => ("memprov", "host".to_owned(), Vec::new()),
            Place::Host => ("host", "processes".to_owned(), Vec::new()),
            Place::Container(id) => {
                (name, format!("container/{id}"), vec![text(semconv::CONTAINER_ID, id)])
            }
            Place::Unit(path) => {
                let (whole, short) = unit_name(path);
                (short, format!("unit{path}"), vec![text(semconv::UNIT, whole)])
            }
            Place::Process { pid, start_time } => {
                let mut own = self.process(*pid, *start_time, name);
                let container = first.and_then(|process| process.container.as_deref());
                own.extend(container.map(|id| text(semconv::CONTAINER_ID, id)));
                let began = start_time.map_or_else(String::new, |ticks| ticks.to_string());
                (name, format!("process/{pid}/{began}"), own)
            }
        };
        // A recording of another host may know its name alone.
        let host = if self.host_id.is_empty() { &self.host_name } else { &self.host_id };
        let instance = format!("{host}/{instance}");
        let instance = Uuid::new_v5(&NAMESPACE, instance.as_bytes()).to_string();
        let mut attributes = vec![
            text(semconv::HOST_ID, &self.host_id),
            text(semconv::HOST_NAME, &self.host_name),
            text(semconv::SERVICE_INSTANCE_ID, &instance),
            text(semconv::SERVICE_NAME, service),
        ];
        attributes.extend(own);
        for (key, value) in &self.attributes {
            let general = OF_HOST.iter().any(|namespace| key.starts_with(namespace));
            if !general && *place != Place::Agent {
                continue;
            }
            let given = attribute(key, Value::StringValue(value.clone()));
            match attributes.iter_mut().find(|own| own.key == *key) {
                // Without it two hosts would write the same series.
                Some(own) if own.key == semconv::SERVICE_INSTANCE_ID.as_str() => {}
                Some(own) => *own = given,
                None => attributes.push(given),
            }
        }
        Resource { attributes, ..Default::default() }
    }

    /// What the agent's own resource says.
    pub(crate) fn agent(&self) -> BTreeMap<String, String> {
        let text = |attribute: KeyValue| match attribute.value?.value? {
            Value::StringValue(text) => Some((attribute.key, text)),
            _ => None,
        };
        self.resource(&Place::Agent, None).attributes.into_iter().filter_map(text).collect()
    }

    fn process(&self, pid: u32, start_time: Option<u64>, name: &str) -> Vec<KeyValue> {
        let since_boot = start_time.and_then(|ticks| ticks.checked_mul(TICK_NANOS));
        let began = self.boot.zip(since_boot).and_then(|(boot, since)| boot.checked_add(since));
        let began = began.and_then(|nanos| UNIX_EPOCH.checked_add(Duration::from_nanos(nanos)));
        let mut attributes = vec![
            text(semconv::PROCESS_EXECUTABLE_NAME, name),
            attribute(semconv::PROCESS_PID.as_str(), Value::IntValue(i64::from(pid))),
        ];
        if let Some(began) = began {
            let began = humantime::format_rfc3339_millis(began).to_string();
            attributes.push(text(semconv::PROCESS_CREATION_TIME, &began));
        }
        attributes
    }
}

fn text(key: Key, value: &str) -> KeyValue {
    attribute(key.as_str(), Value::StringValue(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Place, unit};

    #[test]
    fn a_process_belongs_to_its_innermost_service_or_else_slice() {
        for (cgroup, path) in [
            ("/system.slice/ssh.service", Some("/system.slice/ssh.service")),
            ("/system.slice/a.service/worker", Some("/system.slice/a.service")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/b.service",
                Some("/user.slice/user-1000.slice/user@1000.service/app.slice/b.service"),
            ),
            ("/user.slice/user-1000.slice/session-3.scope", Some("/user.slice/user-1000.slice")),
            ("/init.scope", None),
            ("/", None),
            ("", None),
            ("/.service", None),
            ("/process_api/1f", None),
        ] {
            assert_eq!(unit(cgroup), path, "{cgroup}");
        }
    }

    #[test]
    fn a_container_counts_before_the_unit_that_runs_it() {
        let place = Place::of_cgroup(Some("c0ffee"), Some("/system.slice/docker-c0ffee.scope"));
        assert_eq!(place, Place::Container("c0ffee".into()));
    }
}
