//! Made from `registry/*.yaml` by `cargo run -p memprov-semconv --example generate`.

use crate::{Attribute, Instrument, Key, Metric, Number, Type, attribute};

/// Of an exemplar, whose it is where it has not one owner.
pub const AMBIGUITY: Key = Key("ambiguity");

/// Values of [`AMBIGUITY`].
pub mod ambiguity {
    /// It has one owner.
    pub const NONE: &str = "none";
    /// It can be one of several owners'.
    pub const AMBIGUOUS: &str = "ambiguous";
    /// Nothing was mapped at its address.
    pub const UNOWNED: &str = "unowned";
    /// What was mapped at its address is not known.
    pub const UNKNOWN: &str = "unknown";
    /// Its address is the kernel's.
    pub const KERNEL: &str = "kernel";
    /// It has no address.
    pub const NO_ADDRESS: &str = "no_address";
    /// All of them.
    pub const ALL: &[&str] = &[NONE, AMBIGUOUS, UNOWNED, UNKNOWN, KERNEL, NO_ADDRESS];
}

/// Id of the container, from its cgroup.
pub const CONTAINER_ID: Key = Key("container.id");

/// Machine id of the host.
pub const HOST_ID: Key = Key("host.id");

/// Name of the host.
pub const HOST_NAME: Key = Key("host.name");

/// How it is told where an access went.
pub const ACCESS_METHOD: Key = Key("memprov.access.method");

/// Values of [`ACCESS_METHOD`].
pub mod access_method {
    /// The hardware says what answered.
    pub const SERVED: &str = "served";
    /// The node that the page lies on, seen from the CPU's.
    pub const PLACEMENT: &str = "placement";
    /// All of them.
    pub const ALL: &[&str] = &[SERVED, PLACEMENT];
}

/// What became of a sampled access.
pub const ACCESS_OUTCOME: Key = Key("memprov.access.outcome");

/// Values of [`ACCESS_OUTCOME`].
pub mod access_outcome {
    /// It has an owner.
    pub const ATTRIBUTED: &str = "attributed";
    /// It can be one of several owners'.
    pub const AMBIGUOUS: &str = "ambiguous";
    /// Nothing was mapped at its address.
    pub const UNOWNED: &str = "unowned";
    /// What was mapped at its address is not known.
    pub const UNKNOWN: &str = "unknown";
    /// Its address is the kernel's.
    pub const KERNEL: &str = "kernel";
    /// It has no address.
    pub const NO_ADDRESS: &str = "no_address";
    /// It has an owner, and a latency that no access takes.
    pub const IMPLAUSIBLE: &str = "implausible";
    /// All of them.
    pub const ALL: &[&str] = &[ATTRIBUTED, AMBIGUOUS, UNOWNED, UNKNOWN, KERNEL, NO_ADDRESS, IMPLAUSIBLE];
}

/// Which book a total belongs to.
pub const BOOK: Key = Key("memprov.book");

/// Values of [`BOOK`].
pub mod book {
    /// The book of an address space.
    pub const PROCESS: &str = "process";
    /// The book of a cgroup without those below it (`memory.current`).
    pub const CHARGE: &str = "charge";
    /// All of them.
    pub const ALL: &[&str] = &[PROCESS, CHARGE];
}

/// Version of the agent.
pub const BUILD_VERSION: Key = Key("memprov.build.version");

/// Something that a host can tell or not, a row of the support matrix (`memprov check`).
pub const CAPABILITY: Key = Key("memprov.capability");

/// What a cgroup is charged for.
pub const CHARGE: Key = Key("memprov.charge");

/// Values of [`CHARGE`].
pub mod charge {
    /// Mapped by observed processes of the cgroup.
    pub const MAPPED: &str = "mapped";
    /// Mapped by others, or by processes that are not observed.
    pub const ELSEWHERE: &str = "elsewhere";
    /// Page cache of files that nobody maps.
    pub const CACHE: &str = "cache";
    /// Files of tmpfs and shared memory that nobody maps.
    pub const TMPFS: &str = "tmpfs";
    /// Huge pages of hugetlbfs, where they are charged.
    pub const HUGETLB: &str = "hugetlb";
    /// Memory of the kernel.
    pub const KERNEL: &str = "kernel";
    /// What the kernel has no line for.
    pub const UNATTRIBUTED: &str = "unattributed";
    /// All of them.
    pub const ALL: &[&str] = &[MAPPED, ELSEWHERE, CACHE, TMPFS, HUGETLB, KERNEL, UNATTRIBUTED];
}

