//! Whether this host can sample memory accesses: which event its PMU offers, and what the kernel says to a trial open.
//!
//! Reads `/sys/bus/event_source/devices` (kernel `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`). The
//! verdict is a pure function of what was found there and of the error of `perf_event_open(2)`.

use std::fmt;
use std::path::Path;

use crate::errno::{EACCES, EBUSY, ENODATA, ENODEV, ENOENT, EOPNOTSUPP, EPERM};
use crate::sampler::Sampled;

/// An event that samples memory accesses with their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemEvent {
    /// The PMU, as sysfs names it: `cpu`, `cpu_core`, `ibs_op`, `arm_spe_0`.
    pub device: String,
    /// The event of that PMU; a PMU that does nothing else has none.
    pub event: Option<&'static str>,
}

impl MemEvent {
    /// Whether it can be sampled here. Arm's SPE writes packets to a buffer of its own, which is read in recordings only.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !self.device.starts_with("arm_spe")
    }
}

impl fmt::Display for MemEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.device, self.event.unwrap_or_default())
    }
}

/// What was found out, before it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The events that sysfs names, the most telling first. `Err` is the error number of reading sysfs.
    pub events: Result<Vec<MemEvent>, i32>,
    /// What a trial open of the first said: nothing, or its error number. `None`: none was tried.
    pub trial: Option<Result<(), i32>>,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
}

/// Whether memory accesses can be sampled here, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event opened.
    Available(MemEvent),
    /// Sysfs names an event, and nothing was opened to see whether it works.
    Untried(MemEvent),
    /// The PMU or the event does not exist (ENOENT, ENODEV): usual in virtual machines.
    Absent,
    /// It exists and cannot sample precisely (EOPNOTSUPP): a hypervisor that passes on counters only.
    NotSupported(MemEvent),
    /// The kernel wants a capability that we do not have (EACCES).
    Paranoid {
        /// The event.
        event: MemEvent,
        /// `kernel.perf_event_paranoid`.
        level: Option<i32>,
    },
    /// A policy forbids it (EPERM): lockdown, seccomp or a security module.
    Locked(MemEvent),
    /// It samples only in a group that sysfs does not name (ENODATA).
    Ungrouped(MemEvent),
    /// Somebody else holds the PMU (EBUSY).
    Busy(MemEvent),
    /// Another error.
    Failed {
        /// The event; `None` where sysfs could not be read.
        event: Option<MemEvent>,
        /// The error number.
        errno: i32,
    },
}

