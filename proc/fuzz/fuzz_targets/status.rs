//! `/proc/PID/status` and `meminfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    memprov_proc::status::parse(text).ok();
    memprov_proc::meminfo::parse(text).ok();
});
