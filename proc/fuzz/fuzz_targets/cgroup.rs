//! `/proc/PID/cgroup` and the container that a path names.
#![no_main]

use memprov_proc::cgroup;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    assert!(cgroup::lines(text).count() <= text.len());
    if let Some(path) = cgroup::memory_path(text) {
        assert!(path.starts_with(b"/"));
        let path = memprov_proc::lossless(path);
        assert!(cgroup::container_id(&path).is_none_or(|id| path.contains(id)));
    }
});
