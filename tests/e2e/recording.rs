//! A recording of perf whose truth is known: loads on a machine with two nodes, as a stream (`perf record -o -`).
//!
//! The form is that of `tools/perf/Documentation/perf.data-file-format.txt` ("pipe mode") and of
//! `include/uapi/linux/perf_event.h`. Numbers are little-endian.

use std::time::{Duration, SystemTime};

// Records.
const MMAP2: u32 = 10;
const COMM: u32 = 3;
const SAMPLE: u32 = 9;
const ATTRIBUTE: u32 = 64;
const FEATURE: u32 = 80;

// `misc` of records: of a user's code; the name is that of a new program.
const USER: u16 = 2;
const EXEC: u16 = 1 << 13;

// Features.
const HOSTNAME: u64 = 3;
const CPUID: u64 = 9;
const NUMA_TOPOLOGY: u64 = 14;
const MEM_TOPOLOGY: u64 = 22;
const CLOCK_DATA: u64 = 29;

/// `CLOCK_MONOTONIC`.
const MONOTONIC: u32 = 1;
/// A raw event of the CPU's PMU: Intel's loads slower than a threshold.
const RAW: u32 = 4;
const LOAD_LATENCY: u64 = 0x1cd;
/// IP, TID, TIME, ADDR, ID, CPU, PERIOD, WEIGHT, DATA_SRC, PHYS_ADDR.
const FIELDS: u64 =
    1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 19;
/// `mmap`, `comm`, `task`, `sample_id_all`, `mmap2`.
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 18 | 1 << 23;
const ID: u64 = 7;
/// Bytes of a block of memory; the second node has the second one.
const BLOCK: u64 = 128 << 20;
const PID: u32 = 4242;
/// Events that each sample stands for.
pub(crate) const PERIOD: u64 = 1000;

/// Loads of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loads {
    /// The file that is mapped where they go.
    pub(crate) file: &'static str,
    /// How many in a second.
    pub(crate) each_second: u64,
    /// Cycles that each takes.
    pub(crate) cycles: u64,
    /// The node of the memory; the CPU is one of the first. `None`: the hardware does not say what answered.
    pub(crate) node: Option<u64>,
}

impl Loads {
    /// Hit, and what answered (`union perf_mem_data_src`).
    fn source(self) -> u64 {
        let load = 2;
        let (hit, local, far, ram) = (0x2 << 5, 0x80 << 5, 0x100 << 5, 0xd << 33);
        match self.node {
            Some(0) => load | hit | local | ram,
            Some(_) => load | hit | far | ram | 1 << 37,
            None => load | 1 << 5 | 0xf << 33,
        }
    }
}

/// A stream of so many whole seconds of loads, the last of which ends now. One of each kind after the other, evenly.
pub(crate) fn stream(kinds: &[Loads], seconds: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    // The recording's clock begins a day earlier.
    let end = Duration::from_secs(86_400);
    let begin = end - Duration::from_secs(seconds);
    let mut all = [b"PERFILE2".as_slice(), &16u64.to_le_bytes()].concat();
    all.extend(attribute());
    for (feature, bytes) in [
        (HOSTNAME, text("recorded")),
        (CPUID, text("GenuineIntel,6,85,4")),
        (NUMA_TOPOLOGY, topology()),
        (MEM_TOPOLOGY, memory()),
        (CLOCK_DATA, clock(now, end)),
    ] {
        all.extend(record(FEATURE, &[feature.to_le_bytes().as_slice(), &bytes].concat()));
    }
    let begun = nanos(begin);
    all.extend(record(
        COMM,
        &[&words(&[PID, PID]), b"loads\0\0\0".as_slice(), &trailer(begun)].concat(),
    ));
    for (at, loads) in (0..).zip(kinds) {
        all.extend(mapping(at, loads.file, begun));
    }
    for second in 0..seconds {
        let mut of_second = Vec::new();
        for (at, loads) in (0..).zip(kinds) {
            for number in 0..loads.each_second {
                // Inside of the second, whatever rounds.
                let share = (number * 2 + 1) * 1_000_000_000 / (loads.each_second * 2);
                of_second.push((begun + second * 1_000_000_000 + share, at, *loads));
            }
        }
        of_second.sort_by_key(|(time, ..)| *time);
        for (time, at, loads) in of_second {
            all.extend(sample(time, at, loads));
        }
    }
    all
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("the clock is young")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

/// `struct perf_event_header` and what belongs to it.
fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("records are short");
    let mut whole = kind.to_le_bytes().to_vec();
    let misc = if kind == COMM { USER | EXEC } else { USER };
    whole.extend(misc.to_le_bytes());
    whole.extend(size.to_le_bytes());
    whole.extend(body);
    whole
}

/// `struct perf_event_attr` up to `sample_max_stack`, and the id of the event.
fn attribute() -> Vec<u8> {
    let size = 112;
    let first = [words(&[RAW, size]), longs(&[LOAD_LATENCY, PERIOD, FIELDS, 0, FLAGS])].concat();
    let mut body = first;
    body.resize(size.try_into().expect("some bytes"), 0);
    body.extend(ID.to_le_bytes());
    record(ATTRIBUTE, &body)
}

/// `perf_header_string`.
fn text(text: &str) -> Vec<u8> {
    let length = (text.len() + 1).next_multiple_of(64);
    let mut bytes = words(&[u32::try_from(length).expect("it is short")]);
    bytes.extend(text.as_bytes());
    bytes.resize(4 + length, 0);
    bytes
}

fn topology() -> Vec<u8> {
    let node =
        |node: u32, cpus: &str| [words(&[node]), longs(&[1 << 20, 1 << 19]), text(cpus)].concat();
    [words(&[2]), node(0, "0-3"), node(1, "4-7")].concat()
}

fn memory() -> Vec<u8> {
    let node = |node: u64, blocks: u64| longs(&[node, 2, 2, blocks]);
    [longs(&[1, BLOCK, 2]), node(0, 0b01), node(1, 0b10)].concat()
}

fn clock(wall: Duration, time: Duration) -> Vec<u8> {
    [words(&[1, MONOTONIC]), longs(&[nanos(wall), nanos(time)])].concat()
}

/// Where the file at this place of the list is mapped.
fn mapped(at: u64) -> u64 {
    0x7f00_0000_0000 + at * 0x100_0000
}

/// What other records end with (`sample_id`).
fn trailer(time: u64) -> Vec<u8> {
    [words(&[PID, PID]), longs(&[time, ID]), words(&[0, 0])].concat()
}

fn mapping(at: u64, file: &str, time: u64) -> Vec<u8> {
    let mut name = file.as_bytes().to_vec();
    name.resize((file.len() + 1).next_multiple_of(8), 0);
    // Major and minor, inode, its generation, readable, shared.
    let object = [words(&[8, 1]), longs(&[100 + at, 1]), words(&[1, 1])].concat();
    let body =
        [words(&[PID, PID]), longs(&[mapped(at), 0x10_0000, 0]), object, name, trailer(time)];
    record(MMAP2, &body.concat())
}

fn sample(time: u64, at: u64, loads: Loads) -> Vec<u8> {
    let place = loads.node.unwrap_or(0) * BLOCK + at * 4096;
    let body = [
        longs(&[0x40_1000]),
        words(&[PID, PID]),
        longs(&[time, mapped(at) + 64, ID]),
        words(&[0, 0]),
        longs(&[PERIOD, loads.cycles, loads.source(), place + 64]),
    ];
    record(SAMPLE, &body.concat())
}
