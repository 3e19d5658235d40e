//! Recordings of other machines and of this one, beside what `perf script` says of them.

mod hostile;
mod spe;

use std::path::{Path, PathBuf};
use std::process::Command;

use memprov_ledger::evidence::{Change, Evidence, Lifecycle, Population, Timing};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::MonoTime;

use super::order::Order;
use super::{FINISHED_ROUND, HEADER_ATTR, Kind, Recording};
use crate::data_src::{DataSource, level, tlb};
use crate::record::sample::{
    ADDR, CPU, DATA_PAGE_SIZE, DATA_SRC, PHYS_ADDR, Sample, WEIGHT, WEIGHT_STRUCT, Weight,
};
use crate::record::{self, Body, Format};

/// A recording of `../shared/data`; says so where that is absent.
fn recorded(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {}", path.display());
    None
}

/// What `perf` says on standard output; says so where it is not installed.
fn perf(arguments: &[&str]) -> Option<String> {
    match Command::new("perf").args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped: perf: {error}");
            None
        }
    }
}

/// Level and TLB as `perf script` 6.1 wrote them: both namings of the level, one after the other.
fn text_of_6_1(source: DataSource) -> String {
    const LEVELS: [&str; 14] = [
        "N/A",
        "HIT",
        "MISS",
        "L1",
        "LFB/MAB",
        "L2",
        "L3",
        "Local RAM",
        "Remote RAM (1 hop)",
        "Remote RAM (2 hops)",
        "Remote Cache (1 hop)",
        "Remote Cache (2 hops)",
        "I/O",
        "Uncached",
    ];
    const NUMBERS: [&str; 16] = [
        "",
        "L1",
        "L2",
        "L3",
        "L4",
        "L5",
        "L6",
        "L7",
        "L8",
        "CXL",
        "I/O",
        "Any cache",
        "LFB/MAB",
        "RAM",
        "PMEM",
        "N/A",
    ];
    let said = source.level();
    let mut names: Vec<&str> = (0..14)
        .filter(|bit| said & !(level::HIT | level::MISS) & 1 << bit != 0)
        .map(|bit| LEVELS[bit])
        .collect();
    if source.level_number() != 0 {
        names.push(NUMBERS[usize::try_from(source.level_number()).unwrap()]);
    }
    let outcome = if said & level::HIT != 0 { " hit" } else { "" };
    let text = source.to_string();
    let (_, behind) = text.split_once("|SNP").unwrap();
    let (op, _) = text.split_once("|LVL").unwrap();
    assert_eq!(source.tlb() & tlb::FAULT, 0, "named otherwise then");
    format!("{op}|LVL {}{outcome}|SNP{behind}", names.join(" or "))
}

