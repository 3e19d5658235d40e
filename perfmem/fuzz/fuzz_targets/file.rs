//! Recordings of perf, files and streams, of any form.
#![no_main]

use std::io::Cursor;

use memprov_perfmem::file::Recording;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::read(Cursor::new(bytes), bytes.len() as u64) else { return };
    let mut evidence = Vec::new();
    while recording.next(&mut evidence) {}
    let tally = recording.tally();
    assert!(tally.accesses + tally.broken + tally.unidentified <= tally.records + tally.operations);
    assert!(tally.places.len() as u64 <= tally.broken);
});
