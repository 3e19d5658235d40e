use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{
    Body, COMM, COMM_EXEC, EXIT, FORK, File, Format, LOST, LOST_SAMPLES, MMAP_BUILD_ID, MMAP2,
    ParseError, SAMPLE, THROTTLE, Task, Trailer, UNTHROTTLE, parse, sample, split,
};

const PLAIN: Format = Format { sample_type: sample::TID | sample::TIME, sample_id_all: true };

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
    assert_eq!(body(THROTTLE, 0, &u64s(&[1, 2, 3])), "Throttle");
    assert_eq!(body(UNTHROTTLE, 0, &u64s(&[1, 2, 3])), "Unthrottle");
    assert_eq!(body(SAMPLE, 0, &[]), "Other(9)");
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
    let read = parse(&bytes, Format { sample_type, sample_id_all: true }).unwrap();
    let whole = Trailer {
        task: Some((7, 9)),
        time: Some(11),
        id: Some(12),
        stream_id: Some(13),
        cpu: Some(3),
    };
    assert_eq!(read.trailer, whole);
    assert_eq!(
        parse(&bytes, Format { sample_type, sample_id_all: false }).unwrap().trailer,
        Trailer::default()
    );
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
    (any::<u64>(), any::<bool>())
        .prop_map(|(sample_type, sample_id_all)| Format { sample_type, sample_id_all })
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
            prop_assert!(offset + needs > length);
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
