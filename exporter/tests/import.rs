//! Recordings of perf on other machines: what memprov makes of them. They lie in `../shared/data`; without it the tests
//! say so.

mod receiver;

use std::collections::BTreeMap;
use std::io::{PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memprov::commands::Engine;
use memprov::config::{Config, Protocol};
use memprov::engine::Local;
use memprov::fuse::Fuser;
use memprov::import::Import;
use memprov::report::Report;
use memprov::trace::Line;
use memprov_ledger::evidence::{Evidence, Stream};
use memprov_ledger::resolution::Resolution;
use rustix::process::{Pid, Signal, kill_process};

fn recorded(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/perfdata").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {}", path.display());
    None
}

fn text(name: &str) -> Option<String> {
    Some(std::fs::read_to_string(recorded(name)?).expect("it is text"))
}

/// Applies a recording line by line. Of each access to a user's address: the address, and the object that its owner is
/// made of.
fn owners(path: &Path) -> Vec<(u64, String)> {
    let import = Import::open(path).expect("it opens");
    let mut fuser = Fuser::new(import.header().clone(), "import", Duration::from_secs(60));
    let mut told = Vec::new();
    for line in import {
        let access = match &line {
            Line::Evidence(Evidence::Access(access)) => Some(access.clone()),
            _ => None,
        };
        drop(fuser.apply(line));
        let Some(access) = access.filter(|access| !access.in_kernel()) else { continue };
        let (Some(tgid), Some(address)) = (access.tgid, access.address) else { continue };
        let ledger = fuser.ledger();
        let object = match ledger.owner_of(tgid, address, access.when) {
            Resolution::Owned(id) => {
                let mut pieces = ledger.space(tgid).into_iter().flat_map(|space| space.pieces());
                let piece = pieces.find(|p| p.id == id && p.extent.contains(address));
                let piece = piece.expect("it is live");
                let path = piece.origin.as_ref().and_then(|origin| origin.path.as_deref());
                path.map_or("anon", |path| path.rsplit('/').next().unwrap_or(path)).to_owned()
            }
            other => format!("{other:?}"),
        };
        told.push((address, object));
    }
    told
}

/// The column "Data Object" of `perf mem report`, by address.
fn objects(golden: &str) -> Vec<(u64, String)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Level, symbol and object of the code have blanks; the data's symbol is the second address.
        let mut hex = words.iter().enumerate().filter(|(_, word)| word.starts_with("0x"));
        let (at, word) = hex.nth(1)?;
        let address = u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()?;
        Some((address, (*words.get(at + 1)?).to_owned()))
    };
    golden.lines().filter(|line| line.contains('%')).filter_map(row).collect()
}

#[test]
fn an_address_belongs_to_the_object_that_perf_mem_report_names() {
    let cases = [
        ("quipper/perf.data.weight_struct", "quipper-perf.data.weight_struct", 5),
        ("akshay-numatop/perf.data", "akshay-numatop-perf.data", 2),
    ];
    for (name, golden, expected) in cases {
        let (Some(path), Some(golden)) =
            (recorded(name), text(&format!("golden/{golden}.memreport.txt")))
        else {
            return;
        };
        let named: Vec<(u64, String)> =
            objects(&golden).into_iter().filter(|(_, object)| object != "[unknown]").collect();
        assert_eq!(named.len(), expected, "{named:?}");
        let own = owners(&path);
        println!("{name}: {own:?}");
        for named in named {
            assert!(own.contains(&named), "{named:?} is not in {own:?}");
        }
    }
}

/// The reports of a recording, or of a trace of it.
fn reports(read: impl FnOnce(&mut dyn FnMut(&Report))) -> Vec<Report> {
    let mut all = Vec::new();
    read(&mut |report| all.push(report.clone()));
    all
}

