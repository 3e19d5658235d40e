//! `/proc/PID/stat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(stat) = memprov_proc::stat::parse(text) {
        assert!(stat.comm.len() < text.len());
    }
});
