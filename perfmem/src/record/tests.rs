use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{
    AUX, Body, COMM, COMM_EXEC, EXIT, FORK, File, Format, LOST, LOST_SAMPLES, MMAP, MMAP_BUILD_ID,
    MMAP_DATA, MMAP2, Mmap, ParseError, SAMPLE, THROTTLE, Task, Trailer, UNTHROTTLE, parse, sample,
    split,
};

const PLAIN: Format = Format::plain(sample::TID | sample::TIME, true);

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

fn mmap2(build_id: bool) -> Vec<u8> {
    let mut body = u32s(&[7, 9]);
    body.extend(u64s(&[0x7f00_0000_0000, 0x5000, 0x2000]));
    if build_id {
        body.extend([20, 0, 0, 0]);
        body.extend([0xab; 20]);
    } else {
        body.extend(u32s(&[8, 1]));
        body.extend(u64s(&[42, 3]));
    }
    body.extend(u32s(&[5, 2]));
    body.extend(b"/lib/x\0\0");
    body.extend(u32s(&[7, 9]));
    body.extend(u64s(&[111]));
    record(MMAP2, if build_id { MMAP_BUILD_ID } else { 0 }, &body)
}

#[test]
fn a_mapping_is_read_with_every_field_and_its_time() {
    let bytes = mmap2(false);
    let read = parse(&bytes, PLAIN).unwrap();
    let Body::Mmap2(mapping) = read.body else { panic!("{read:?}") };
    assert_eq!((mapping.pid, mapping.tid), (7, 9));
    assert_eq!(
        (mapping.address, mapping.length, mapping.offset),
        (0x7f00_0000_0000, 0x5000, 0x2000)
    );
    assert_eq!(mapping.file, File::Inode { major: 8, minor: 1, inode: 42, generation: 3 });
    assert_eq!((mapping.prot, mapping.flags, mapping.name), (5, 2, &b"/lib/x"[..]));
    assert_eq!(read.trailer, Trailer { task: Some((7, 9)), time: Some(111), ..Trailer::default() });
}

#[test]
fn a_build_id_stands_in_the_place_of_the_inode() {
    let bytes = mmap2(true);
    let Body::Mmap2(mapping) = parse(&bytes, PLAIN).unwrap().body else { panic!() };
    assert_eq!((mapping.file, mapping.name), (File::BuildId(&[0xab; 20]), &b"/lib/x"[..]));
}

#[test]
fn each_kind_is_told_apart() {
    let none = Format::default();
    let body = |kind, misc, body: &[u8]| {
        format!("{:?}", parse(&record(kind, misc, body), none).unwrap().body)
    };
    let task = Task { pid: 1, parent_pid: 2, tid: 3, parent_tid: 4, time: 5 };
    let mut bytes = u32s(&[1, 2, 3, 4]);
    bytes.extend(u64s(&[5]));
    assert_eq!(body(FORK, 0, &bytes), format!("{:?}", Body::Fork(task)));
    assert_eq!(body(EXIT, 0, &bytes), format!("{:?}", Body::Exit(task)));
    let mut comm = u32s(&[1, 2]);
    comm.extend(b"sh\0\0\0\0\0\0");
    for (misc, exec) in [(COMM_EXEC, true), (0, false)] {
        let told = Body::Comm { pid: 1, tid: 2, name: b"sh", exec };
        assert_eq!(body(COMM, misc, &comm), format!("{told:?}"));
    }
    assert_eq!(body(LOST, 0, &u64s(&[9, 77])), "Lost(77)");
    assert_eq!(body(LOST_SAMPLES, 0, &u64s(&[78])), "LostSamples(78)");
    assert_eq!(body(LOST_SAMPLES, 1 << 15, &u64s(&[78])), "Other(13)", "not wanted, not lost");
    assert_eq!(body(THROTTLE, 0, &u64s(&[1, 2, 3])), "Throttle");
    assert_eq!(body(UNTHROTTLE, 0, &u64s(&[1, 2, 3])), "Unthrottle");
    let mapping = Mmap { pid: 1, tid: 2, address: 3, length: 4, offset: 5, exec: true, name: b"x" };
    let mut bytes = u32s(&[1, 2]);
    bytes.extend(u64s(&[3, 4, 5]));
    bytes.extend(b"x\0\0\0\0\0\0\0");
    assert_eq!(body(MMAP, 0, &bytes), format!("{:?}", Body::Mmap(mapping)));
    let data = Mmap { exec: false, ..mapping };
    assert_eq!(body(MMAP, MMAP_DATA, &bytes), format!("{:?}", Body::Mmap(data)));
    // Bit 2 says that the buffer is overwritten, which is asked for.
    for (flags, truncated, partial, collided) in
        [(0x2, false, false, false), (0x1, true, false, false), (0xc, false, true, true)]
    {
        let told = Body::Aux { truncated, partial, collided };
        assert_eq!(body(AUX, 0, &u64s(&[0, 64, flags])), format!("{told:?}"));
    }
    assert_eq!(body(4711, 0, &[1; 16]), "Other(4711)");
}

