//! Recordings that nobody made: cut, changed and invented ones cost what is broken and no more.

use std::io::Cursor;

use memprov_ledger::evidence::{Access, Evidence, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use proptest::prelude::{any, prop_assert, proptest};

use super::super::{HeaderError, Recording, StreamError};
use crate::record::sample::{ADDR, CPU, DATA_SRC, IDENTIFIER, IP, PERIOD, TID, TIME, WEIGHT};

const TYPE: u64 = IDENTIFIER | IP | TID | TIME | ADDR | CPU | PERIOD | WEIGHT | DATA_SRC;

pub(super) fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

pub(super) fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

pub(super) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

/// A `perf_event_attr` of 64 bytes.
fn attribute(sample_type: u64) -> Vec<u8> {
    let all: u64 = 1 << 18;
    [u32s(&[4, 64]), u64s(&[0x1cd, 1000, sample_type, 0, all]), u32s(&[0, 0]), u64s(&[3])].concat()
}

/// A file with two events, ids 1 and 2, and these records.
pub(super) fn file(records: &[u8]) -> Vec<u8> {
    let head = 104;
    let (ids, attributes) = (head, head + 16);
    let data = attributes + 2 * 80;
    let mut file = b"PERFILE2".to_vec();
    file.extend(u64s(&[104, 80, attributes, 160, data, records.len() as u64, 0, 0, 0, 0, 0, 0]));
    file.extend(u64s(&[1, 2]));
    for id in 0..2 {
        file.extend(attribute(TYPE));
        file.extend(u64s(&[ids + 8 * id, 8]));
    }
    file.extend(records);
    file
}

#[derive(Clone, Copy)]
struct Told {
    id: u64,
    pid: u32,
    time: u64,
    address: u64,
    weight: u64,
}

const PLAIN: Told = Told { id: 1, pid: 7, time: 100, address: 0x5000, weight: 9 };

fn sample(told: Told) -> Vec<u8> {
    let Told { id, pid, time, address, weight } = told;
    let mut body = u64s(&[id, 0x40_0000]);
    body.extend(u32s(&[pid, pid]));
    body.extend(u64s(&[time, address]));
    body.extend(u32s(&[3, 0]));
    body.extend(u64s(&[1, weight, 0x68_100_142]));
    record(9, 2, &body)
}

/// A trailer of a record that is no sample.
pub(super) fn trailer(pid: u32, time: u64) -> Vec<u8> {
    [u32s(&[pid, pid]), u64s(&[time]), u32s(&[3, 0]), u64s(&[1])].concat()
}

pub(super) fn mapping(pid: u32, time: u64, address: u64, length: u64) -> Vec<u8> {
    let mut body = u32s(&[pid, pid]);
    body.extend(u64s(&[address, length, 0]));
    body.extend(u32s(&[8, 1]));
    body.extend(u64s(&[42, 0]));
    body.extend(u32s(&[5, 2]));
    body.extend(b"/bin/x\0\0");
    body.extend(trailer(pid, time));
    record(10, 2, &body)
}

type Read = (Recording<Cursor<Vec<u8>>>, Vec<Evidence>);

/// Reads a file of these bytes to its end.
fn read(bytes: &[u8]) -> Result<Read, HeaderError> {
    let mut recording = Recording::read(Cursor::new(bytes.to_vec()), bytes.len() as u64)?;
    let mut out = Vec::new();
    while recording.next(&mut out) {}
    Ok((recording, out))
}

fn accesses(evidence: &[Evidence]) -> Vec<&Access> {
    evidence
        .iter()
        .filter_map(|e| match e {
            Evidence::Access(access) => Some(access.as_ref()),
            _ => None,
        })
        .collect()
}

#[test]
fn odd_numbers_are_kept_as_they_are_or_told_as_absent() {
    let odd = [
        PLAIN,
        Told { pid: u32::MAX, ..PLAIN },
        Told { pid: 0, address: 0xffff_8818_17d6_3e02, ..PLAIN },
        Told { address: 0, ..PLAIN },
        Told { weight: 0, ..PLAIN },
        Told { weight: 100_000_000_000_000, ..PLAIN },
        Told { address: u64::MAX, ..PLAIN },
    ];
    let (recording, evidence) = read(&file(&odd.map(sample).concat())).unwrap();
    let read = accesses(&evidence);
    assert_eq!((read.len(), recording.tally().accesses, recording.tally().broken), (7, 7, 0));
    assert_eq!((read[1].tgid, read[2].tgid, read[2].in_kernel()), (None, Some(Tgid(0)), true));
    assert_eq!((read[3].address, read[4].latency), (None, None));
    assert_eq!((read[5].latency, read[6].in_kernel()), (Some(100_000_000_000_000), true));
}

#[test]
fn a_broken_record_costs_itself_and_its_place_is_told() {
    let mut short = sample(PLAIN);
    short.truncate(short.len() - 8);
    let size = u16::try_from(short.len()).unwrap();
    short[6..8].copy_from_slice(&size.to_le_bytes());
    let strange = sample(Told { id: 99, ..PLAIN });
    let records = [sample(PLAIN), short, strange, sample(PLAIN)].concat();
    let (recording, evidence) = read(&file(&records)).unwrap();
    let tally = recording.tally();
    assert_eq!((accesses(&evidence).len(), tally.broken, tally.unidentified), (2, 1, 1));
    let offset = 280 + sample(PLAIN).len() as u64;
    assert_eq!(tally.places[0].0, offset, "{:?}", tally.places);
    assert!(tally.stopped.is_none());
}

#[test]
fn behind_a_record_of_impossible_size_nothing_is_read_and_what_came_before_stays() {
    let bad = [9u32.to_le_bytes(), [0, 0, 3, 0]].concat();
    let records = [sample(PLAIN), bad, sample(PLAIN)].concat();
    let (recording, evidence) = read(&file(&records)).unwrap();
    assert_eq!(accesses(&evidence).len(), 1);
    let stopped = recording.tally().stopped.as_ref();
    assert!(matches!(stopped, Some(StreamError::Cut { size: 3, .. })), "{stopped:?}");
}

#[test]
fn time_that_runs_backwards_is_put_in_order_and_what_is_late_is_counted() {
    let round = record(68, 0, &[]);
    let at = |time| sample(Told { time, ..PLAIN });
    let records = [at(100), at(50), round.clone(), at(200), round.clone(), round.clone(), at(20)];
    let (recording, evidence) = read(&file(&records.concat())).unwrap();
    let times: Vec<u64> = accesses(&evidence).iter().map(|a| a.when.begin.0).collect();
    assert_eq!(times, [50, 100, 200, 20]);
    assert_eq!(recording.tally().late, 1);
}

#[test]
fn what_there_was_before_comes_first_and_what_is_lost_is_a_gap_since_that_cpu_spoke_last() {
    let mut lost = u64s(&[1, 17]);
    lost.extend(trailer(7, 150));
    let records = [
        mapping(7, 0, 0x1000, 0x2000),
        sample(PLAIN),
        mapping(7, 120, 0x9000, u64::MAX),
        record(2, 0, &lost),
    ];
    let (recording, evidence) = read(&file(&records.concat())).unwrap();
    let Some(Evidence::Residency(list)) = evidence.first() else { panic!("{evidence:?}") };
    assert_eq!((list.tgid, list.maps.as_ref().map(|maps| maps.len())), (Tgid(7), Some(1)));
    let gaps: Vec<_> = evidence
        .iter()
        .filter_map(|e| if let Evidence::Gap(gap) = e { Some(gap) } else { None })
        .collect();
    assert_eq!(gaps.len(), 2);
    assert_eq!((gaps[0].stream, gaps[0].lost), (Stream::Sideband, 0));
    assert_eq!((gaps[1].stream, gaps[1].lost), (Stream::Accesses, 17));
    assert_eq!((gaps[0].when.begin, gaps[0].when.end), (MonoTime(120), MonoTime(150)));
    assert_eq!(recording.tally().lost, 17);
}

#[test]
fn what_perf_counts_at_its_end_is_no_second_loss_and_can_be_of_any_time() {
    let lost = |kind, misc, count: &[u64], time, id| {
        let trailer = [u32s(&[7, 7]), u64s(&[time]), u32s(&[3, 0]), u64s(&[id])].concat();
        record(kind, misc, &[u64s(count), trailer].concat())
    };
    let at_its_end = |count, id| lost(13, 0, &[count], 0, id);
    let filtered = lost(13, 1 << 15, &[99], 0, 1);
    let heard = [sample(PLAIN), lost(2, 0, &[1, 17], 150, 1), lost(13, 0, &[2], 160, 1)].concat();
    let told = |counts: [u64; 2]| {
        let records = [&heard[..], &at_its_end(counts[0], 1), &at_its_end(counts[1], 2), &filtered];
        let (recording, evidence) = read(&file(&records.concat())).unwrap();
        let gap = |e: &Evidence| match e {
            Evidence::Gap(gap) => Some((gap.stream, gap.lost, gap.when.begin.0, gap.when.end.0)),
            _ => None,
        };
        (evidence.iter().filter_map(gap).collect::<Vec<_>>(), recording.tally().lost)
    };
    let of_the_kernel = [
        (Stream::Sideband, 0, 100, 150),
        (Stream::Accesses, 17, 100, 150),
        // Before the ring: no room would have kept them.
        (Stream::Accesses, 2, 150, 160),
    ];
    assert_eq!(told([12, 5]), (of_the_kernel.to_vec(), 19));
    let more = [&of_the_kernel[..], &[(Stream::Accesses, 4, 0, 160)]].concat();
    assert_eq!(told([12, 9]), (more, 23));
}

#[test]
fn headers_that_lie_about_sizes_are_refused_without_taking_memory() {
    let good = file(&sample(PLAIN));
    let with = |at: usize, number: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        read(&bytes)
    };
    for huge in [1 << 40, u64::MAX] {
        assert!(matches!(with(32, huge), Err(HeaderError::Section { .. })), "attributes");
        assert!(matches!(with(24, huge), Err(HeaderError::Section { .. })), "their place");
        assert!(matches!(with(120 + 72, huge), Err(HeaderError::Section { .. })), "ids");
        // More data than there is: it ends with the file, and its features lie outside.
        let (recording, evidence) = with(48, huge).unwrap();
        assert_eq!((accesses(&evidence).len(), recording.tally().features), (1, 0));
    }
    assert!(matches!(with(32, 0), Err(HeaderError::NoEvents)));
    let mut swapped = good.clone();
    swapped[..8].reverse();
    assert!(matches!(read(&swapped), Err(HeaderError::ByteOrder)));
    assert!(matches!(read(b"ELF"), Err(HeaderError::Magic)));
    assert!(matches!(read(&u64s(&[0; 20])), Err(HeaderError::Magic)));
}

