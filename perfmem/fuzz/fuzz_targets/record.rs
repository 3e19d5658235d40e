//! Records of a perf ring, of any form.
#![no_main]

use memprov_perfmem::data_src::DataSource;
use memprov_perfmem::record::{Body, Format, ParseError, parse, split};

libfuzzer_sys::fuzz_target!(|input: (u64, bool, [u64; 4], &[u8])| {
    let (sample_type, sample_id_all, masks, stream) = input;
    let [read_format, branch_sample_type, regs_user, regs_intr] = masks;
    let format = Format {
        sample_type,
        sample_id_all,
        read_format,
        branch_sample_type,
        regs_user,
        regs_intr,
    };
    let mut read = 0;
    for record in split(stream).flatten() {
        read += record.len();
        match parse(record, format) {
            Ok(parsed) => match parsed.body {
                Body::Mmap2(mapping) => assert!(mapping.name.len() < record.len()),
                Body::Sample(sample) => {
                    let text = DataSource(sample.data_src.unwrap_or(0)).to_string();
                    assert!(text.starts_with("|OP "));
                }
                _ => {}
            },
            Err(ParseError::Short { offset, needs, length, .. }) => {
                assert!(offset.saturating_add(needs) > length)
            }
            Err(ParseError::Size { .. }) => assert!(record.len() < 8),
            Err(ParseError::Long { left, .. }) => assert!(left > 0),
            Err(ParseError::Trace { .. }) => unreachable!("no record is of a trace"),
            Err(ParseError::Unknown { bits }) => assert!(bits > 0),
        }
    }
    assert!(read <= stream.len());
});