#[test]
fn a_trailer_has_what_the_sample_type_asks_for_in_the_kernels_order() {
    let sample_type = sample::TID
        | sample::TIME
        | sample::ID
        | sample::STREAM_ID
        | sample::CPU
        | sample::IDENTIFIER;
    let mut body = u32s(&[7, 9]);
    body.extend(u64s(&[11, 12, 13]));
    body.extend(u32s(&[3, 0]));
    body.extend(u64s(&[12]));
    let bytes = record(99, 0, &body);
    let read = parse(&bytes, Format::plain(sample_type, true)).unwrap();
    let whole = Trailer {
        task: Some((7, 9)),
        time: Some(11),
        id: Some(12),
        stream_id: Some(13),
        cpu: Some(3),
    };
    assert_eq!(read.trailer, whole);
    assert_eq!(
        parse(&bytes, Format::plain(sample_type, false)).unwrap().trailer,
        Trailer::default()
    );
}

/// Every field that a sample can have, each of another value.
fn sample_of_all() -> (Format, Vec<u8>) {
    let mut body = u64s(&[1, 2]);
    body.extend(u32s(&[3, 4]));
    body.extend(u64s(&[5, 6, 1, 7]));
    body.extend(u32s(&[8, 0]));
    body.extend(u64s(&[9]));
    // A group of two, with times, ids and losses.
    body.extend(u64s(&[2, 100, 50, 11, 12, 13, 14, 15, 16]));
    body.extend(u64s(&[2, 0xffff_ffff_ffff_fe00, 17]));
    body.extend(u32s(&[4, 0x0102_0304]));
    body.extend(u64s(&[1, 18, 19, 20, 21, 22]));
    body.extend(u64s(&[2, 23, 24]));
    body.extend(u64s(&[16, 25, 26, 8]));
    body.extend(27u32.to_ne_bytes());
    body.extend([28u16, 29].iter().flat_map(|n| n.to_ne_bytes()));
    body.extend(u64s(&[30, 31, 0, 33, 34, 35, 36]));
    body.extend(u64s(&[8, 37]));
    let format = Format {
        sample_type: sample::KNOWN & !sample::WEIGHT,
        sample_id_all: true,
        read_format: 31,
        branch_sample_type: 1 << 17 | 1 << 19,
        regs_user: 0b101,
        regs_intr: 0b1,
    };
    (format, record(SAMPLE, 0, &body))
}

#[test]
fn a_sample_has_every_field_that_its_event_asks_for_in_the_kernels_order() {
    let (format, bytes) = sample_of_all();
    let Body::Sample(read) = parse(&bytes, format).unwrap().body else { panic!() };
    assert_eq!((read.id, read.ip, read.task), (Some(1), Some(2), Some((3, 4))));
    assert_eq!((read.time, read.address, read.stream_id), (Some(5), Some(6), Some(7)));
    assert_eq!((read.cpu, read.period), (Some(8), Some(9)));
    let counts = read.read.unwrap();
    assert_eq!((counts.enabled, counts.running, counts.counts.len()), (Some(100), Some(50), 2));
    assert_eq!((counts.counts[1].value, counts.counts[1].lost), (14, Some(16)));
    let chain: Vec<u64> = read.callchain.unwrap().iter().collect();
    assert_eq!(chain, [0xffff_ffff_ffff_fe00, 17]);
    assert_eq!(read.raw, Some(&0x0102_0304u32.to_ne_bytes()[..]));
    let branches = read.branches.unwrap();
    assert_eq!((branches.index, branches.entries.iter().count()), (Some(18), 3));
    assert_eq!(branches.counters.iter().collect::<Vec<_>>(), [22]);
    let registers = read.regs_user.unwrap();
    assert_eq!((registers.abi, registers.values.iter().collect::<Vec<_>>()), (2, vec![23, 24]));
    assert_eq!(read.stack_user, Some(&25u64.to_ne_bytes()[..]), "8 of 16 bytes were written");
    assert_eq!(read.weight, Some(sample::Weight::Three(27, 28, 29)));
    assert_eq!((read.data_src, read.transaction), (Some(30), Some(31)));
    assert_eq!(read.regs_intr.unwrap(), sample::Registers::default(), "a kernel thread has none");
    assert_eq!((read.physical, read.cgroup), (Some(33), Some(34)));
    assert_eq!((read.data_page_size, read.code_page_size), (Some(35), Some(36)));
    assert_eq!(read.aux, Some(&37u64.to_ne_bytes()[..]));
}