/// A hash of all settings in effect, equal for equal settings.
pub const CONFIG_HASH: Key = Key("memprov.config.hash");

/// How a list of mappings differed from what events had told.
pub const DIFFERENCE: Key = Key("memprov.difference");

/// Values of [`DIFFERENCE`].
pub mod difference {
    /// Listed, and no event had told of it.
    pub const ADOPTED: &str = "adopted";
    /// Not listed any more, and no event had told.
    pub const VANISHED: &str = "vanished";
    /// Listed as another mapping than events had told.
    pub const REPLACED: &str = "replaced";
    /// All of them.
    pub const ALL: &[&str] = &[ADOPTED, VANISHED, REPLACED];
}

/// How sure the value is. A partition, an owner's values add up over it.
pub const EVIDENCE: Key = Key("memprov.evidence");

/// Values of [`EVIDENCE`].
pub mod evidence {
    /// The kernel said so, and nothing moved meanwhile.
    pub const EXACT: &str = "exact";
    /// Concluded from what the kernel said at other times or of other things.
    pub const INFERRED: &str = "inferred";
    /// Estimated from a sample.
    pub const SAMPLED: &str = "sampled";
    /// All of them.
    pub const ALL: &[&str] = &[EXACT, INFERRED, SAMPLED];
}

/// What became of what was exported.
pub const EXPORT_OUTCOME: Key = Key("memprov.export.outcome");

/// Values of [`EXPORT_OUTCOME`].
pub mod export_outcome {
    /// It arrived.
    pub const DELIVERED: &str = "delivered";
    /// It will not be sent again.
    pub const REFUSED: &str = "refused";
    /// The endpoint took the request and left it out.
    pub const REJECTED: &str = "rejected";
    /// A newer point took its place before it arrived.
    pub const REPLACED: &str = "replaced";
    /// It was sent again.
    pub const RETRIED: &str = "retried";
    /// All of them.
    pub const ALL: &[&str] = &[DELIVERED, REFUSED, REJECTED, REPLACED, RETRIED];
}

/// The kind of memory that is counted.
pub const KIND: Key = Key("memprov.kind");

/// Values of [`KIND`].
pub mod kind {
    /// Anonymous memory (`RssAnon`).
    pub const ANON: &str = "anon";
    /// Pages of files (`RssFile`).
    pub const FILE: &str = "file";
    /// Shared memory and tmpfs (`RssShmem`).
    pub const SHMEM: &str = "shmem";
    /// Huge pages of hugetlbfs (`HugetlbPages`), no part of Rss.
    pub const HUGETLB: &str = "hugetlb";
    /// Swapped out (`VmSwap`), no part of Rss.
    pub const SWAP: &str = "swap";
    /// Stacks of threads in the kernel.
    pub const KERNEL_STACK: &str = "kernel_stack";
    /// Page tables.
    pub const PAGETABLES: &str = "pagetables";
    /// Page tables of hypervisor and IOMMU.
    pub const SEC_PAGETABLES: &str = "sec_pagetables";
    /// Memory of the kernel that each CPU has a copy of.
    pub const PERCPU: &str = "percpu";
    /// Memory that the kernel mapped for itself.
    pub const VMALLOC: &str = "vmalloc";
    /// Objects of the kernel that it can free, such as dentries and inodes.
    pub const SLAB_RECLAIMABLE: &str = "slab_reclaimable";
    /// Objects of the kernel that it cannot free.
    pub const SLAB_UNRECLAIMABLE: &str = "slab_unreclaimable";
    /// Compressed swap.
    pub const ZSWAP: &str = "zswap";
    /// Buffers of sockets.
    pub const SOCK: &str = "sock";
    /// Memory of the kernel that no line of its own tells.
    pub const OTHER: &str = "other";
    /// Not known; only of faults.
    pub const UNKNOWN: &str = "unknown";
    /// All of them.
    pub const ALL: &[&str] = &[ANON, FILE, SHMEM, HUGETLB, SWAP, KERNEL_STACK, PAGETABLES, SEC_PAGETABLES, PERCPU, VMALLOC, SLAB_RECLAIMABLE, SLAB_UNRECLAIMABLE, ZSWAP, SOCK, OTHER, UNKNOWN];
}

/// What serves a capability; `none` where nothing does.
pub const MECHANISM: Key = Key("memprov.mechanism");

/// How far an access went, or a page lies, from the CPU.
pub const NUMA_LOCALITY: Key = Key("memprov.numa.locality");

