//! Traces of Arm's SPE inside recordings. Nobody has given one away: these are made by the form that perf writes
//! (`tools/perf/util/auxtrace.h`, `arm-spe.h`, `tsc.h`).

use std::io::Cursor;

use memprov_ledger::evidence::{Access, Evidence, Gap, Population, Served, Stream, Timing};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

use super::super::{Recording, Tally};
use super::hostile::{file, mapping, record, trailer, u32s, u64s};

/// PMU 4 is `arm_spe_0`; two CPUs, the second a core that has no numbers for sources; a timer of 25 MHz.
fn about() -> Vec<u8> {
    let name = b"arm_spe_0\0\0\0";
    let pmus = [u64s(&[16]), u32s(&[1, 4, 12]), name.to_vec()].concat();
    let cpu = |cpu, midr| u64s(&[0x1010_1010_1010_1010, cpu, 3, midr, 4, 1024]);
    let cpus = [cpu(3, 0x413f_d0c1), cpu(4, 0x411f_d801)].concat();
    let info = [u32s(&[4, 0]), u64s(&[2, 4, 4, 2]), cpus].concat();
    let conversion = [u64s(&[0, 40, 1_000_000, 0, 0]), vec![1, 0, 0, 0, 0, 0, 0, 0]].concat();
    [record(80, 0, &pmus), record(70, 0, &info), record(79, 0, &conversion)].concat()
}

fn comm(pid: u32, tid: u32) -> Vec<u8> {
    record(3, 0, &[u32s(&[pid, tid]), b"mix\0\0\0\0\0".to_vec(), trailer(pid, 0)].concat())
}

fn switch(pid: u32, time: u64) -> Vec<u8> {
    record(14, 0, &trailer(pid, time))
}

/// A load of an address with its source: 40 cycles of it, at a time of the timer.
fn load(address: u64, source: u8, context: Option<u32>, time: u64) -> Vec<u8> {
    let mut bytes = vec![0x49, 0x00, 0x98, 40, 0, 0x43, source, 0xb2];
    bytes.extend(address.to_le_bytes());
    if let Some(thread) = context {
        bytes.push(0x64);
        bytes.extend(thread.to_le_bytes());
    }
    bytes.push(0x71);
    bytes.extend(time.to_le_bytes());
    bytes
}

fn piece(tid: u32, cpu: u32, trace: &[u8]) -> Vec<u8> {
    let head = [u64s(&[trace.len() as u64, 0, 0]), u32s(&[0, tid, cpu, 0])].concat();
    [record(71, 0, &head), trace.to_vec()].concat()
}

const NOBODY: u32 = u32::MAX;

fn read(records: &[Vec<u8>]) -> (Vec<Evidence>, Tally) {
    let bytes = file(&records.concat());
    let length = bytes.len() as u64;
    let mut recording = Recording::read(Cursor::new(bytes), length).unwrap();
    let mut all = Vec::new();
    while recording.next(&mut all) {}
    (all, recording.tally)
}

fn accesses(all: &[Evidence]) -> Vec<&Access> {
    fn access(evidence: &Evidence) -> Option<&Access> {
        if let Evidence::Access(access) = evidence { Some(access) } else { None }
    }
    all.iter().filter_map(access).collect()
}

