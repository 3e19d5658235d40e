//! `/proc/PID/mountinfo` and lists of ids.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    assert!(memprov_proc::mountinfo::lines(text).count() <= text.len());
    assert!(memprov_proc::id_list(text).is_none_or(|ids| ids.len() <= 1 << 16));
});