/// Values of [`NUMA_LOCALITY`].
pub mod numa_locality {
    /// No farther than the node's own memory.
    pub const LOCAL: &str = "local";
    /// Into another core of the node, or to another node of the socket.
    pub const NEAR: &str = "near";
    /// To another NUMA node.
    pub const REMOTE: &str = "remote";
    /// To memory of another kind, persistent or behind CXL.
    pub const TIER: &str = "tier";
    /// Not told.
    pub const UNKNOWN: &str = "unknown";
    /// All of them.
    pub const ALL: &[&str] = &[LOCAL, NEAR, REMOTE, TIER, UNKNOWN];
}

/// The NUMA node that memory lies on, by its id up to 15; `unknown` where none is proven, or its id is larger.
pub const NUMA_NODE: Key = Key("memprov.numa.node");

/// What came of reading the settings again.
pub const OUTCOME: Key = Key("memprov.outcome");

/// Values of [`OUTCOME`].
pub mod outcome {
    /// The settings held and are in effect.
    pub const APPLIED: &str = "applied";
    /// They held mistakes, and those before stayed.
    pub const REFUSED: &str = "refused";
    /// All of them.
    pub const ALL: &[&str] = &[APPLIED, REFUSED];
}

/// Hash of the owner's content key, the same on every host and after a restart.
pub const OWNER_ID: Key = Key("memprov.owner.id");

/// What the owner is.
pub const OWNER_KIND: Key = Key("memprov.owner.kind");

/// Values of [`OWNER_KIND`].
pub mod owner_kind {
    /// The call site that made a mapping.
    pub const MAPPING: &str = "mapping";
    /// An allocator's or a runtime's arena.
    pub const ARENA: &str = "arena";
    /// A mapped file, by the template of its path.
    pub const FILE: &str = "file";
    /// Shared memory.
    pub const SHM: &str = "shm";
    /// A mapping that the program named.
    pub const NAMED: &str = "named";
    /// The stack of a thread.
    pub const STACK: &str = "stack";
    /// The image of a program or of a library.
    pub const IMAGE: &str = "image";
    /// Mapped before the watch, by whom nobody knows.
    pub const PREEXISTING: &str = "preexisting";
    /// Its stack has no names yet.
    pub const PENDING: &str = "pending";
    /// Anything else, such as `[vdso]`.
    pub const OTHER: &str = "other";
    /// The exact sum of all owners beyond the limit, marked `otel.metric.overflow`; it has no `memprov.owner.id`.
    pub const REMAINDER: &str = "remainder";
    /// The kernel; of accesses, those to its own addresses.
    pub const KERNEL: &str = "kernel";
    /// What nobody is known to own.
    pub const UNATTRIBUTED: &str = "unattributed";
    /// All of them.
    pub const ALL: &[&str] = &[MAPPING, ARENA, FILE, SHM, NAMED, STACK, IMAGE, PREEXISTING, PENDING, OTHER, REMAINDER, KERNEL, UNATTRIBUTED];
}

/// The owner for people.
pub const OWNER_NAME: Key = Key("memprov.owner.name");

/// Why a scan, or a reading of where pages lie, was not made.
pub const REASON: Key = Key("memprov.reason");

/// Values of [`REASON`].
pub mod reason {
    /// Nothing had moved in the process.
    pub const STILL: &str = "still";
    /// It would have cost more than the budget allows.
    pub const BUDGET: &str = "budget";
    /// The process had ended.
    pub const VANISHED: &str = "vanished";
    /// The kernel did not let the agent read the process.
    pub const REFUSED: &str = "refused";
    /// One was made, or not needed, and the budget did not allow to read where pages lie, too.
    pub const PLACEMENT: &str = "placement";
    /// All of them.
    pub const ALL: &[&str] = &[STILL, BUDGET, VANISHED, REFUSED, PLACEMENT];
}

/// The stream that lost something.
pub const SOURCE_NAME: Key = Key("memprov.source.name");

/// Values of [`SOURCE_NAME`].
pub mod source_name {
    /// Events of mappings and processes.
    pub const LIFECYCLE: &str = "lifecycle";
    /// Side-band records of perf, where no hooks load.
    pub const SIDEBAND: &str = "sideband";
    /// Call stacks of these events.
    pub const STACKS: &str = "stacks";
    /// Sampled page faults.
    pub const FAULTS: &str = "faults";
    /// Sampled accesses to memory.
    pub const ACCESSES: &str = "accesses";
    /// Aggregations of monitors of memory (DAMON).
    pub const REGIONS: &str = "regions";
    /// The way from the adapters to the ledger.
    pub const QUEUE: &str = "queue";
    /// Scans of processes.
    pub const SCANS: &str = "scans";
    /// What was counted and could not be exported, and ends of series that were not told.
    pub const EXPORT: &str = "export";
    /// All of them.
    pub const ALL: &[&str] = &[LIFECYCLE, SIDEBAND, STACKS, FAULTS, ACCESSES, REGIONS, QUEUE, SCANS, EXPORT];
}