/// A sample as `perf script` prints these fields, with one blank between words.
fn line(sample: &Sample<'_>, format: Format, kind: Kind) -> String {
    let asked = |bits: u64| format.sample_type & bits != 0;
    let (pid, tid) = sample.task.unwrap();
    // perf prints −1 as a signed number.
    let mut line = format!("{}/{}", pid.cast_signed(), tid.cast_signed());
    if asked(CPU) {
        line += &format!(" [{:03}]", sample.cpu.unwrap());
    }
    let time = sample.time.unwrap();
    let period = sample.period.or(kind.period).unwrap();
    line += &format!(" {}.{:09}: {period}", time / 1_000_000_000, time % 1_000_000_000);
    if asked(ADDR) {
        line += &format!(" {:x}", sample.address.unwrap());
    }
    if asked(DATA_SRC) {
        let raw = sample.data_src.unwrap();
        line += &format!(" {raw:x} {}", text_of_6_1(DataSource(raw)));
    }
    if asked(WEIGHT | WEIGHT_STRUCT) {
        line += &match sample.weight.unwrap() {
            Weight::Full(whole) => format!(" {whole}"),
            Weight::Three(first, _, _) => format!(" {first}"),
        };
    }
    line += &format!(" {:x}", sample.ip.unwrap());
    if asked(PHYS_ADDR) {
        line += &format!(" {:x}", sample.physical.unwrap());
    }
    if asked(DATA_PAGE_SIZE) {
        line += match sample.data_page_size.unwrap() {
            0 => " N/A",
            4096 => " 4K",
            0x20_0000 => " 2M",
            other => panic!("{other}"),
        };
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names of the fields that [`line`] prints.
fn fields(format: Format) -> String {
    let named = [
        (CPU, "cpu"),
        (ADDR, "addr"),
        (DATA_SRC, "data_src"),
        (WEIGHT | WEIGHT_STRUCT, "weight"),
        (PHYS_ADDR, "phys_addr"),
        (DATA_PAGE_SIZE, "data_page_size"),
    ];
    let asked = named.iter().filter(|(bits, _)| format.sample_type & bits != 0);
    let names: Vec<&str> = ["pid", "tid", "time", "period", "ip"]
        .into_iter()
        .chain(asked.map(|(_, name)| *name))
        .collect();
    names.join(",")
}

/// All samples of a recording in its order of time: what `of` makes of each.
fn samples<T>(path: &Path, of: impl Fn(&Sample<'_>, Format, Kind) -> T) -> Vec<T> {
    let mut recording = Recording::open(path).unwrap();
    let (mut order, mut all) = (Order::default(), Vec::new());
    while let Some(offset) = recording.advance() {
        let read = std::mem::take(&mut recording.record);
        match record::kind(&read) {
            FINISHED_ROUND => all.extend(order.round()),
            kind if kind >= HEADER_ATTR => {
                recording.record = read;
                recording.meta(kind, offset);
                continue;
            }
            record::SAMPLE => {
                recording.record.clone_from(&read);
                let event = &recording.events[recording.source().unwrap()];
                let format = event.attribute.format;
                let parsed = record::parse(&read, format).unwrap();
                let Body::Sample(sample) = parsed.body else { panic!() };
                let time = MonoTime(sample.time.unwrap());
                all.extend(order.push(time, 1, of(&sample, format, event.kind)));
            }
            _ => {
                recording.record.clone_from(&read);
                let format = recording.events[recording.source().unwrap()].attribute.format;
                record::parse(&read, format).unwrap();
            }
        }
        recording.record = read;
    }
    assert!(recording.tally.stopped.is_none(), "{:?}", recording.tally.stopped);
    all.extend(order.finish());
    all.into_iter().map(|(_, thing)| thing).collect()
}

/// Compares every sample with `perf script`. How many there are.
fn agrees(path: &Path) -> Option<usize> {
    let recording = Recording::open(path).unwrap();
    let format = recording.events[0].attribute.format;
    let name = path.to_str().unwrap();
    let said = perf(&["script", "--ns", "-G", "-i", name, "-F", &fields(format)])?;
    let own = samples(path, line);
    for (own, said) in own.iter().zip(said.lines()) {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(*own, said, "{name}");
    }
    assert_eq!(own.len(), said.lines().count(), "{name}");
    Some(own.len())
}

#[test]
fn every_sample_of_every_recording_is_decoded_as_perf_script_decodes_it() {
    let expected = [
        ("perfdata/quipper/perf.data.weight_struct", 14),
        ("perfdata/akshay-numatop/perf.data", 14),
        ("perfdata/quipper/perf.data.numatopology-3.2", 175),
        ("perfdata/quipper/perf.data.hybrid_topology", 1),
        ("perfdata/quipper/perf.data.remmap-3.2", 1),
        ("perfdata/quipper/perf.data.callgraph-3.8", 1),
        ("damon/damo-tests/tests/report/perf.data", 10_260),
    ];
    for (name, least) in expected {
        let Some(count) = recorded(name).and_then(|path| agrees(&path)) else { continue };
        println!("{name}: {count} samples");
        assert!(count >= least, "{name}: {count}");
    }
}

#[test]
fn goldens_of_perf_hold_where_perf_itself_is_not_installed() {
    let cases = [
        ("quipper-perf.data.weight_struct", "quipper/perf.data.weight_struct"),
        ("akshay-numatop-perf.data", "akshay-numatop/perf.data"),
    ];
    for (golden, name) in cases {
        let golden = recorded(&format!("perfdata/golden/{golden}.script.txt"));
        let (Some(golden), Some(path)) = (golden, recorded(&format!("perfdata/{name}"))) else {
            return;
        };
        let said = std::fs::read_to_string(golden).unwrap();
        let own = samples(&path, |sample, format, _| {
            let (pid, tid) = sample.task.unwrap();
            let time = sample.time.unwrap() / 1000;
            let at = format!("{pid}/{tid} {}.{:06}:", time / 1_000_000, time % 1_000_000);
            let (_, rest) = line(sample, format, Kind { period: Some(1), ..Kind::default() })
                .split_once(": 1 ")
                .map_or((String::new(), String::new()), |(a, b)| (a.into(), b.into()));
            (at, rest)
        });
        assert_eq!(own.len(), said.lines().count());
        for ((at, rest), said) in own.iter().zip(said.lines()) {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                said.contains(at.as_str()) && said.ends_with(rest.as_str()),
                "{at} {rest}\n{said}"
            );
        }
    }
}

#[test]
fn call_chains_are_read_as_perf_script_reads_them() {
    let Some(path) = recorded("perfdata/quipper/perf.data.callgraph-3.8") else { return };
    let arguments = ["script", "-i", path.to_str().unwrap(), "-F", "ip"];
    let Some(said) = perf(&arguments) else { return };
    // Marks of context are among the addresses, from −4095 on.
    let own = samples(&path, |sample, _, _| {
        let chain = sample.callchain.unwrap_or_default();
        chain.iter().filter(|ip| *ip < 0xffff_ffff_ffff_f000).collect::<Vec<_>>()
    })
    .concat();
    let said = said.split_whitespace().map(|ip| u64::from_str_radix(ip, 16).unwrap());
    let said: Vec<u64> = said.collect();
    assert_eq!(own.len(), said.len());
    for (own, said) in own.iter().zip(&said) {
        // Where perf knows the file it counts from its begin, in whole pages.
        assert!(own == said || *own < 1 << 63 && own % 4096 == said % 4096, "{own:x} {said:x}");
    }
    let same = own.iter().zip(&said).filter(|(own, said)| own == said).count();
    assert!(same > own.len() / 2, "{same} of {}", own.len());
}

#[test]
fn texts_of_sources_are_those_that_perf_prints() {
    let Some(intel) = recorded("text/perf/intel-memloads-data_src-weight.txt") else { return };
    let Some(amd) = recorded("text/perf/amd-ibs-data_src.txt") else { return };
    let mut compared = 0;
    for path in [intel, amd] {
        for text in std::fs::read_to_string(path).unwrap().lines() {
            let Some((raw, said)) = text.trim_start().split_once(' ') else { continue };
            let Ok(raw) = u64::from_str_radix(raw, 16) else { continue };
            if !said.starts_with("|OP") || said.contains("...") {
                continue;
            }
            // A weight may follow, and blanks before N/A are of one version only.
            let said = said.split_once("|BLK").map_or(said, |(before, _)| before);
            let source = DataSource(raw);
            let told = [source.to_string(), text_of_6_1(source)].map(|told| {
                told.split_once("|BLK").map_or(String::new(), |(before, _)| before.to_owned())
            });
            assert!(told.iter().any(|told| told == said), "{raw:x}: {said}\n{told:?}");
            compared += 1;
        }
    }
    assert!(compared >= 25, "{compared}");
}

/// All evidence of a recording.
fn evidence(path: &Path) -> (Recording, Vec<Evidence>) {
    let (mut recording, mut out) = (Recording::open(path).unwrap(), Vec::new());
    while recording.next(&mut out) {}
    (recording, out)
}

#[test]
fn a_recording_of_loads_tells_what_it_says_of_machine_mappings_and_samples() {
    let Some(path) = recorded("perfdata/quipper/perf.data.weight_struct") else { return };
    let (recording, evidence) = evidence(&path);
    let about = recording.about();
    assert_eq!(about.node_count, Some(2));
    let nodes = [0, 27, 28, 56, 83, 84].map(|cpu| about.nodes.of_cpu(cpu));
    assert_eq!(nodes, [0, 0, 1, 0, 0, 1].map(Some));
    let kinds: Vec<Kind> = recording.events().map(|(_, kind, _)| kind).collect();
    let loads = (Population::Loads, Timing::Use, Some(10_009));
    assert_eq!((kinds[0].population, kinds[0].timing, kinds[0].period), loads);
    let names: Vec<_> = recording.events().filter_map(|(_, _, name)| name).collect();
    assert!(names[0].starts_with("MEM_TRANS_RETIRED.LOAD_LATENCY"), "{names:?}");
    let tally = recording.tally();
    assert_eq!((tally.accesses, tally.broken, tally.unidentified, tally.late), (14, 0, 0, 0));
    let accesses: Vec<_> = evidence
        .iter()
        .filter_map(|e| if let Evidence::Access(access) = e { Some(access) } else { None })
        .collect();
    assert_eq!(accesses.len(), 14);
    assert_eq!(accesses.iter().filter_map(|a| a.latency).sum::<u64>(), 1725);
    assert!(accesses.iter().all(|a| a.cpu_node.is_some() && a.page_node.is_none()));
    assert_eq!(accesses.iter().filter(|a| a.tgid == Some(Tgid(0))).count(), 2, "the idle task");
    let lists = evidence.iter().take_while(|e| matches!(e, Evidence::Residency(_))).count();
    let lives = evidence.iter().filter(|e| matches!(e, Evidence::Lifecycle(_))).count();
    println!("{lists} lists, {lives} events, {tally:?}");
    assert!(lists > 100 && lives > 100);
    let list = |e: &Evidence| match e {
        Evidence::Residency(list) => list.maps.as_ref().map_or(0, |maps| maps.len()),
        _ => 0,
    };
    let later = evidence.iter().skip(lists).map(list);
    assert_eq!(later.max(), Some(0), "what there was before comes first");
}

#[test]
fn a_sample_without_cpu_has_no_node_and_its_own_period() {
    let Some(path) = recorded("perfdata/akshay-numatop/perf.data") else { return };
    let (recording, evidence) = evidence(&path);
    assert_eq!(recording.about().node_count, Some(4));
    let accesses: Vec<_> = evidence
        .iter()
        .filter_map(|e| if let Evidence::Access(access) = e { Some(access) } else { None })
        .collect();
    assert_eq!(accesses.len(), 14);
    assert!(accesses.iter().all(|a| a.cpu.is_none() && a.cpu_node.is_none()));
    assert!(accesses.iter().all(|a| a.period.is_some()));
    let slow: Vec<_> = accesses.iter().filter(|a| a.latency > Some(100)).collect();
    assert_eq!((slow.len(), slow[0].latency, slow[0].locked), (1, Some(519), Some(true)));
    let exec =
        |e: &&Evidence| matches!(e, Evidence::Lifecycle(Lifecycle { change: Change::Exec, .. }));
    assert_eq!(evidence.iter().filter(exec).count(), 1, "perf became ls");
}

#[test]
fn a_mapping_over_a_live_one_is_told_after_it() {
    let Some(path) = recorded("perfdata/quipper/perf.data.remmap-3.2") else { return };
    let (recording, evidence) = evidence(&path);
    assert_eq!(recording.tally().broken, 0);
    let told: Vec<(Extent, Option<&str>)> = evidence
        .iter()
        .filter_map(|e| match e {
            Evidence::Lifecycle(Lifecycle { change: Change::Vma { extent, path, .. }, .. }) => {
                Some((*extent, path.as_deref()))
            }
            _ => None,
        })
        .collect();
    let over = told.iter().enumerate().filter(|(index, (extent, path))| {
        let before = told.iter().take(*index);
        before.clone().any(|(other, was)| other.overlaps(*extent) && was != path)
    });
    println!("{} mappings, {} over others", told.len(), over.clone().count());
    assert!(over.count() > 0, "{told:?}");
}

#[test]
fn a_stream_with_features_of_a_newer_perf_is_read_whole() {
    let Some(path) = recorded("perfdata/quipper/perf.data.piped.header_features_aligned-6.12")
    else {
        return;
    };
    let count = samples(&path, |sample, _, _| assert!(sample.ip.is_some())).len();
    let (recording, _) = evidence(&path);
    assert!(count > 0);
    assert!(recording.about().hostname.is_some() && recording.about().release.is_some());
    assert_eq!((recording.tally().other_samples, recording.tally().broken), (count as u64, 0));
}

/// Records minor faults of a program into a file of each form, and compares each with perf.
#[test]
fn recordings_that_perf_makes_here_are_read_as_perf_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let event = ["-e", "minor-faults", "-d", "--phys-data", "--data-page-size", "-W", "-c", "1"];
    let program = ["--", "/bin/sh", "-c", "ls / >/dev/null; true"];
    for (name, more) in [("file", &[][..]), ("packed", &["-z"]), ("stream", &[])] {
        let path = path(name);
        let (to, into) = match name {
            "stream" => ("-", std::fs::File::create(&path).unwrap().into()),
            _ => (path.to_str().unwrap(), std::process::Stdio::null()),
        };
        let made = Command::new("perf")
            .args(["record", "-q", "-o", to])
            .args(event)
            .args(more)
            .args(program)
            .stdout(into)
            .stderr(std::process::Stdio::null())
            .status();
        if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
            println!("skipped: perf record ({name}): {made:?}");
            continue;
        }
        let count = agrees(&path).unwrap();
        let (recording, evidence) = evidence(&path);
        let tally = recording.tally();
        println!("{name}: {count} samples, {tally:?}");
        assert!(count > 50, "{name}: {count}");
        assert_eq!((tally.accesses, tally.broken, tally.late), (count as u64, 0, 0), "{name}");
        let faults = evidence.iter().filter_map(|e| match e {
            Evidence::Access(access) => Some(access),
            _ => None,
        });
        let framed = faults.filter(|a| a.frame.is_some() && a.page_size.is_some());
        assert!(framed.clone().count() > 20, "{name}");
        assert!(framed.clone().all(|a| a.population == Population::Faults && a.latency.is_none()));
    }
}