#[test]
fn a_trace_of_a_recording_replays_to_the_same_report() {
    let Some(path) = recorded("quipper/perf.data.weight_struct") else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.jsonl.zst");
    Local.convert(&path, &trace, false).unwrap();
    let imported = reports(|all| {
        let mut sink = |report: &Report| {
            all(report);
            Ok(())
        };
        Local.import(&path, None, &mut sink).unwrap();
    });
    let replayed = reports(|all| {
        let mut sink = |report: &Report| {
            all(report);
            Ok(())
        };
        Local.replay(&trace, None, &mut sink).unwrap();
    });
    let [imported, replayed] = [&imported[0], &replayed[0]];
    assert!(imported.processes.len() > 100);
    assert_eq!((imported.source.as_str(), imported.host.nodes), ("import", Some(2)));
    assert_eq!(*replayed, Report { source: "replay".to_owned(), ..imported.clone() });
    // Nobody counts what no recording of perf holds.
    assert!(!imported.lost.contains_key(Stream::Stacks.id()));
    assert_eq!(imported.lost.get(Stream::Accesses.id()), Some(&0));
}

#[test]
fn every_access_of_a_recording_is_in_the_report_as_somebodys_or_with_the_reason() {
    let cases =
        [("quipper/perf.data.weight_struct", 1725, 8), ("akshay-numatop/perf.data", 621, 12)];
    for (name, cycles, kernel) in cases {
        let Some(path) = recorded(name) else { return };
        let report = reports(|all| {
            let mut sink = |report: &Report| {
                all(report);
                Ok(())
            };
            Local.import(&path, None, &mut sink).unwrap();
        })
        .remove(0);
        let told = report.accesses.as_ref().expect("there are samples");
        let loads = &told.totals["loads"];
        println!("{name}: {:?}", loads.samples);
        assert_eq!(loads.samples.values().sum::<u64>(), 14, "{name}");
        assert_eq!(loads.samples.get("kernel"), Some(&kernel), "{name}");
        assert_eq!(loads.samples.get("attributed"), Some(&(14 - kernel)), "{name}");
        let rows = told.owners.iter().flat_map(|row| row.sums.samples.values());
        assert_eq!(rows.sum::<u64>(), 14, "{name}: rows add up to the total");
        println!("{cycles} {:?}", loads.latency.as_ref().map(|latency| latency.sum));
    }
}

#[test]
fn a_redacted_trace_of_a_recording_names_no_path_and_has_as_many_accesses() {
    let Some(path) = recorded("akshay-numatop/perf.data") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [plain, redacted] = ["plain.jsonl", "redacted.jsonl"].map(|name| folder.path().join(name));
    Local.convert(&path, &plain, false).unwrap();
    Local.convert(&path, &redacted, true).unwrap();
    let [plain, redacted] = [plain, redacted].map(|path| std::fs::read_to_string(path).unwrap());
    let accesses = |text: &str| text.matches("{\"kind\":\"access\"").count();
    assert_eq!((accesses(&plain), accesses(&redacted)), (14, 14));
    assert!(plain.contains("x86_64-linux-gnu") && !redacted.contains("x86_64-linux-gnu"));
    assert!(plain.contains("ffff881817d63e02") && !redacted.contains("ffff881817d63e02"));
}

#[test]
fn a_file_that_is_no_recording_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no.data");
    std::fs::write(&path, "no recording at all").unwrap();
    let failure = Local.import(&path, None, &mut |_| Ok(())).unwrap_err();
    let line = &failure.lines[0];
    assert!(line.contains("no.data") && line.contains("this is no recording of perf"), "{line}");
    let failure = Local.import(&folder.path().join("gone"), None, &mut |_| Ok(())).unwrap_err();
    assert!(failure.lines[0].starts_with("open "), "{:?}", failure.lines);
}

#[test]
fn what_a_cut_recording_lost_is_told_by_its_report_and_by_its_trace() {
    let Some(path) = recorded("akshay-numatop/perf.data") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (cut, trace) = (folder.path().join("cut"), folder.path().join("t.jsonl"));
    std::fs::write(&cut, &std::fs::read(path).unwrap()[..15_000]).unwrap();
    let mut imported = Vec::new();
    let mut sink = |report: &Report| {
        imported.push(report.clone());
        Ok(())
    };
    Local.import(&cut, None, &mut sink).unwrap_err();
    Local.convert(&cut, &trace, false).unwrap_err();
    let replayed = reports(|all| {
        let mut sink = |report: &Report| {
            all(report);
            Ok(())
        };
        Local.replay(&trace, None, &mut sink).unwrap();
    });
    for report in [imported.last().unwrap(), replayed.last().unwrap()] {
        assert_eq!(report.lost.get(Stream::Accesses.id()), None, "nobody counted how many");
        assert_eq!(report.lost.get(Stream::Sideband.id()), None);
        assert!(report.processes.iter().all(|process| !process.lossless));
    }
}

