//! The names memprov exports: metrics, attribute keys, and the values of closed attributes.
//!
//! Names of our own begin with `memprov.`; names of the OpenTelemetry semantic conventions are used for what they
//! already describe (process, container, host, service). Units are UCUM. Nothing outside this crate spells a name.
#![forbid(unsafe_code)]

/// An attribute key. Only this crate makes one, so a literal cannot stand where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(&'static str);

impl Key {
    /// The key as it travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// What kind of stream a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// A monotonic sum.
    Counter,
    /// A sum that goes both ways; adding it over any attribute is meaningful.
    UpDownCounter,
    /// A value that does not add up.
    Gauge,
}

/// A metric: everything about it but its points.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name as it travels.
    pub name: &'static str,
    /// UCUM.
    pub unit: &'static str,
    /// The kind of stream.
    pub instrument: Instrument,
    /// One sentence for people.
    pub brief: &'static str,
    /// Every key that a point may carry.
    pub attributes: &'static [Key],
}

/// How sure the value is: `exact`, `inferred` or `sampled`. A partition: an owner's values add up over it.
pub const EVIDENCE: Key = Key("memprov.evidence");
/// Hash of the owner's content key, the same on every host.
pub const OWNER_ID: Key = Key("memprov.owner.id");
/// What the owner is: a kind of the report, or one of [`owner_kind`].
pub const OWNER_KIND: Key = Key("memprov.owner.kind");
/// The owner for people.
pub const OWNER_NAME: Key = Key("memprov.owner.name");
/// Which book a total belongs to, one of [`book`].
pub const BOOK: Key = Key("memprov.book");
/// The kind of memory a total counts: `anon`, `file`, `shmem`, `hugetlb`, `swap`.
pub const KIND: Key = Key("memprov.kind");
/// Version of the agent.
pub const BUILD_VERSION: Key = Key("memprov.build.version");
/// The stream that lost something.
pub const SOURCE_NAME: Key = Key("memprov.source.name");
/// A thread of the agent; `ended` are all that have ended.
pub const THREAD: Key = Key("memprov.thread");
/// Why something was not done.
pub const REASON: Key = Key("memprov.reason");
/// How a list of mappings differed, one of [`difference`].
pub const DIFFERENCE: Key = Key("memprov.difference");
/// True on the point that holds what the cardinality limit folded together (OpenTelemetry).
pub const OVERFLOW: Key = Key("otel.metric.overflow");

/// Container id (OpenTelemetry).
pub const CONTAINER_ID: Key = Key("container.id");
/// Host id (OpenTelemetry).
pub const HOST_ID: Key = Key("host.id");
/// Host name (OpenTelemetry).
pub const HOST_NAME: Key = Key("host.name");
/// Start of a process, RFC 3339 (OpenTelemetry).
pub const PROCESS_CREATION_TIME: Key = Key("process.creation.time");
/// Name of a process (OpenTelemetry).
pub const PROCESS_EXECUTABLE_NAME: Key = Key("process.executable.name");
/// Process id (OpenTelemetry).
pub const PROCESS_PID: Key = Key("process.pid");
/// Instance id of a service, a UUID (OpenTelemetry).
pub const SERVICE_INSTANCE_ID: Key = Key("service.instance.id");
/// Name of a service (OpenTelemetry).
pub const SERVICE_NAME: Key = Key("service.name");

/// Values of [`OWNER_KIND`] that exist only in exports.
pub mod owner_kind {
    /// Bytes that nobody is known to own.
    pub const UNATTRIBUTED: &str = "unattributed";
    /// The exact remainder of all owners beyond the limit.
    pub const OTHER: &str = "other";
}

/// Values of [`BOOK`].
pub mod book {
    /// The book of an address space.
    pub const PROCESS: &str = "process";
}

/// Values of [`DIFFERENCE`].
pub mod difference {
    /// Listed, and no event had told of it.
    pub const ADOPTED: &str = "adopted";
    /// Not listed any more, and no event had told.
    pub const VANISHED: &str = "vanished";
    /// Listed as another mapping than events had told.
    pub const REPLACED: &str = "replaced";
}