#[test]
fn a_sample_of_another_length_than_its_event_says_is_refused() {
    let (format, bytes) = sample_of_all();
    for length in 8..bytes.len() {
        let cut = record(SAMPLE, 0, &bytes[8..length]);
        assert!(matches!(parse(&cut, format), Err(ParseError::Short { .. })), "{length}");
    }
    let long = record(SAMPLE, 0, &[&bytes[8..], &[0; 8]].concat());
    assert_eq!(parse(&long, format), Err(ParseError::Long { kind: SAMPLE, left: 8 }));
    // What `perf-event2` and others do not know shifts all that follows.
    let other = Format { sample_type: format.sample_type & !sample::PHYS_ADDR, ..format };
    assert!(parse(&bytes, other).is_err());
    let unknown = Format { sample_type: format.sample_type | 1 << 25, ..format };
    assert_eq!(parse(&bytes, unknown), Err(ParseError::Unknown { bits: 1 << 25 }));
}

#[test]
fn a_count_that_no_record_can_hold_is_refused() {
    let chain = Format::plain(sample::CALLCHAIN, false);
    for count in [2, 1 << 61, u64::MAX] {
        let bytes = record(SAMPLE, 0, &u64s(&[count, 0]));
        assert!(matches!(parse(&bytes, chain), Err(ParseError::Short { .. })), "{count}");
    }
    let group = Format { read_format: 8, ..Format::plain(sample::READ, false) };
    let bytes = record(SAMPLE, 0, &u64s(&[u64::MAX, 1, 2]));
    assert!(matches!(parse(&bytes, group), Err(ParseError::Short { .. })));
}

#[test]
fn a_record_that_is_cut_is_an_error_that_names_the_place() {
    let whole = mmap2(false);
    let cut = &whole[..whole.len() - 48];
    let error = parse(cut, PLAIN).unwrap_err();
    assert_eq!(error, ParseError::Short { kind: MMAP2, offset: 32, needs: 8, length: 32 });
    assert_eq!(error.to_string(), "record of kind 10: 8 bytes at byte 32 of 32");
    let mut stream = whole.clone();
    stream.extend(&whole[..20]);
    let parts: Vec<_> = split(&stream).collect();
    let size = whole.len();
    assert_eq!(parts, [Ok(&whole[..]), Err(ParseError::Size { offset: size, size, left: 20 })]);
}

fn formats() -> impl Strategy<Value = Format> {
    let masks = (any::<u8>(), any::<u64>(), any::<u64>(), any::<u64>());
    (any::<u64>(), any::<bool>(), masks).prop_map(|(sample_type, sample_id_all, masks)| {
        let (read, branch_sample_type, regs_user, regs_intr) = masks;
        let read_format = u64::from(read);
        Format {
            read_format,
            branch_sample_type,
            regs_user,
            regs_intr,
            ..Format::plain(sample_type, sample_id_all)
        }
    })
}

fn kinds() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..16, any::<u32>(), Just(MMAP2)]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300), format in formats()) {
        for record in split(&bytes).flatten() {
            prop_assert!(record.len() >= 8);
            parse(record, format).ok();
        }
        parse(&bytes, format).ok();
    }

    #[test]
    fn no_body_makes_it_read_behind_its_end(
        kind in kinds(), misc in any::<u16>(), body in vec(any::<u8>(), 0..120), format in formats(),
    ) {
        if let Err(ParseError::Short { offset, needs, length, .. }) = parse(&record(kind, misc, &body), format) {
            prop_assert!(offset.saturating_add(needs) > length);
        }
    }

    #[test]
    fn whole_records_are_split_as_they_were_put_together(bodies in vec(vec(any::<u8>(), 0..40), 0..20)) {
        let records: Vec<Vec<u8>> = bodies.iter().map(|body| record(COMM, 0, body)).collect();
        let stream = records.concat();
        let read: Vec<Vec<u8>> = split(&stream).map(|r| r.unwrap().to_vec()).collect();
        prop_assert_eq!(read, records);
    }
}