#[test]
fn a_trace_never_takes_the_place_of_its_recording() {
    let Some(path) = recorded("akshay-numatop/perf.data") else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("perf.data");
    std::fs::copy(&path, &copy).unwrap();
    let failure = Local.convert(&copy, &copy, false).unwrap_err();
    assert!(failure.lines[0].contains("the recording itself"), "{:?}", failure.lines);
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&path).unwrap());
}

/// What perf found has no start that it tells, and keeps the one that a fork told over another program.
#[test]
fn a_start_that_nobody_told_is_unknown_and_a_process_has_one() {
    let Some(path) = recorded("quipper/perf.data.weight_struct") else { return };
    let report = reports(|all| {
        let mut sink = |report: &Report| {
            all(report);
            Ok(())
        };
        Local.import(&path, None, &mut sink).unwrap();
    })
    .remove(0);
    let started = report.processes.iter().filter(|process| process.start_time.is_some()).count();
    assert!(report.processes.iter().all(|process| process.start_time != Some(0)));
    assert!(started > 0 && started < report.processes.len(), "{started}");
    let pids: std::collections::BTreeSet<u32> = report.processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids.len(), report.processes.len(), "no process is there twice");
}

/// Faults of a program, recorded here with the clock of the wall beside them; says so where perf is not installed.
fn recorded_here(folder: &Path) -> Option<PathBuf> {
    let path = folder.join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-k", "mono", "-e", "page-faults", "-c", "1", "-d", "-o"])
        .arg(&path);
    let program = "i=0; while [ $i -lt 20 ]; do /bin/true; sleep 0.02; i=$((i + 1)); done";
    match perf.args(["--", "sh", "-c", program]).output() {
        Ok(done) if done.status.success() => Some(path),
        Ok(done) => {
            println!("skipped: perf record: {}", String::from_utf8_lossy(&done.stderr));
            None
        }
        Err(error) => {
            println!("skipped: perf: {error}");
            None
        }
    }
}

fn sent_to(port: u16) -> Config {
    let mut config = Config::default();
    config.export.endpoint = format!("http://127.0.0.1:{port}");
    config.export.protocol = Protocol::HttpProtobuf;
    config.export.compression = memprov::config::Compression::None;
    config.export.timeout = Duration::from_millis(500);
    config
}

#[test]
fn every_pane_of_a_recording_arrives_at_the_times_of_the_recording() {
    let nanos = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos());
    let folder = tempfile::tempdir().unwrap();
    let begin = nanos().unwrap();
    let Some(path) = recorded_here(folder.path()) else { return };
    let end = nanos().unwrap();
    let receiver = receiver::Receiver::start();
    let interval = Some(Duration::from_millis(100));
    let stats = Local.send(&path, interval, &sent_to(receiver.port)).unwrap();
    let points = receiver.points();
    assert_eq!(stats.delivered_points, points.len() as u64);
    // All of them end a millisecond after the last pane.
    assert!(points.iter().all(|point| (begin..=end + 1_000_000).contains(&point.time)));
    // Each counts on from the same start, and what it counts never falls.
    let mut counted = BTreeMap::<&str, Vec<u64>>::new();
    let samples = points.iter().filter(|point| point.metric == "memprov.access.samples");
    for point in samples {
        let n = point.told["asInt"].as_str().and_then(|n| n.parse::<u64>().ok());
        counted.entry(&point.series).or_default().extend(n);
    }
    assert!(counted.values().any(|told| told.len() >= 3), "{counted:?}");
    assert!(counted.values().all(|told| told.is_sorted()), "{counted:?}");
    let all: u64 = counted.values().filter_map(|told| told.last()).sum();
    assert_eq!(all, Import::open(&path).map(sampled).unwrap());
}

