//! Traces of Arm's SPE, of any form.
#![no_main]

use memprov_perfmem::spe::Operations;

libfuzzer_sys::fuzz_target!(|input: (u64, &[u8])| {
    let (offset, bytes) = input;
    let mut read = 0usize;
    for operation in Operations::new(bytes, offset) {
        read += 1;
        if let Err(broken) = operation {
            assert!(broken.offset >= offset);
        }
    }
    assert!(read <= bytes.len());
});