/// How a capability stands.
pub const STATE: Key = Key("memprov.state");

/// Values of [`STATE`].
pub mod state {
    /// It is there.
    pub const AVAILABLE: &str = "available";
    /// It is there, and tells less than it could.
    pub const DEGRADED: &str = "degraded";
    /// It is not there.
    pub const UNAVAILABLE: &str = "unavailable";
    /// All of them.
    pub const ALL: &[&str] = &[AVAILABLE, DEGRADED, UNAVAILABLE];
}

/// A thread of the agent; `ended` is what threads ran after they were read last (all, where the kernel counts no threads).
pub const THREAD: Key = Key("memprov.thread");

/// Name of a systemd unit.
pub const UNIT: Key = Key("memprov.unit");

/// True on the point that holds what a limit of series folded together.
pub const OVERFLOW: Key = Key("otel.metric.overflow");

/// Start of the process, RFC 3339.
pub const PROCESS_CREATION_TIME: Key = Key("process.creation.time");

/// Name of the process.
pub const PROCESS_EXECUTABLE_NAME: Key = Key("process.executable.name");

/// Process id.
pub const PROCESS_PID: Key = Key("process.pid");

/// Of an exemplar, how many events it stands for, the period of sampling.
pub const RATE: Key = Key("rate");

/// A UUID that the host and the container, unit or process make; the same after a restart of the agent.
pub const SERVICE_INSTANCE_ID: Key = Key("service.instance.id");

/// Name of the unit, else of the container's oldest process; `host` for processes in neither, `memprov` for the agent and for what several processes map.
pub const SERVICE_NAME: Key = Key("service.name");

/// Of an exemplar, what its host can tell (`memprov explain`).
pub const SUPPORT_CODE: Key = Key("support.code");

/// Whether a page fault waited for the disk.
pub const SYSTEM_PAGING_FAULT_TYPE: Key = Key("system.paging.fault.type");

/// Values of [`SYSTEM_PAGING_FAULT_TYPE`].
pub mod system_paging_fault_type {
    /// It waited for the disk.
    pub const MAJOR: &str = "major";
    /// It did not.
    pub const MINOR: &str = "minor";
    /// All of them.
    pub const ALL: &[&str] = &[MAJOR, MINOR];
}

