//! Records of a perf ring, of any form.
#![no_main]

use memprov_perfmem::record::{Body, Format, ParseError, parse, split};

libfuzzer_sys::fuzz_target!(|input: (u64, bool, &[u8])| {
    let (sample_type, sample_id_all, stream) = input;
    let format = Format { sample_type, sample_id_all };
    let mut read = 0;
    for record in split(stream).flatten() {
        read += record.len();
        match parse(record, format) {
            Ok(parsed) => {
                if let Body::Mmap2(mapping) = parsed.body {
                    assert!(mapping.name.len() < record.len());
                }
            }
            Err(ParseError::Short { offset, needs, length, .. }) => {
                assert!(offset + needs > length)
            }
            Err(ParseError::Size { .. }) => assert!(record.len() < 8),
        }
    }
    assert!(read <= stream.len());
});
