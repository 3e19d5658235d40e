//! The parts of `memprov.report/1` that a scorer reads. Unknown fields are ignored, as the schema promises.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// Kinds that make up Rss.
pub const RESIDENT: [&str; 3] = ["anon", "file", "shmem"];

/// The document.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// `memprov.report/1`.
    pub schema: String,
    /// `daemon`, `replay` or `snapshot`.
    pub source: String,
    /// One per live process.
    pub processes: Vec<Process>,
    /// Objects with two or more observed spaces.
    pub shared: Vec<SharedRow>,
    /// The document itself.
    #[serde(skip)]
    pub document: Value,
}

/// One process.
#[derive(Clone, Debug, Deserialize)]
pub struct Process {
    /// Thread group id.
    pub pid: u32,
    /// Address space.
    pub space: String,
    /// All processes of that space.
    pub space_pids: Vec<u32>,
    /// The instant as of which all of this holds.
    #[serde(deserialize_with = "instant")]
    pub as_of: SystemTime,
    /// Books by kind.
    pub books: BTreeMap<String, Book>,
    /// Its owners.
    pub owners: Vec<OwnerRow>,
}

/// One book, all in bytes.
#[derive(Clone, Debug, Deserialize)]
pub struct Book {
    /// The kernel's total.
    pub control: Control,
    /// Owned here.
    pub owned: i64,
    /// Owned elsewhere.
    pub joint: i64,
    /// Owned by nobody known.
    pub unattributed: i64,
    /// What moved during the scan.
    pub skew: i64,
    /// Nothing moved during the scan.
    pub at_rest: bool,
}

impl Book {
    /// All that the book accounts for without the skew.
    pub fn accounted(&self) -> i64 {
        self.owned + self.joint + self.unattributed
    }
}

/// The kernel's total before and after the scan.
#[derive(Clone, Debug, Deserialize)]
pub struct Control {
    /// The lower.
    pub lo: i64,
    /// The upper.
    pub hi: i64,
}

/// A number with its evidence.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Quantity {
    /// `None` is unknown.
    pub bytes: Option<u64>,
    /// `exact`, `inferred` or `sampled`.
    #[serde(default)]
    pub evidence: Option<Evidence>,
    /// Lower bound.
    pub lo: Option<u64>,
    /// Upper bound.
    pub hi: Option<u64>,
}

/// How sure a number is, best first.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// Proven.
    Exact,
    /// Concluded.
    Inferred,
    /// Estimated.
    Sampled,
}

/// One frame.
#[derive(Clone, Debug, Deserialize)]
pub struct Frame {
    /// Its function, when known.
    pub function: Option<String>,
}

/// One owner in one process.
#[derive(Clone, Debug, Deserialize)]
pub struct OwnerRow {
    /// Content key.
    pub id: String,
    /// `mapping`, `arena`, `file`, …
    pub kind: String,
    /// For people.
    pub name: String,
    /// Leaf first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Bytes of live extents.
    pub reserved: Option<Quantity>,
    /// Bytes in memory.
    pub resident: Option<Quantity>,
    /// Bytes in swap.
    pub swapped: Option<Quantity>,
}

/// One object that several spaces map.
#[derive(Clone, Debug, Deserialize)]
pub struct SharedRow {
    /// `file`, `shm`, …
    pub kind: String,
    /// For people.
    pub name: String,
    /// Stack of whoever mapped it first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Bytes in memory, once.
    pub resident: Quantity,
    /// Spaces that map it.
    pub sharers: u64,
}

impl Report {
    /// Parses a document.
    ///
    /// # Errors
    /// Says what doesn't have the documented shape.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let document =
            serde_json::from_slice(text).map_err(|e| format!("the report is no JSON: {e}"))?;
        Self::of(document)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Says what doesn't have the documented shape.
    pub fn of(document: Value) -> Result<Self, String> {
        let report = Self::deserialize(&document)
            .map_err(|e| format!("the report has not the documented shape: {e}"))?;
        if report.schema == "memprov.report/1" {
            Ok(Self { document, ..report })
        } else {
            Err(format!("schema {} is not memprov.report/1", report.schema))
        }
    }

    /// The process `pid`, or one that has the same space.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes
            .iter()
            .find(|p| p.pid == pid)
            .or_else(|| self.processes.iter().find(|p| p.space_pids.contains(&pid)))
    }
}

impl Process {
    /// Sum over the books that make Rss.
    pub fn over_resident(&self, of: impl Fn(&Book) -> i64) -> i64 {
        RESIDENT.iter().filter_map(|kind| self.books.get(*kind)).map(of).sum()
    }

    /// Resident bytes of the rows of these kinds; unknown ones count as nothing.
    pub fn resident_of(&self, kinds: &[&str]) -> u64 {
        self.owners.iter().filter(|r| kinds.contains(&r.kind.as_str())).map(resident).sum()
    }
}

/// Resident bytes of a row, nothing where unknown.
pub fn resident(row: &OwnerRow) -> u64 {
    row.resident.as_ref().and_then(|q| q.bytes).unwrap_or(0)
}

/// The first function named `site_*` of a stack.
pub fn site(stack: &[Frame]) -> Option<&str> {
    stack
        .iter()
        .filter_map(|f| f.function.as_deref())
        .map(|f| f.split('(').next().unwrap_or(f))
        .find(|f| f.starts_with("site_"))
}

fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(from)?;
    utc(&text)
        .ok_or_else(|| D::Error::custom(format!("{text} is not RFC 3339 in UTC with suffix Z")))
}

/// An RFC 3339 instant with suffix Z, from 1970 on.
fn utc(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|n| n.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':').map(|n| n.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days from civil: years begin in March, so that the leap day is the last of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::{Duration, SystemTime, utc};

    #[test]
    fn an_instant_is_read_to_the_nanosecond_and_only_in_utc() {
        let at = |s, n| Some(SystemTime::UNIX_EPOCH + Duration::new(s, n));
        assert_eq!(utc("1970-01-01T00:00:00Z"), at(0, 0));
        assert_eq!(utc("2000-02-29T12:34:56.5Z"), at(951_827_696, 500_000_000));
        assert_eq!(utc("2026-11-29T20:30:20.000000001Z"), at(1_795_984_220, 1));
        assert_eq!(utc("2026-11-29T20:30:20+00:00"), None);
        assert_eq!(utc("2026-13-29T20:30:20Z"), None);
        assert_eq!(utc("yesterday"), None);
    }
}