/// Estimated time that accesses took, each sample's period times its latency, by where they went.
pub const ACCESS_TIME: Metric = Metric {
    name: "memprov.access.time",
    unit: "{cycle}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Estimated time that accesses took, each sample's period times its latency, by where they went.",
    attributes: &[
        attribute(NUMA_LOCALITY, Type::Text, true, numa_locality::ALL),
        attribute(ACCESS_METHOD, Type::Text, true, access_method::ALL),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, false, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// The sum of the squares of what makes up memprov.access.time, of which the error of a share is made.
pub const ACCESS_TIME_SQUARED: Metric = Metric {
    name: "memprov.access.time_squared",
    unit: "{square_cycle}",
    instrument: Instrument::Counter,
    number: Number::Double,
    brief: "The sum of the squares of what makes up memprov.access.time, of which the error of a share is made.",
    attributes: &[
        attribute(NUMA_LOCALITY, Type::Text, true, numa_locality::ALL),
        attribute(ACCESS_METHOD, Type::Text, true, access_method::ALL),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, false, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Time that each sampled access took, counted as often as its period says.
pub const ACCESS_LATENCY: Metric = Metric {
    name: "memprov.access.latency",
    unit: "{cycle}",
    instrument: Instrument::Histogram,
    number: Number::Double,
    brief: "Time that each sampled access took, counted as often as its period says.",
    attributes: &[
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, false, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
        attribute(RATE, Type::Text, false, &[]),
        attribute(SUPPORT_CODE, Type::Text, false, &[]),
        attribute(AMBIGUITY, Type::Text, false, ambiguity::ALL),
    ],
};

/// Sampled accesses, by what became of them.
pub const ACCESS_SAMPLES: Metric = Metric {
    name: "memprov.access.samples",
    unit: "{sample}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Sampled accesses, by what became of them.",
    attributes: &[
        attribute(ACCESS_OUTCOME, Type::Text, true, access_outcome::ALL),
    ],
};

/// Address space that is mapped now, by owner.
pub const MEMORY_RESERVED: Metric = Metric {
    name: "memprov.memory.reserved",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Address space that is mapped now, by owner.",
    attributes: &[
        attribute(EVIDENCE, Type::Text, true, &[evidence::EXACT, evidence::INFERRED]),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Memory that is present (anonymous, file and shmem, as Rss counts it), owned once, by owner.
pub const MEMORY_RESIDENT: Metric = Metric {
    name: "memprov.memory.resident",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Memory that is present (anonymous, file and shmem, as Rss counts it), owned once, by owner.",
    attributes: &[
        attribute(EVIDENCE, Type::Text, false, &[evidence::EXACT, evidence::INFERRED]),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// The part of memprov.memory.resident that is exact, where its points do not say so one by one.
pub const MEMORY_RESIDENT_EXACT: Metric = Metric {
    name: "memprov.memory.resident_exact",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "The part of memprov.memory.resident that is exact, where its points do not say so one by one.",
    attributes: &[],
};

/// Memory that is swapped out, by owner.
pub const MEMORY_SWAPPED: Metric = Metric {
    name: "memprov.memory.swapped",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Memory that is swapped out, by owner.",
    attributes: &[
        attribute(EVIDENCE, Type::Text, true, &[evidence::EXACT, evidence::INFERRED]),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Memory that page faults made present, by owner and NUMA node, where they are told one by one (`access.faults`).
pub const MEMORY_POPULATED: Metric = Metric {
    name: "memprov.memory.populated",
    unit: "By",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Memory that page faults made present, by owner and NUMA node, where they are told one by one (`access.faults`).",
    attributes: &[
        attribute(EVIDENCE, Type::Text, true, evidence::ALL),
        attribute(NUMA_NODE, Type::Text, true, &[]),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Memory that was used lately, at least, by owner, as checks of a monitor (DAMON) prove; told while one covers the owner.
pub const MEMORY_TOUCHED_LOWER: Metric = Metric {
    name: "memprov.memory.touched.lower",
    unit: "By",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "Memory that was used lately, at least, by owner, as checks of a monitor (DAMON) prove; told while one covers the owner.",
    attributes: &[
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Memory that can have been used lately, by owner; all that its mappings have present, told while a monitor covers the owner.
pub const MEMORY_TOUCHED_UPPER: Metric = Metric {
    name: "memprov.memory.touched.upper",
    unit: "By",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "Memory that can have been used lately, by owner; all that its mappings have present, told while a monitor covers the owner.",
    attributes: &[
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// The part of memprov.memory.touched.upper that lies in regions of a monitor.
pub const MEMORY_TOUCHED_COVERED: Metric = Metric {
    name: "memprov.memory.touched.covered",
    unit: "By",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "The part of memprov.memory.touched.upper that lies in regions of a monitor.",
    attributes: &[
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, true, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// The kernel's own total, the lower of its readings before and after the scan.
pub const MEMORY_CONTROL: Metric = Metric {
    name: "memprov.memory.control",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "The kernel's own total, the lower of its readings before and after the scan.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::SWAP]),
    ],
};

/// The higher reading of the kernel's total minus the lower; 0 when nothing moved during the scan.
pub const MEMORY_CONTROL_SPREAD: Metric = Metric {
    name: "memprov.memory.control_spread",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "The higher reading of the kernel's total minus the lower; 0 when nothing moved during the scan.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::SWAP]),
    ],
};

/// What the cgroups of a service are charged for, each without those below it.
pub const MEMORY_CHARGED: Metric = Metric {
    name: "memprov.memory.charged",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "What the cgroups of a service are charged for, each without those below it.",
    attributes: &[
        attribute(CHARGE, Type::Text, true, charge::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::KERNEL_STACK, kind::PAGETABLES, kind::SEC_PAGETABLES, kind::PERCPU, kind::VMALLOC, kind::SLAB_RECLAIMABLE, kind::SLAB_UNRECLAIMABLE, kind::ZSWAP, kind::SOCK, kind::OTHER]),
    ],
};

/// Memory in the kernel's total that another process or a shared object owns.
pub const MEMORY_JOINT: Metric = Metric {
    name: "memprov.memory.joint",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Memory in the kernel's total that another process or a shared object owns.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::SWAP]),
    ],
};

/// What the kernel's total moved, or cannot be explained by, while the scan ran; 0 at rest.
pub const MEMORY_SKEW: Metric = Metric {
    name: "memprov.memory.skew",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "What the kernel's total moved, or cannot be explained by, while the scan ran; 0 at rest.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::SWAP]),
    ],
};

/// The kernel's total now minus that of the book.
pub const MEMORY_DRIFT: Metric = Metric {
    name: "memprov.memory.drift",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "The kernel's total now minus that of the book.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
        attribute(KIND, Type::Text, false, &[kind::ANON, kind::FILE, kind::SHMEM, kind::HUGETLB, kind::SWAP]),
    ],
};

/// Age of the oldest reading that the owners rest on.
pub const MEMORY_BOOK_AGE: Metric = Metric {
    name: "memprov.memory.book.age",
    unit: "s",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "Age of the oldest reading that the owners rest on.",
    attributes: &[
        attribute(BOOK, Type::Text, true, book::ALL),
    ],
};

/// Page faults by the kernel's count, of each process since it was first read.
pub const MEMORY_FAULTS: Metric = Metric {
    name: "memprov.memory.faults",
    unit: "{fault}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Page faults by the kernel's count, of each process since it was first read.",
    attributes: &[
        attribute(SYSTEM_PAGING_FAULT_TYPE, Type::Text, true, system_paging_fault_type::ALL),
    ],
};

/// The same page faults, divided by kind of memory as a sample of them tells.
pub const MEMORY_FAULTS_BY_KIND: Metric = Metric {
    name: "memprov.memory.faults_by_kind",
    unit: "{fault}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "The same page faults, divided by kind of memory as a sample of them tells.",
    attributes: &[
        attribute(KIND, Type::Text, true, &[kind::ANON, kind::FILE, kind::SHMEM, kind::UNKNOWN]),
    ],
};

/// Memory that is present, by the NUMA node that it lies on, by owner.
pub const MEMORY_PLACED: Metric = Metric {
    name: "memprov.memory.placed",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Memory that is present, by the NUMA node that it lies on, by owner.",
    attributes: &[
        attribute(NUMA_NODE, Type::Text, true, &[]),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, false, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// CPU time of processes, by how far their memory lies from the CPUs that they ran on.
pub const PLACEMENT_TIME: Metric = Metric {
    name: "memprov.placement.time",
    unit: "s",
    instrument: Instrument::Counter,
    number: Number::Double,
    brief: "CPU time of processes, by how far their memory lies from the CPUs that they ran on.",
    attributes: &[
        attribute(NUMA_LOCALITY, Type::Text, true, numa_locality::ALL),
        attribute(OWNER_ID, Type::Text, false, &[]),
        attribute(OWNER_KIND, Type::Text, false, owner_kind::ALL),
        attribute(OWNER_NAME, Type::Text, false, &[]),
        attribute(OVERFLOW, Type::Bool, false, &[]),
    ],
};

/// Records that a stream lost, at least.
pub const SOURCE_LOST: Metric = Metric {
    name: "memprov.source.lost",
    unit: "{record}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Records that a stream lost, at least.",
    attributes: &[
        attribute(SOURCE_NAME, Type::Text, true, source_name::ALL),
    ],
};

/// Mappings that a list showed to be otherwise than events had told.
pub const LEDGER_DIFFERENCES: Metric = Metric {
    name: "memprov.ledger.differences",
    unit: "{mapping}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Mappings that a list showed to be otherwise than events had told.",
    attributes: &[
        attribute(DIFFERENCE, Type::Text, true, difference::ALL),
    ],
};

/// CPU time of the agent, by thread.
pub const BUDGET_CPU_TIME: Metric = Metric {
    name: "memprov.budget.cpu.time",
    unit: "s",
    instrument: Instrument::Counter,
    number: Number::Double,
    brief: "CPU time of the agent, by thread.",
    attributes: &[
        attribute(THREAD, Type::Text, true, &[]),
    ],
};

/// CPU time of the agent over the last interval or two, as a fraction of one CPU.
pub const BUDGET_CPU_UTILIZATION: Metric = Metric {
    name: "memprov.budget.cpu.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "CPU time of the agent over the last interval or two, as a fraction of one CPU.",
    attributes: &[],
};

/// Resident memory of the agent; its rings count twice, as they are mapped twice.
pub const BUDGET_RESIDENT: Metric = Metric {
    name: "memprov.budget.resident",
    unit: "By",
    instrument: Instrument::UpDownCounter,
    number: Number::Int,
    brief: "Resident memory of the agent; its rings count twice, as they are mapped twice.",
    attributes: &[],
};

/// Time that others spend in the agent's BPF programs, as a fraction of one CPU, counted now and then.
pub const BUDGET_BPF_UTILIZATION: Metric = Metric {
    name: "memprov.budget.bpf.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "Time that others spend in the agent's BPF programs, as a fraction of one CPU, counted now and then.",
    attributes: &[],
};

/// What any system call of the host takes longer with the agent's hooks, measured when they were attached.
pub const BUDGET_SYSCALL_LATENCY: Metric = Metric {
    name: "memprov.budget.syscall.latency",
    unit: "s",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "What any system call of the host takes longer with the agent's hooks, measured when they were attached.",
    attributes: &[],
};

/// What all system calls of the host take longer with the agent's hooks, as a fraction of one CPU.
pub const BUDGET_SYSCALL_UTILIZATION: Metric = Metric {
    name: "memprov.budget.syscall.utilization",
    unit: "1",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "What all system calls of the host take longer with the agent's hooks, as a fraction of one CPU.",
    attributes: &[],
};

/// Readings of processes that were not made, by reason.
pub const BUDGET_SCAN_SKIPPED: Metric = Metric {
    name: "memprov.budget.scan.skipped",
    unit: "{scan}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Readings of processes that were not made, by reason.",
    attributes: &[
        attribute(REASON, Type::Text, true, reason::ALL),
    ],
};

/// Time from the begin to the end of each scan of a process.
pub const BUDGET_SCAN_DURATION: Metric = Metric {
    name: "memprov.budget.scan.duration",
    unit: "s",
    instrument: Instrument::Histogram,
    number: Number::Double,
    brief: "Time from the begin to the end of each scan of a process.",
    attributes: &[],
};

/// Always 1; its attributes are a row of the support matrix.
pub const SUPPORT: Metric = Metric {
    name: "memprov.support",
    unit: "{capability}",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "Always 1; its attributes are a row of the support matrix.",
    attributes: &[
        attribute(CAPABILITY, Type::Text, true, &[]),
        attribute(MECHANISM, Type::Text, true, &[]),
        attribute(STATE, Type::Text, true, state::ALL),
    ],
};

/// Share of resident memory whose origin a capability saw, its mapping or its first touch.
pub const COVERAGE: Metric = Metric {
    name: "memprov.coverage",
    unit: "1",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "Share of resident memory whose origin a capability saw, its mapping or its first touch.",
    attributes: &[
        attribute(CAPABILITY, Type::Text, true, &[]),
    ],
};

/// Pages of which one is in the sample, in the process with the thinnest sample.
pub const SAMPLING_PERIOD: Metric = Metric {
    name: "memprov.sampling.period",
    unit: "{page}",
    instrument: Instrument::Gauge,
    number: Number::Double,
    brief: "Pages of which one is in the sample, in the process with the thinnest sample.",
    attributes: &[
        attribute(CAPABILITY, Type::Text, true, &[]),
    ],
};

/// NUMA nodes that hold memory.
pub const NUMA_NODES: Metric = Metric {
    name: "memprov.numa.nodes",
    unit: "{node}",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "NUMA nodes that hold memory.",
    attributes: &[],
};

/// Always 1; its attribute says which settings are in effect.
pub const CONFIG_INFO: Metric = Metric {
    name: "memprov.config.info",
    unit: "{configuration}",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "Always 1; its attribute says which settings are in effect.",
    attributes: &[
        attribute(CONFIG_HASH, Type::Text, true, &[]),
    ],
};

/// Times that the settings were read again (SIGHUP), by what came of it.
pub const CONFIG_RELOADS: Metric = Metric {
    name: "memprov.config.reloads",
    unit: "{reload}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Times that the settings were read again (SIGHUP), by what came of it.",
    attributes: &[
        attribute(OUTCOME, Type::Text, true, outcome::ALL),
    ],
};

/// Requests to the OTLP endpoint.
pub const EXPORT_REQUESTS: Metric = Metric {
    name: "memprov.export.requests",
    unit: "{request}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Requests to the OTLP endpoint.",
    attributes: &[
        attribute(EXPORT_OUTCOME, Type::Text, true, export_outcome::ALL),
    ],
};

/// Panes for the OTLP endpoint, each the state at its end.
pub const EXPORT_PANES: Metric = Metric {
    name: "memprov.export.panes",
    unit: "{pane}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Panes for the OTLP endpoint, each the state at its end.",
    attributes: &[
        attribute(EXPORT_OUTCOME, Type::Text, true, export_outcome::ALL),
    ],
};

/// Points for the OTLP endpoint.
pub const EXPORT_POINTS: Metric = Metric {
    name: "memprov.export.points",
    unit: "{data_point}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Points for the OTLP endpoint.",
    attributes: &[
        attribute(EXPORT_OUTCOME, Type::Text, true, export_outcome::ALL),
    ],
};

/// Log records for the OTLP endpoint, where exemplars are sent as such.
pub const EXPORT_RECORDS: Metric = Metric {
    name: "memprov.export.records",
    unit: "{log_record}",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Log records for the OTLP endpoint, where exemplars are sent as such.",
    attributes: &[
        attribute(EXPORT_OUTCOME, Type::Text, true, export_outcome::ALL),
    ],
};

/// Bytes of requests, compressed.
pub const EXPORT_SIZE: Metric = Metric {
    name: "memprov.export.size",
    unit: "By",
    instrument: Instrument::Counter,
    number: Number::Int,
    brief: "Bytes of requests, compressed.",
    attributes: &[
        attribute(EXPORT_OUTCOME, Type::Text, true, export_outcome::ALL),
    ],
};

/// Time from a request to its answer.
pub const EXPORT_DURATION: Metric = Metric {
    name: "memprov.export.duration",
    unit: "s",
    instrument: Instrument::Histogram,
    number: Number::Double,
    brief: "Time from a request to its answer.",
    attributes: &[],
};

/// Always 1; its attributes say which build of the agent runs.
pub const BUILD_INFO: Metric = Metric {
    name: "memprov.build_info",
    unit: "{build}",
    instrument: Instrument::Gauge,
    number: Number::Int,
    brief: "Always 1; its attributes say which build of the agent runs.",
    attributes: &[
        attribute(BUILD_VERSION, Type::Text, true, &[]),
    ],
};

/// What resources carry.
pub const RESOURCE: &[Attribute] = &[
    attribute(HOST_ID, Type::Text, true, &[]),
    attribute(HOST_NAME, Type::Text, true, &[]),
    attribute(SERVICE_INSTANCE_ID, Type::Text, true, &[]),
    attribute(SERVICE_NAME, Type::Text, true, &[]),
    attribute(CONTAINER_ID, Type::Text, false, &[]),
    attribute(UNIT, Type::Text, false, &[]),
    attribute(PROCESS_CREATION_TIME, Type::Text, false, &[]),
    attribute(PROCESS_EXECUTABLE_NAME, Type::Text, false, &[]),
    attribute(PROCESS_PID, Type::Int, false, &[]),
];

/// Every metric, in the order of the registry's files.
pub const ALL: &[&Metric] = &[
    &ACCESS_TIME,
    &ACCESS_TIME_SQUARED,
    &ACCESS_LATENCY,
    &ACCESS_SAMPLES,
    &MEMORY_RESERVED,
    &MEMORY_RESIDENT,
    &MEMORY_RESIDENT_EXACT,
    &MEMORY_SWAPPED,
    &MEMORY_POPULATED,
    &MEMORY_TOUCHED_LOWER,
    &MEMORY_TOUCHED_UPPER,
    &MEMORY_TOUCHED_COVERED,
    &MEMORY_CONTROL,
    &MEMORY_CONTROL_SPREAD,
    &MEMORY_CHARGED,
    &MEMORY_JOINT,
    &MEMORY_SKEW,
    &MEMORY_DRIFT,
    &MEMORY_BOOK_AGE,
    &MEMORY_FAULTS,
    &MEMORY_FAULTS_BY_KIND,
    &MEMORY_PLACED,
    &PLACEMENT_TIME,
    &SOURCE_LOST,
    &LEDGER_DIFFERENCES,
    &BUDGET_CPU_TIME,
    &BUDGET_CPU_UTILIZATION,
    &BUDGET_RESIDENT,
    &BUDGET_BPF_UTILIZATION,
    &BUDGET_SYSCALL_LATENCY,
    &BUDGET_SYSCALL_UTILIZATION,
    &BUDGET_SCAN_SKIPPED,
    &BUDGET_SCAN_DURATION,
    &SUPPORT,
    &COVERAGE,
    &SAMPLING_PERIOD,
    &NUMA_NODES,
    &CONFIG_INFO,
    &CONFIG_RELOADS,
    &EXPORT_REQUESTS,
    &EXPORT_PANES,
    &EXPORT_POINTS,
    &EXPORT_RECORDS,
    &EXPORT_SIZE,
    &EXPORT_DURATION,
    &BUILD_INFO,
];
