//! On which nodes pages of mappings lie.
#![no_main]

use memprov_proc::numa_maps;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for line in numa_maps::lines(text).flatten() {
        assert!(line.bytes().is_none_or(|bytes| bytes.len() == line.nodes.len()));
    }
});
