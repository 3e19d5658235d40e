//! Whether this host can sample memory accesses: which event its PMU offers, and what the kernel says to a trial open.
//!
//! Reads `/sys/bus/event_source/devices` (kernel `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`). The
//! verdict is a pure function of what was found there and of the error of `perf_event_open(2)`.

use std::fmt;
use std::path::{Path, PathBuf};

use perf_event::events::Dynamic;
use perf_event::{Builder, SampleSkid};

/// An event that samples memory accesses with their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemEvent {
    /// The PMU, as sysfs names it: `cpu`, `cpu_core`, `ibs_op`, `arm_spe_0`.
    pub device: String,
    /// The event of that PMU; a PMU that does nothing else has none.
    pub event: Option<&'static str>,
}

impl fmt::Display for MemEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.device, self.event.unwrap_or_default())
    }
}

/// What was found out, before it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The event that sysfs names. `Err` is the error number of reading sysfs.
    pub event: Result<Option<MemEvent>, i32>,
    /// What a trial open said: nothing, or its error number. `None`: none was tried.
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

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

/// What the findings mean.
#[must_use]
pub fn judge(probe: &Probe) -> Verdict {
    let event = match &probe.event {
        Ok(Some(event)) => event.clone(),
        Ok(None) | Err(ENOENT) => return Verdict::Absent,
        Err(errno) => return Verdict::Failed { event: None, errno: *errno },
    };
    match probe.trial {
        None => Verdict::Untried(event),
        // Sapphire Rapids and later demand an auxiliary leader in the group: the event itself is there and allowed.
        Some(Ok(()) | Err(ENODATA)) => Verdict::Available(event),
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
    let devices = root.join("sys/bus/event_source/devices");
    let event = discover(&devices);
    let trial = match &event {
        Ok(Some(event)) if root == Path::new("/") => Some(open(&devices, event)),
        _ => None,
    };
    let paranoid = std::fs::read_to_string(root.join("proc/sys/kernel/perf_event_paranoid"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Probe { event, trial, paranoid }
}

/// The first event of this kind: Intel and Power `mem-loads`, AMD IBS, Arm SPE.
fn discover(devices: &Path) -> Result<Option<MemEvent>, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or_default();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(devices).map_err(errno)? {
        names.extend(entry.map_err(errno)?.file_name().into_string());
    }
    names.sort();
    let loads = |name: &&String| devices.join(name).join("events/mem-loads").exists();
    if let Some(device) = names.iter().find(loads) {
        return Ok(Some(MemEvent { device: device.clone(), event: Some("mem-loads") }));
    }
    let sampler = |name: &&String| *name == "ibs_op" || name.starts_with("arm_spe");
    Ok(names.iter().find(sampler).map(|device| MemEvent { device: device.clone(), event: None }))
}

/// Opens the event, disabled, on the first CPU for all processes, and closes it again.
fn open(devices: &Path, event: &MemEvent) -> Result<(), i32> {
    let trial = || -> std::io::Result<()> {
        let pmu: PathBuf = devices.join(&event.device);
        let mut dynamic = Dynamic::builder(&pmu)?;
        if let Some(name) = event.event {
            dynamic.event(pmu.join("events").join(name))?;
        }
        let dynamic = dynamic.build().map_err(std::io::Error::other)?;
        let mut builder = Builder::new(dynamic);
        builder.any_pid().one_cpu(0).sample_period(1_000_003).include_kernel().include_hv();
        if event.event.is_some() {
            builder.precise_ip(SampleSkid::RequestZero);
        }
        builder.build().map(|_| ())
    };
    // An error without a number is of sysfs text that this crate cannot read: as good as no event.
    trial().map_err(|error| error.raw_os_error().unwrap_or(ENOENT))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MemEvent, Probe, Verdict, judge, probe};

    fn ibs() -> MemEvent {
        MemEvent { device: "ibs_op".to_owned(), event: None }
    }

    fn tried(errno: i32) -> Verdict {
        judge(&Probe { event: Ok(Some(ibs())), trial: Some(Err(errno)), paranoid: Some(2) })
    }

    #[test]
    fn each_way_to_fail_has_its_own_verdict_and_words() {
        let verdicts = [
            (tried(2), Verdict::Absent, "ENOENT"),
            (tried(19), Verdict::Absent, "ENOENT"),
            (tried(95), Verdict::NotSupported(ibs()), "EOPNOTSUPP: ibs_op//"),
            (tried(13), Verdict::Paranoid { event: ibs(), level: Some(2) }, "paranoid is 2"),
            (tried(1), Verdict::Locked(ibs()), "EPERM"),
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
        let found = |trial| judge(&Probe { event: Ok(Some(ibs())), trial, paranoid: None });
        assert_eq!(found(None), Verdict::Untried(ibs()));
        assert_eq!(found(Some(Ok(()))), Verdict::Available(ibs()));
        assert_eq!(found(Some(Err(61))), Verdict::Available(ibs()));
    }

    #[test]
    fn no_list_of_pmus_is_told_apart_from_an_unreadable_one() {
        let without = |event| judge(&Probe { event, trial: None, paranoid: None });
        assert_eq!(without(Ok(None)), Verdict::Absent);
        assert_eq!(without(Err(2)), Verdict::Absent);
        assert_eq!(without(Err(13)), Verdict::Failed { event: None, errno: 13 });
    }

    #[test]
    fn events_are_found_below_a_root_and_not_opened_there() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/event_source/devices");
        assert_eq!(probe(root.path()).event, Err(2));
        for device in ["software", "arm_spe_0", "cpu/events"] {
            std::fs::create_dir_all(devices.join(device)).unwrap();
        }
        let found = probe(root.path());
        assert_eq!(found.event.unwrap().unwrap().to_string(), "arm_spe_0//");
        assert_eq!(found.trial, None);
        std::fs::write(devices.join("cpu/events/mem-loads"), "event=0xcd,umask=0x1").unwrap();
        assert_eq!(probe(root.path()).event.unwrap().unwrap().to_string(), "cpu/mem-loads/");
    }

    #[test]
    fn the_real_host_is_judged_without_contradiction() {
        let found = probe(Path::new("/"));
        let verdict = judge(&found);
        println!("this host: {verdict}");
        assert_eq!(
            verdict.event().is_none(),
            !matches!(found.event, Ok(Some(_))) || verdict == Verdict::Absent
        );
    }
}