/// Live bytes of address space.
pub const MEMORY_RESERVED: Metric = Metric {
    name: "memprov.memory.reserved",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "Address space that is mapped now, by owner.",
    attributes: &[EVIDENCE, OWNER_ID, OWNER_KIND, OWNER_NAME, OVERFLOW],
};

/// Present bytes, each owned once.
pub const MEMORY_RESIDENT: Metric = Metric {
    name: "memprov.memory.resident",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "Memory that is present (anonymous, file and shmem, as Rss counts it), owned once, by owner.",
    attributes: &[EVIDENCE, OWNER_ID, OWNER_KIND, OWNER_NAME, OVERFLOW],
};

/// Swapped bytes.
pub const MEMORY_SWAPPED: Metric = Metric {
    name: "memprov.memory.swapped",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "Memory that is swapped out, by owner.",
    attributes: &[EVIDENCE, OWNER_ID, OWNER_KIND, OWNER_NAME, OVERFLOW],
};

/// The kernel's own total.
pub const MEMORY_CONTROL: Metric = Metric {
    name: "memprov.memory.control",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "The kernel's own total, the lower of its readings before and after the scan.",
    attributes: &[BOOK, KIND],
};

/// How far the two readings of the total lie apart.
pub const MEMORY_CONTROL_SPREAD: Metric = Metric {
    name: "memprov.memory.control_spread",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "The higher reading of the kernel's total minus the lower; 0 when nothing moved during the scan.",
    attributes: &[BOOK, KIND],
};

/// Bytes of the total that are owned elsewhere.
pub const MEMORY_JOINT: Metric = Metric {
    name: "memprov.memory.joint",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "Memory in the kernel's total that another process or a shared object owns.",
    attributes: &[BOOK, KIND],
};

/// What the book cannot close by owners.
pub const MEMORY_SKEW: Metric = Metric {
    name: "memprov.memory.skew",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "What the kernel's total moved, or cannot be explained by, while the scan ran; 0 at rest.",
    attributes: &[BOOK, KIND],
};

/// What happened since the book was closed.
pub const MEMORY_DRIFT: Metric = Metric {
    name: "memprov.memory.drift",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "The kernel's total now minus that of the book.",
    attributes: &[BOOK, KIND],
};

/// How old the book is.
pub const MEMORY_BOOK_AGE: Metric = Metric {
    name: "memprov.memory.book.age",
    unit: "s",
    instrument: Instrument::Gauge,
    brief: "Age of the oldest reading that the owners rest on.",
    attributes: &[BOOK],
};

/// What was lost.
pub const SOURCE_LOST: Metric = Metric {
    name: "memprov.source.lost",
    unit: "{record}",
    instrument: Instrument::Counter,
    brief: "Records that a stream lost, at least.",
    attributes: &[SOURCE_NAME],
};

/// Mappings that events had not told right.
pub const LEDGER_DIFFERENCES: Metric = Metric {
    name: "memprov.ledger.differences",
    unit: "{mapping}",
    instrument: Instrument::Counter,
    brief: "Mappings that a list showed to be otherwise than events had told.",
    attributes: &[DIFFERENCE],
};

/// CPU time of the agent.
pub const BUDGET_CPU_TIME: Metric = Metric {
    name: "memprov.budget.cpu.time",
    unit: "s",
    instrument: Instrument::Counter,
    brief: "CPU time of the agent, by thread.",
    attributes: &[THREAD],
};

/// CPU time of the agent over the last interval or two.
pub const BUDGET_CPU_UTILIZATION: Metric = Metric {
    name: "memprov.budget.cpu.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    brief: "CPU time of the agent over the last interval or two, as a fraction of one CPU.",
    attributes: &[],
};

/// Memory of the agent.
pub const BUDGET_RESIDENT: Metric = Metric {
    name: "memprov.budget.resident",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    brief: "Resident memory of the agent; its rings count twice, as they are mapped twice.",
    attributes: &[],
};