#[test]
fn ticks_of_a_clock_are_no_accesses_although_they_were_asked_for_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clock");
    let busy = ["--", "/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"];
    let to = path.to_str().unwrap();
    if perf(&[&["record", "-q", "-e", "cpu-clock", "-d", "-o", to], &busy[..]].concat()).is_none() {
        return;
    }
    if !path.exists() {
        println!("skipped: perf record: no clock event here");
        return;
    }
    let (recording, evidence) = evidence(&path);
    let tally = recording.tally();
    assert!(tally.accesses == 0 && tally.other_samples > 0, "{tally:?}");
    assert!(!evidence.iter().any(|e| matches!(e, Evidence::Access(_))));
}

#[test]
fn what_a_small_ring_loses_is_counted_once_whoever_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lost");
    let to = path.to_str().unwrap();
    let busy = ["--", "/bin/sh", "-c", "dd if=/dev/zero of=/dev/null bs=64M count=8 2>/dev/null"];
    let event = ["record", "-q", "-m", "1", "-e", "page-faults", "-c", "1", "-d", "-o", to];
    let Some(_) = perf(&[&event[..], &busy].concat()) else { return };
    let Some(dump) = perf(&["report", "-D", "-i", to]).filter(|_| path.exists()) else { return };
    let sum = |record: &str, before: &str| -> u64 {
        let told = dump.lines().filter(|line| line.contains(record));
        told.filter_map(|line| line.rsplit_once(before)?.1.trim().parse::<u64>().ok()).sum()
    };
    let (kernel, perf) = (sum("PERF_RECORD_LOST:", "lost:"), sum("PERF_RECORD_LOST_SAMPLES:", ":"));
    let (recording, _) = evidence(&path);
    println!("lost: {kernel} as the kernel told, {perf} as perf counted");
    assert_eq!(recording.tally().lost, kernel.max(perf));
}
