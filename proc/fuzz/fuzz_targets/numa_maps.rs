//! On which nodes pages of mappings lie.
#![no_main]

use memprov_proc::numa_maps;

// A file says what its lines say one by one: none costs another.
libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let whole: Vec<_> = numa_maps::lines(text).map(Result::ok).collect();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    for (line, told) in text.split(|byte| *byte == b'\n').zip(whole) {
        assert_eq!(numa_maps::lines(line).next().and_then(Result::ok), told);
    }
});
