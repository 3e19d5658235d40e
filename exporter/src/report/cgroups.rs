//! What cgroups are charged for, as the report tells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Control, Quantity};

/// What one cgroup is charged for, without what lies below it: the rows, `unattributed` and `skew` add up to `current`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its path.
    pub cgroup: String,
    /// Container id found in the path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// All of this holds as of this instant.
    pub as_of: String,
    /// The kernel's total that the book closes at: the last reading.
    pub current: u64,
    /// The kernel's total before and after the lines were read.
    pub control: Control,
    /// The kernel's total with all that lies below.
    pub whole: u64,
    /// Processes in it; `null`: unknown.
    pub processes: Option<u64>,
    /// Those of them that the rows `mapped` rest on.
    pub observed: u64,
    /// Rows.
    pub rows: Vec<ChargeRow>,
    /// Files in the row `cache`, largest first. What is left of that row is of files that nobody is known to have open.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cache_files: Vec<CacheFile>,
    /// Charged for what the kernel has no line for.
    pub unattributed: u64,
    /// What the lines have too much; never positive.
    pub skew: i64,
    /// How far lines and total may be apart while nothing moves.
    pub slack: u64,
    /// Swap cache; what of it nobody maps is in no row. Missing where the kernel has no such line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub swap_cache: Option<u64>,
    /// Memo, in no row: mapped by its observed processes and charged to others, at least and at most.
    pub charged_elsewhere: Control,
    /// What else the kernel tells: `max`, `peak`, `swap.current`, `events.oom_kill`, `pressure.some.total` (µs).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub facts: BTreeMap<String, u64>,
}

/// One row of a charge book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeRow {
    /// `mapped`, `elsewhere`, `cache`, `tmpfs`, `hugetlb`, `kernel`.
    pub kind: String,
    /// `anon`, `file`, `shmem`, `hugetlb`, or the kernel's name of a kind of kernel memory.
    pub part: String,
    /// How much.
    pub bytes: Quantity,
}

/// A file in the page cache that nobody maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFile {
    /// Hash of the content key.
    pub id: String,
    /// Template of the path.
    pub name: String,
    /// How much.
    pub bytes: Quantity,
}