/// CPU time of the agent's BPF programs.
pub const BUDGET_BPF_UTILIZATION: Metric = Metric {
    name: "memprov.budget.bpf.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    brief: "Time that others spend in the agent's BPF programs, as a fraction of one CPU, counted now and then.",
    attributes: &[],
};

/// What one system call costs more.
pub const BUDGET_SYSCALL_LATENCY: Metric = Metric {
    name: "memprov.budget.syscall.latency",
    unit: "s",
    instrument: Instrument::Gauge,
    brief: "What any system call of the host takes longer with the agent's hooks, measured when they were attached.",
    attributes: &[],
};

/// What all system calls cost more.
pub const BUDGET_SYSCALL_UTILIZATION: Metric = Metric {
    name: "memprov.budget.syscall.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    brief: "What all system calls of the host take longer with the agent's hooks, as a fraction of one CPU.",
    attributes: &[],
};

/// Scans that were not made.
pub const BUDGET_SCAN_SKIPPED: Metric = Metric {
    name: "memprov.budget.scan.skipped",
    unit: "{scan}",
    instrument: Instrument::Counter,
    brief: "Scans of processes that were not made, by reason.",
    attributes: &[REASON],
};

/// Which agent speaks.
pub const BUILD_INFO: Metric = Metric {
    name: "memprov.build_info",
    unit: "1",
    instrument: Instrument::Gauge,
    brief: "Always 1; its attributes say which build of the agent runs.",
    attributes: &[BUILD_VERSION],
};

/// Every metric, in the order of export.
pub const ALL: &[&Metric] = &[
    &MEMORY_RESERVED,
    &MEMORY_RESIDENT,
    &MEMORY_SWAPPED,
    &MEMORY_CONTROL,
    &MEMORY_CONTROL_SPREAD,
    &MEMORY_JOINT,
    &MEMORY_SKEW,
    &MEMORY_DRIFT,
    &MEMORY_BOOK_AGE,
    &SOURCE_LOST,
    &LEDGER_DIFFERENCES,
    &BUDGET_CPU_TIME,
    &BUDGET_CPU_UTILIZATION,
    &BUDGET_RESIDENT,
    &BUDGET_BPF_UTILIZATION,
    &BUDGET_SYSCALL_LATENCY,
    &BUDGET_SYSCALL_UTILIZATION,
    &BUDGET_SCAN_SKIPPED,
    &BUILD_INFO,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ALL, Instrument};

    #[test]
    fn every_metric_has_a_name_of_its_own_below_our_root() {
        let names: BTreeSet<_> = ALL.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), ALL.len());
        for name in names {
            assert!(name.starts_with("memprov."), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b"._".contains(&b)), "{name}");
        }
    }

    #[test]
    fn no_name_repeats_its_unit_or_its_instrument() {
        for metric in ALL {
            for word in ["bytes", "seconds", "total", "count"] {
                assert!(!metric.name.ends_with(word), "{}", metric.name);
            }
        }
    }

    #[test]
    fn attributes_are_below_our_root_or_reserved_by_opentelemetry_and_no_metric_bears_their_name() {
        for metric in ALL {
            for key in metric.attributes {
                let key = key.as_str();
                assert!(key.starts_with("memprov.") || key.starts_with("otel."), "{key}");
                assert!(ALL.iter().all(|m| m.name != key), "{key}");
            }
        }
    }

    #[test]
    fn bytes_add_up_and_ages_and_facts_do_not() {
        for metric in ALL {
            match metric.instrument {
                Instrument::UpDownCounter => assert_eq!(metric.unit, "By", "{}", metric.name),
                Instrument::Gauge => assert!(["s", "1"].contains(&metric.unit), "{}", metric.name),
                Instrument::Counter => {
                    assert!(metric.unit == "s" || metric.unit.starts_with('{'), "{}", metric.name);
                }
            }
            assert!(metric.brief.ends_with('.'), "{}", metric.name);
        }
    }
}
