//! Reading and writing files that may be busy.
//!
//! All of DAMON's tree is under one lock that the kernel tries and does not wait for, so whoever comes second gets EBUSY
//! (kernel `mm/damon/sysfs.c`, `mutex_trylock`). That is no state of DAMON: it passes. Waits are jittered, so that two
//! readers do not meet again and again.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Waits before a file is given up as busy: 12, half a second to a second together.
const WAITS: u32 = 12;
/// The shortest and the longest wait of the first and of all later ones, in microseconds.
const FIRST: u64 = 5_000;
const LONGEST: u64 = 100_000;

/// The waits between attempts: each between half of its bound and its bound, which doubles until 100 ms. The same seed
/// gives the same waits.
pub fn waits(seed: u64) -> impl Iterator<Item = Duration> {
    let mut state = seed;
    (0..WAITS).map(move |step| {
        // SplitMix64 (Steele, Lea, Flood 2014, OOPSLA): every seed gives a good sequence.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let bound = (FIRST << step.min(16)).min(LONGEST);
        Duration::from_micros(bound / 2 + word % (bound / 2 + 1))
    })
}

/// Does `attempt` until it is not busy, with waits in between.
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn patiently<T>(seed: u64, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for wait in waits(seed) {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(wait),
            other => return other,
        }
    }
    attempt()
}

/// A file's text without the white space around it.
///
/// # Errors
/// Those of the read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let text = patiently(seed(), || std::fs::read_to_string(path))?;
    Ok(text.trim().to_owned())
}

/// Another seed for each process, and each time.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::{patiently, waits};

    #[test]
    fn waits_are_a_function_of_the_seed_and_end_within_a_second() {
        let of = |seed| waits(seed).collect::<Vec<_>>();
        for seed in 0..1000 {
            assert_eq!(of(seed), of(seed));
            let sum = of(seed).iter().sum::<Duration>();
            assert!((Duration::from_millis(350)..Duration::from_secs(1)).contains(&sum), "{sum:?}");
        }
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn what_is_busy_is_tried_again_and_nothing_else_is() {
        let mut left = 2;
        let done = patiently(7, || {
            left -= 1;
            if left > 0 { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(left) }
        });
        assert_eq!(done.unwrap(), 0);
        let mut tries = 0;
        let refused = patiently(7, || -> io::Result<()> {
            tries += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!((refused.unwrap_err().kind(), tries), (io::ErrorKind::PermissionDenied, 1));
    }
}