impl Verdict {
    /// The event, where there is one.
    #[must_use]
    pub fn event(&self) -> Option<&MemEvent> {
        match self {
            Self::Available(event)
            | Self::Untried(event)
            | Self::NotSupported(event)
            | Self::Locked(event)
            | Self::Ungrouped(event)
            | Self::Busy(event)
            | Self::Paranoid { event, .. } => Some(event),
            Self::Failed { event, .. } => event.as_ref(),
            Self::Absent => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available(event) => write!(f, "{event} opens"),
            Self::Untried(event) => write!(f, "{event} is listed, not tried"),
            Self::Absent => write!(f, "ENOENT: no event cpu/mem-loads/, ibs_op// or arm_spe//"),
            Self::NotSupported(event) => write!(f, "EOPNOTSUPP: {event} cannot sample here"),
            Self::Paranoid { event, level } => {
                let level = level.map_or_else(|| "?".to_owned(), |level| level.to_string());
                write!(f, "EACCES: {event}, kernel.perf_event_paranoid is {level}")
            }
            Self::Locked(event) => write!(f, "EPERM: a policy of this kernel forbids {event}"),
            Self::Ungrouped(event) => write!(f, "ENODATA: {event} lacks the leader of its group"),
            Self::Busy(event) => write!(f, "EBUSY: somebody else uses {event}"),
            Self::Failed { event: Some(event), errno } => {
                write!(f, "{event}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Failed { event: None, errno } => {
                write!(f, "read the list of PMUs: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

/// What the findings mean.
#[must_use]
pub fn judge(probe: &Probe) -> Verdict {
    let events = match &probe.events {
        Ok(events) => events.as_slice(),
        Err(ENOENT) => &[],
        Err(errno) => return Verdict::Failed { event: None, errno: *errno },
    };
    let Some(event) = events.first().cloned() else { return Verdict::Absent };
    match probe.trial {
        None => Verdict::Untried(event),
        Some(Ok(())) => Verdict::Available(event),
        Some(Err(ENODATA)) => Verdict::Ungrouped(event),
        Some(Err(ENOENT | ENODEV)) => Verdict::Absent,
        Some(Err(EOPNOTSUPP)) => Verdict::NotSupported(event),
        Some(Err(EACCES)) => Verdict::Paranoid { event, level: probe.paranoid },
        Some(Err(EPERM)) => Verdict::Locked(event),
        Some(Err(EBUSY)) => Verdict::Busy(event),
        Some(Err(errno)) => Verdict::Failed { event: Some(event), errno },
    }
}

/// Looks below `root`, and tries to open what it finds where that is this kernel's own sysfs.
#[must_use]
pub fn probe(root: &Path) -> Probe {
    let events = discover(&root.join("sys/bus/event_source/devices"));
    let trial = match events.as_ref().map(|events| events.first()) {
        Ok(Some(event)) if root == Path::new("/") => Some(open(root, event)),
        _ => None,
    };
    let paranoid = std::fs::read_to_string(root.join("proc/sys/kernel/perf_event_paranoid"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Probe { events, trial, paranoid }
}

/// Events of this kind, loads first: Intel and Power `mem-loads` and `mem-stores` of each kind of core, AMD IBS, Arm SPE.
fn discover(devices: &Path) -> Result<Vec<MemEvent>, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or_default();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(devices).map_err(errno)? {
        names.extend(entry.map_err(errno)?.file_name().into_string());
    }
    names.sort();
    let mut events = Vec::new();
    for event in ["mem-loads", "mem-stores"] {
        let has = |name: &&String| devices.join(name).join("events").join(event).exists();
        let of = |device: &String| MemEvent { device: device.clone(), event: Some(event) };
        events.extend(names.iter().filter(has).map(of));
    }
    let sampler = |name: &&String| *name == "ibs_op" || name.starts_with("arm_spe");
    let of = |device: &String| MemEvent { device: device.clone(), event: None };
    events.extend(names.iter().filter(sampler).map(of));
    Ok(events)
}

/// Opens the event, disabled, on the first CPU that has it for all processes, and closes it again.
fn open(root: &Path, event: &MemEvent) -> Result<(), i32> {
    // A description that cannot be read is as good as no event.
    let sampled = Sampled::memory(root, event, 0);
    let sampled = sampled.map_err(|error| error.errno().unwrap_or(ENOENT))?;
    sampled.trial().map_err(|error| error.raw_os_error().unwrap_or(ENOENT))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MemEvent, Probe, Verdict, judge, probe};

    fn ibs() -> MemEvent {
        MemEvent { device: "ibs_op".to_owned(), event: None }
    }

    fn tried(errno: i32) -> Verdict {
        judge(&Probe { events: Ok(vec![ibs()]), trial: Some(Err(errno)), paranoid: Some(2) })
    }

    #[test]
    fn each_way_to_fail_has_its_own_verdict_and_words() {
        let verdicts = [
            (tried(2), Verdict::Absent, "ENOENT"),
            (tried(19), Verdict::Absent, "ENOENT"),
            (tried(95), Verdict::NotSupported(ibs()), "EOPNOTSUPP: ibs_op//"),
            (tried(13), Verdict::Paranoid { event: ibs(), level: Some(2) }, "paranoid is 2"),
            (tried(1), Verdict::Locked(ibs()), "EPERM"),
            (tried(61), Verdict::Ungrouped(ibs()), "ENODATA"),
            (tried(16), Verdict::Busy(ibs()), "EBUSY"),
            (tried(22), Verdict::Failed { event: Some(ibs()), errno: 22 }, "Invalid argument"),
        ];
        for (got, expected, words) in verdicts {
            assert_eq!(got, expected);
            assert!(got.to_string().contains(words), "{got}");
        }
    }

    #[test]
    fn an_event_counts_as_available_only_after_it_opened() {
        let found = |trial| judge(&Probe { events: Ok(vec![ibs()]), trial, paranoid: None });
        assert_eq!(found(None), Verdict::Untried(ibs()));
        assert_eq!(found(Some(Ok(()))), Verdict::Available(ibs()));
    }

    #[test]
    fn no_list_of_pmus_is_told_apart_from_an_unreadable_one() {
        let without = |events| judge(&Probe { events, trial: None, paranoid: None });
        assert_eq!(without(Ok(Vec::new())), Verdict::Absent);
        assert_eq!(without(Err(2)), Verdict::Absent);
        assert_eq!(without(Err(13)), Verdict::Failed { event: None, errno: 13 });
    }

    #[test]
    fn events_are_found_below_a_root_and_not_opened_there() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/event_source/devices");
        assert_eq!(probe(root.path()).events, Err(2));
        for device in ["software", "arm_spe_0", "cpu_atom/events", "cpu_core/events"] {
            std::fs::create_dir_all(devices.join(device)).unwrap();
        }
        let named = || -> Vec<String> {
            probe(root.path()).events.unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(named(), ["arm_spe_0//"]);
        assert_eq!(probe(root.path()).trial, None);
        for event in ["cpu_core/events/mem-loads", "cpu_atom/events/mem-loads"] {
            std::fs::write(devices.join(event), "event=0xcd,umask=0x1").unwrap();
        }
        std::fs::write(devices.join("cpu_core/events/mem-stores"), "event=0xcd,umask=0x2").unwrap();
        let core =
            ["cpu_atom/mem-loads/", "cpu_core/mem-loads/", "cpu_core/mem-stores/", "arm_spe_0//"];
        assert_eq!(named(), core, "each kind of core");
    }

    #[test]
    fn the_real_host_is_judged_without_contradiction() {
        let found = probe(Path::new("/"));
        let verdict = judge(&found);
        println!("this host: {verdict}");
        assert_eq!(
            verdict.event().is_none(),
            !matches!(&found.events, Ok(events) if !events.is_empty())
                || verdict == Verdict::Absent
        );
    }
}