#[test]
fn every_cut_of_a_recording_is_read_as_far_as_it_goes() {
    let mut lost = u64s(&[1, 17]);
    lost.extend(trailer(7, 150));
    let records = [mapping(7, 0, 0x1000, 0x2000), sample(PLAIN), record(2, 0, &lost)].concat();
    let whole = file(&records);
    let mut read_whole = 0;
    for length in 0..=whole.len() {
        let Ok((recording, evidence)) = read(&whole[..length]) else {
            assert!(length < 280, "{length}");
            continue;
        };
        let cut = recording.tally().stopped.is_some();
        assert!(cut || length == whole.len() || length >= 280, "{length}");
        assert!(accesses(&evidence).len() <= 1);
        read_whole += usize::from(!cut);
    }
    assert_eq!(read_whole, 4, "at the end of each record, and of the header");
}

proptest! {
    #[test]
    fn no_changed_bytes_make_it_panic_or_invent_accesses(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let records: Vec<u8> = (0..6)
            .flat_map(|n| [mapping(7, n, 0x1000 * n, 0x2000), sample(Told { time: n, ..PLAIN })].concat())
            .collect();
        let mut bytes = file(&records);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((recording, evidence)) = read(&bytes) {
            let tally = recording.tally();
            prop_assert!(accesses(&evidence).len() as u64 == tally.accesses);
            prop_assert!(tally.accesses + tally.broken + tally.unidentified <= tally.records);
        }
    }
}