fn sampled(mut import: Import) -> u64 {
    import.by_ref().for_each(drop);
    import.tally().accesses
}

#[test]
fn a_recording_that_nobody_takes_or_that_has_no_wall_time_is_a_failure_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(path) = recorded_here(folder.path()) {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failure = Local.send(&path, None, &sent_to(closed.port())).unwrap_err();
        let line = &failure.lines[0];
        assert!(line.contains("no success within 1.5s"), "{line}");
    }
    let Some(path) = recorded("akshay-numatop/perf.data") else { return };
    let failure = Local.send(&path, None, &sent_to(1)).unwrap_err();
    assert!(failure.lines[0].contains("no wall time"), "{:?}", failure.lines);
}

/// What these tests cannot do without.
const NEEDED: &str = "the kernel and the program do what they are asked to";

/// The program as it reads `from`.
fn reading_of(from: impl Into<Stdio>) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_memprov"));
    program.args(["import", "-", "--output", "json"]).stdin(from);
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect(NEEDED)
}

/// The program as it reads a pipe, and the other end.
fn reading() -> (Child, PipeWriter) {
    let (read, write) = std::io::pipe().expect(NEEDED);
    (reading_of(read), write)
}

/// Sends Ctrl-C once all that was written is read; what the program said then, and its status.
fn interrupted(mut child: Child, write: PipeWriter) -> (String, String, Option<i32>) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect(NEEDED)).expect(NEEDED);
    // The thread that reads begins once signals are handled.
    let begun = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect(NEEDED);
        threads.count() > 1 && rustix::io::ioctl_fionread(&write).expect(NEEDED) == 0
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !begun() {
        assert_eq!(child.try_wait().expect(NEEDED), None, "it ended before it was asked to");
        assert!(Instant::now() < deadline, "it never reads what was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, Signal::INT).expect(NEEDED);
    let done = child.wait_with_output().expect(NEEDED);
    drop(write);
    let text = |bytes| String::from_utf8(bytes).expect(NEEDED);
    (text(done.stdout), text(done.stderr), done.status.code())
}

#[test]
fn what_was_read_of_a_pipe_when_it_is_interrupted_is_told() {
    let (child, write) = reading();
    let (out, err, status) = interrupted(child, write);
    assert_eq!((out.as_str(), status), ("", Some(1)));
    assert!(err.starts_with("memprov: ended by a signal before the recording began\n"), "{err}");

    let name = "quipper/perf.data.piped.header_features_aligned-6.12";
    let Some(path) = recorded(name) else { return };
    let (child, mut write) = reading();
    write.write_all(&std::fs::read(&path).unwrap()).unwrap();
    let (out, err, status) = interrupted(child, write);
    let whole = reports(|all| {
        let mut sink = |report: &Report| {
            all(report);
            Ok(())
        };
        Local.import(&path, None, &mut sink).unwrap();
    });
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told, serde_json::to_value(&whole[0]).unwrap());
    assert!(err.contains("memprov: ended by a signal before the recording was"), "{err}");
    assert_eq!(status, Some(1));
}

/// A socket that is closed with something unread in it fails the read of the other end, behind all that was written.
#[test]
fn what_was_read_before_a_read_failed_is_told_with_the_reason() {
    let name = "quipper/perf.data.piped.header_features_aligned-6.12";
    let recorded = recorded(name).map(|path| std::fs::read(path).expect(NEEDED));
    let cases = [Some((Vec::new(), false)), recorded.map(|bytes| (bytes, true))];
    for (bytes, told) in cases.into_iter().flatten() {
        let (mut write, mut read) = UnixStream::pair().expect(NEEDED);
        read.write_all(b"unread").expect(NEEDED);
        let child = reading_of(OwnedFd::from(read));
        write.write_all(&bytes).expect(NEEDED);
        drop(write);
        let done = child.wait_with_output().expect(NEEDED);
        let err = String::from_utf8_lossy(&done.stderr);
        assert!(err.contains("read what comes through the pipe: Connection reset"), "{err}");
        assert_eq!((done.status.code(), done.stdout.is_empty()), (Some(1), !told), "{err}");
    }
}
