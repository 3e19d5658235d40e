//! A small swap device in compressed memory, for as long as a test needs it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SIZE: &str = "128M";
const SYSFS: &str = "/sys/block/zram0";
const DEVICE: &str = "/dev/zram0";

/// Tests of one program take turns; an unused zram0 is taken, a used one is left alone.
static TURN: Mutex<()> = Mutex::new(());

/// Swap that ends with this value.
pub(crate) struct Swap {
    _turn: MutexGuard<'static, ()>,
}

impl Swap {
    /// Turns it on.
    ///
    /// # Errors
    /// Why this host gives none.
    pub(crate) fn on() -> Result<Self, String> {
        // A test that failed in its turn undid its swap all the same.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Path::new(SYSFS).join("disksize");
        let used =
            fs::read_to_string(&size).map_err(|e| format!("read {}: {e}", size.display()))?;
        if used.trim() != "0" {
            return Err(format!("{DEVICE} is in use"));
        }
        fs::write(&size, SIZE).map_err(|e| format!("write {}: {e}", size.display()))?;
        // From here on dropping undoes it.
        let swap = Self { _turn: turn };
        for command in ["mkswap", "swapon"] {
            run(command)?;
        }
        Ok(swap)
    }
}

fn run(command: &str) -> Result<(), String> {
    let done = Command::new(command).arg(DEVICE).output().map_err(|e| format!("{command}: {e}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("{command} {DEVICE}: {}", String::from_utf8_lossy(&done.stderr).trim()))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // swapoff fails where swapon never came to be; the reset then frees the device all the same.
        if let Err(why) = run("swapoff") {
            eprintln!("{why}");
        }
        if let Err(why) = fs::write(Path::new(SYSFS).join("reset"), "1") {
            eprintln!("reset {SYSFS}: {why}");
        }
    }
}
