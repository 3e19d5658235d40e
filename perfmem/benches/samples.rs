//! What a sample costs up to its evidence, in CPU time of the thread that reads.
//!
//! Live: a ring that this kernel filled with page faults, read by the sampler. Their fields are those of a PMU's loads, which
//! the kernel fills for any event: with what is not known of a fault. In memory: a recording of loads as Intel's PEBS has
//! them, in rounds; and the samples of a real one, where `../shared/data` has it, over and over.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memprov_ledger::evidence::{Evidence, Population};
use memprov_ledger::identity::Tgid;
use memprov_perfmem::file::Recording;
use memprov_perfmem::nodes::Nodes;
use memprov_perfmem::record::{self, parse, sample, split};
use memprov_perfmem::{Period, Sampled, Sampler, Words};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

const PAGE: usize = 4096;
/// Samples of a round: fewer than the ring of one CPU has room for.
const LIVE: usize = 16_000;
const ROOM: u32 = 64 << 20;
const RECORDED: u64 = 100_000;
/// What a perf file has of a real host.
const REAL: &str = "../../shared/data/perfdata/quipper/perf.data.weight_struct";

/// What the kernel may be asked for of a load.
const FIELDS: u64 = sample::PERIOD | sample::WEIGHT | sample::DATA_SRC | sample::DATA_PAGE_SIZE;

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Memory that is given back and touched anew: a fault for each page.
struct Memory(*mut std::ffi::c_void);

impl Memory {
    fn new() -> Self {
        let (null, prot) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: new memory at an address that the kernel chooses; nothing refers to it.
        let at = unsafe { mmap_anonymous(null, Self::LENGTH, prot, MapFlags::PRIVATE) };
        let memory = Self(at.expect("there is memory"));
        memory.advise(Advice::LinuxNoHugepage);
        memory
    }

    const LENGTH: usize = LIVE * PAGE;

    fn advise(&self, advice: Advice) {
        // SAFETY: the mapping of `new`, which nobody else uses.
        unsafe { madvise(self.0, Self::LENGTH, advice) }.expect("the kernel takes the advice");
    }

    fn fault(&self) {
        self.advise(Advice::LinuxDontNeed);
        for page in 0..LIVE {
            // SAFETY: within the mapping.
            unsafe { self.0.cast::<u8>().add(page * PAGE).write_volatile(1) };
        }
    }
}

/// One round: so many faults, then all that is told of them. CPU time of the reading alone.
fn read(sampler: &mut Sampler, memory: &Memory, out: &mut Vec<Evidence>) -> Duration {
    memory.fault();
    let mut took = Duration::ZERO;
    let mut told = 0;
    // What was read is held back until nothing older can come.
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(5));
        out.clear();
        let begin = cpu();
        sampler.poll(Duration::ZERO, out).expect("rings are read");
        took += cpu() - begin;
        told += out.iter().filter(|evidence| matches!(evidence, Evidence::Access(_))).count();
        if told >= LIVE {
            return took;
        }
    }
    panic!("{told} of {LIVE} samples: {:?}", sampler.counts());
}