#[test]
fn operations_of_a_trace_are_accesses_at_their_times_of_whoever_ran() {
    let round = record(68, 0, &[]);
    let trace = [
        // The timer's 100 are 1,004,000 ns of the records.
        load(0x5000, 0xd, Some(9), 100),
        load(0x6000, 0xe, None, 200),
        // Not an access: a branch.
        vec![0x4a, 0x00, 0x71, 0, 1, 0, 0, 0, 0, 0, 0],
        load(0x7000, 0x0, None, 300),
    ];
    let records = [
        about(),
        comm(7, 7),
        comm(7, 9),
        mapping(7, 1_002_000, 0x5000, 0x3000),
        switch(7, 1_001_000),
        switch(8, 1_010_000),
        round.clone(),
        round,
        piece(NOBODY, 3, &trace.concat()),
    ];
    let (all, tally) = read(&records);
    assert_eq!((tally.broken, tally.operations, tally.accesses, tally.late), (0, 4, 3, 0));
    let accesses = accesses(&all);
    let told: Vec<_> = accesses.iter().map(|a| (a.when.end.0, a.tgid, a.tid)).collect();
    let task = |pid, tid| (Some(Tgid(pid)), Some(tid));
    let expected = [(1_004_000, task(7, 9)), (1_008_000, task(7, 7)), (1_012_000, task(8, 8))];
    assert_eq!(told, expected.map(|(when, (pid, tid))| (when, pid, tid)));
    let first = accesses[0];
    assert_eq!((first.address, first.latency, first.cpu), (Some(0x5000), Some(40), Some(3)));
    assert_eq!((first.population, first.timing), (Population::Operations, Timing::Whole));
    assert_eq!(first.period, Some(1000));
    let served = [Served::RemoteCache { hops: None }, Served::Local, Served::Level1];
    assert_eq!(accesses.iter().map(|a| a.served).collect::<Vec<_>>(), served);
    assert!(
        matches!(all.iter().position(|e| matches!(e, Evidence::Lifecycle(_))), Some(at) if at < 3)
    );
}

#[test]
fn another_core_has_other_numbers_and_a_thread_alone_is_told_by_its_piece() {
    let records = [about(), comm(7, 9), piece(9, 4, &load(0x5000, 0xd, None, 100))];
    let (all, _) = read(&records);
    let accesses = accesses(&all);
    assert_eq!((accesses[0].tgid, accesses[0].tid), (Some(Tgid(7)), Some(9)));
    assert_eq!(accesses[0].served, Served::NotAvailable);
    let unknown = read(&[about(), piece(5, NOBODY, &load(0x5000, 0, None, 100))]).0;
    let Some(Evidence::Access(access)) = unknown.iter().find(|e| matches!(e, Evidence::Access(_)))
    else {
        panic!("{unknown:?}")
    };
    assert_eq!((access.tgid, access.tid, access.cpu), (None, Some(5), None));
}

#[test]
fn what_has_no_time_or_is_broken_is_counted_as_lost_and_costs_itself() {
    let timeless = [0x49, 0x00, 0xb2, 0, 0x50, 0, 0, 0, 0, 0, 0, 0x01];
    let broken = [&[0x49, 0x00, 0xff][..], &load(0x5000, 0, None, 50)].concat();
    let trace = [&timeless[..], &broken, &load(0x5000, 0, None, 100), &[0x49]].concat();
    let truncated = record(11, 0, &[u64s(&[0, 64, 1]), trailer(7, 1_005_000)].concat());
    let (all, tally) = read(&[about(), truncated, piece(NOBODY, 3, &trace)]);
    assert_eq!((tally.operations, tally.accesses), (4, 1));
    assert_eq!((tally.timeless, tally.broken), (1, 2));
    assert!(tally.places.iter().all(|(_, error)| error.to_string().contains("hardware trace")));
    // One timeless and one broken before the load, an unknown number that did not fit, one broken behind the load.
    assert_eq!(gaps(&all), [(2, 0, 1_004_000), (0, 0, 1_005_000), (1, 1_004_000, 1_005_000)]);
    assert_eq!(accesses(&all)[0].when.end, MonoTime(1_004_000));
}

/// How many samples are lost, since and until when.
fn gaps(all: &[Evidence]) -> Vec<(u64, u64, u64)> {
    let gap = |evidence: &Evidence| match evidence {
        Evidence::Gap(Gap { stream: Stream::Accesses, lost, when, .. }) => {
            Some((*lost, when.begin.0, when.end.0))
        }
        _ => None,
    };
    all.iter().filter_map(gap).collect()
}

