//! Lists of mappings, and `smaps`, whose header lines are the same.
#![no_main]

use memprov_proc::{maps, smaps};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for line in maps::lines(text).flatten() {
        assert!(line.start < line.end);
        assert!(line.name().len() <= line.name.len());
        assert!(memprov_proc::lossless(&line.name()).len() >= line.name().len());
    }
    smaps::entries(text).ok();
    smaps::rollup(text).ok();
});