fn live(criterion: &mut Criterion) {
    let event = Words::software(5);
    let event = Sampled::new("faults", event, Period::Fixed(1), Population::Faults);
    let event = Sampled { fields: FIELDS, ..event };
    let opened = Sampler::open(Path::new("/"), ROOM, 7).and_then(|mut sampler| {
        sampler.watch(Tgid(std::process::id()), &[event].into())?;
        Ok(sampler)
    });
    let mut sampler = match opened {
        Ok(sampler) => sampler,
        Err(error) => return println!("skipped: {error}"),
    };
    sampler.set_nodes(Nodes::new((0..256).map(|cpu| (cpu, 0)).collect(), vec![(0, 1 << 40, 0)]));
    let memory = Memory::new();
    let mut out = Vec::new();
    read(&mut sampler, &memory, &mut out);
    let mut group = criterion.benchmark_group("from the ring to evidence");
    group.throughput(Throughput::Elements(LIVE as u64)).sample_size(10);
    group.bench_function("page faults, with all fields of a load", |b| {
        b.iter_custom(|rounds| (0..rounds).map(|_| read(&mut sampler, &memory, &mut out)).sum());
    });
    group.finish();
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn record_of(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("it is short");
    [&kind.to_le_bytes()[..], &2u16.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

/// A file of one event, `MEM_TRANS_RETIRED.LOAD_LATENCY`, and its samples, of which each thousand is a round.
fn recording() -> Vec<u8> {
    let fields = sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR;
    let fields = fields | sample::CPU | sample::PERIOD | sample::WEIGHT_STRUCT;
    let fields = fields | sample::DATA_SRC | sample::PHYS_ADDR;
    // Level 1, fill buffer, level 3, local memory, and memory of another node.
    let sources =
        [0x6810_0142, 0x0118_6810_0242, 0x0106_6810_0842, 0x011a_6810_1042, 0x013a_6810_2042];
    let mut records = Vec::new();
    for n in 0..RECORDED {
        let mut body = u64s(&[1, 0x40_0000 + n % 64]);
        body.extend(u32s(&[7, 7]));
        body.extend(u64s(&[1_000_000 + n * 1000, 0x7f00_0000_0000 + n * 64]));
        body.extend(u32s(&[u32::try_from(n % 8).expect("it is small"), 0]));
        body.extend(u64s(&[10_009, 30 + n % 400]));
        body.extend(u64s(&[sources[usize::try_from(n % 5).expect("it is small")], n << 12]));
        records.extend(record_of(9, &body));
        if n % 1000 == 999 {
            records.extend(record_of(68, &[]));
        }
    }
    let all: u64 = 1 << 18;
    let numbers = u64s(&[0x1cd, 10_009, fields, 0, all]);
    let attribute = [u32s(&[4, 64]), numbers, u32s(&[0, 0]), u64s(&[3])].concat();
    let (ids, attributes, data) = (104, 112, 192);
    let length = records.len() as u64;
    let head = u64s(&[104, 80, attributes, 80, data, length, 0, 0, 0, 0, 0, 0]);
    [b"PERFILE2".to_vec(), head, u64s(&[1]), attribute, u64s(&[ids, 8]), records].concat()
}

fn recorded(criterion: &mut Criterion) {
    let bytes = recording();
    let mut group = criterion.benchmark_group("from a recording in memory to evidence");
    group.throughput(Throughput::Elements(RECORDED)).sample_size(10);
    group.bench_function("loads, in order of time", |b| {
        b.iter_custom(|rounds| {
            let begin = cpu();
            for _ in 0..rounds {
                let (file, length) = (Cursor::new(bytes.as_slice()), bytes.len() as u64);
                let mut recording = Recording::read(file, length).expect("it is one");
                let mut out = Vec::new();
                while recording.next(&mut out) {
                    black_box(&out);
                    out.clear();
                }
                assert_eq!(recording.tally().accesses, RECORDED);
            }
            cpu() - begin
        });
    });
    group.finish();
}

/// Samples of a real recording, and the form of its records.
fn real() -> Option<(Vec<Vec<u8>>, record::Format)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(REAL);
    let bytes = std::fs::read(&path).ok()?;
    let recording = Recording::open(&path).ok()?;
    let format = recording.events().next()?.0.format;
    let number = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
    let (begin, size) = (usize::try_from(number(40)?).ok()?, usize::try_from(number(48)?).ok()?);
    let records = split(bytes.get(begin..begin.checked_add(size)?)?).flatten();
    let samples = records.filter(|bytes| record::kind(bytes) == 9 && parse(bytes, format).is_ok());
    Some((samples.map(<[u8]>::to_vec).collect(), format))
}

fn parsed(criterion: &mut Criterion) {
    let Some((samples, format)) = real().filter(|(samples, _)| !samples.is_empty()) else {
        return println!("skipped: no {REAL}");
    };
    let mut group = criterion.benchmark_group("from bytes to fields");
    group.throughput(Throughput::Elements(samples.len() as u64)).sample_size(10);
    group.bench_function(format!("{} recorded loads", samples.len()), |b| {
        b.iter_custom(|rounds| {
            let begin = cpu();
            for bytes in (0..rounds).flat_map(|_| &samples) {
                black_box(parse(black_box(bytes), format).is_ok());
            }
            cpu() - begin
        });
    });
    group.finish();
}

criterion_group!(benches, live, recorded, parsed);
criterion_main!(benches);
