//! Which file systems may keep a reader waiting for ever.
//!
//! A FUSE file system answers when its owner likes, who may be anybody; one such file must not stop the unwinding of all
//! others. It is told from others by `/proc/PID/mountinfo` (kernel `Documentation/filesystems/proc.rst` 3.5), before
//! anything of it is looked at: `statfs` would already ask it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

const MAX_FILE: u64 = 8 << 20;

/// A device as `maps` and `mountinfo` show it.
pub(crate) type Device = (u32, u32);

/// Those of `devices` that may block: FUSE, and what is mounted neither for the process nor for us.
pub(crate) fn blocking(root: &Path, process: &Path, mut devices: Vec<Device>) -> Vec<Device> {
    // File systems on block devices belong to whoever may mount them: root.
    devices.retain(|(major, _)| *major == 0);
    let mut unknown = devices;
    let mut blocking = Vec::new();
    for table in [process.join("mountinfo"), root.join("proc/self/mountinfo")] {
        if unknown.is_empty() {
            break;
        }
        let Ok(file) = File::open(table) else { continue };
        for line in BufReader::new(file.take(MAX_FILE)).split(b'\n').map_while(Result::ok) {
            let Some((device, is_fuse)) = parse(&line) else { continue };
            if is_fuse && unknown.contains(&device) {
                blocking.push(device);
            }
            unknown.retain(|d| *d != device);
        }
    }
    blocking.extend(unknown);
    blocking
}

/// Device of a mount, and whether it is FUSE.
fn parse(line: &[u8]) -> Option<(Device, bool)> {
    let line = str::from_utf8(line).ok()?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    let kind = line.split_once(" - ")?.1.split(' ').next()?;
    Some(((major.parse().ok()?, minor.parse().ok()?), kind == "fuse" || kind.starts_with("fuse.")))
}

#[cfg(test)]
mod tests {
    use super::blocking;

    #[test]
    fn only_fuse_and_the_unknown_may_block() {
        let dir = tempfile::tempdir().unwrap();
        let (process, own) = (dir.path().join("process"), dir.path().join("proc/self"));
        std::fs::create_dir_all(&process).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        let mounts = "1 0 0:40 / / rw,relatime master:1 - overlay overlay rw\n\
            2 1 0:41 / /mnt\\040a rw shared:2 - fuse.sshfs host: rw\n\
            3 1 0:42 / /b rw - fuse src rw\nnonsense\n";
        std::fs::write(process.join("mountinfo"), mounts).unwrap();
        std::fs::write(own.join("mountinfo"), "9 0 0:50 / / rw - btrfs /dev/sda rw\n").unwrap();
        let all = vec![(8, 1), (0, 40), (0, 41), (0, 42), (0, 50), (0, 99)];
        let mut found = blocking(dir.path(), &process, all);
        found.sort_unstable();
        assert_eq!(found, [(0, 41), (0, 42), (0, 99)]);
    }
}