#[test]
fn what_is_lost_lies_between_what_the_same_cpu_tells_before_and_after() {
    let first = piece(NOBODY, 3, &load(0x5000, 0, None, 100));
    let other = piece(NOBODY, 4, &load(0x5000, 0, None, 900));
    let broken = [&[0x49, 0x00, 0xff][..], &load(0x5000, 0, None, 200)].concat();
    let second = piece(NOBODY, 3, &[broken, load(0x5000, 0, None, 300)].concat());
    let partial = record(11, 0, &[u64s(&[0, 64, 4]), trailer(7, 1_005_000)].concat());
    let collided = record(11, 0, &[u64s(&[0, 64, 8]), trailer(7, 1_006_000)].concat());
    let whole = record(11, 0, &[u64s(&[0, 64, 0]), trailer(7, 1_007_000)].concat());
    let (all, tally) = read(&[about(), partial, collided, whole, first, other, second]);
    assert_eq!((tally.operations, tally.broken), (4, 1));
    assert_eq!(
        gaps(&all),
        [(0, 0, 1_005_000), (0, 1_005_000, 1_006_000), (1, 1_004_000, 1_012_000)]
    );
}

#[test]
fn what_a_piece_loses_before_its_first_time_can_be_older_than_the_rounds_that_ended() {
    let round = record(68, 0, &[]);
    let broken = [&[0x49, 0x00, 0xff][..], &load(0x5000, 0, None, 50)].concat();
    let trace = [broken, load(0x5000, 0, None, 100)].concat();
    for cpu in [3, NOBODY] {
        let (at, later) = (switch(7, 1_005_000), switch(7, 1_020_000));
        let records = [
            about(),
            at,
            round.clone(),
            later,
            round.clone(),
            round.clone(),
            piece(7, cpu, &trace),
        ];
        let (all, tally) = read(&records);
        assert_eq!((tally.broken, tally.accesses), (1, 1));
        assert_eq!(gaps(&all), [(1, 0, 1_004_000)], "CPU {cpu}");
    }
}

#[test]
fn a_record_without_a_time_lies_behind_the_rounds_before_it_where_traces_keep_all_waiting() {
    let round = record(68, 0, &[]);
    // Too short for what its event asks for.
    let broken = record(9, 0, &u64s(&[1]));
    let (at, later) = (switch(7, 1_001_000), switch(7, 1_002_000));
    let records = [about(), at, round.clone(), later, round, broken];
    let (all, tally) = read(&records);
    assert_eq!(tally.broken, 1);
    assert_eq!(gaps(&all), [(1, 1_001_000, 1_002_000)]);
}

#[test]
fn a_piece_too_long_to_be_read_is_a_gap_that_nobody_counted() {
    let bytes = (64 << 20) + 8;
    let long = piece(NOBODY, 3, &vec![0; bytes]);
    let before = piece(NOBODY, 3, &load(0x5000, 0, None, 100));
    let after = piece(NOBODY, 4, &load(0x5000, 0, None, 200));
    let (all, tally) = read(&[about(), before, after, long]);
    assert_eq!((tally.passed, tally.accesses), (bytes as u64, 2));
    assert_eq!(gaps(&all), [(0, 1_004_000, 1_008_000)]);
}

#[test]
fn traces_of_other_kinds_are_passed_over_and_a_piece_that_is_cut_ends_the_recording() {
    let other = record(70, 0, &[u32s(&[1, 0]), u64s(&[0; 4])].concat());
    let (_, tally) = read(&[other, piece(NOBODY, 3, &[0xff; 64])]);
    assert_eq!((tally.passed, tally.operations, tally.broken), (64, 0, 0));
    let mut cut = piece(NOBODY, 3, &load(0x5000, 0, None, 100));
    cut.pop();
    let (all, tally) = read(&[about(), cut]);
    assert!(tally.stopped.is_some() && accesses(&all).is_empty(), "{tally:?}");
}
