//! Which devices are shmem and which hugetlb: what decides the kind that a mapping's object pages count as.
//!
//! Device numbers are the host's, so what one mount namespace tells holds for all. The kernel's own mounts (memfd, SysV,
//! shared anonymous memory) are in no `mountinfo`: they are learned from memfds of our own, and from names in `maps`.
//! A file of overlayfs shows the overlay's device: one whose upper layer is tmpfs is taken for a file, though the kernel
//! counts it as shmem.

use std::collections::HashMap;
use std::time::Duration;

use memprov_ledger::evidence::Backing;
use memprov_ledger::identity::{ObjectKey, Tgid};
use memprov_ledger::time::MonoTime;
use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};

use crate::maps::MapLine;
use crate::mountinfo::{self, MountLine};
use crate::procfs::Proc;

/// A mount namespace is read again after this time, as device numbers are reused.
const FRESH: Duration = Duration::from_secs(30);
/// Devices and namespaces that are remembered at most.
const MOST: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shmem,
    /// Shmem with device nodes in it.
    Devtmpfs,
    Hugetlb,
    Other,
}

pub(crate) type Device = (u32, u32);

/// What is known of devices.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    kinds: HashMap<Device, Kind>,
    namespaces: HashMap<u64, MonoTime>,
}

impl Devices {
    /// Knows the kernel's own mounts if it is `live`, else nothing.
    pub(crate) fn new(live: bool) -> Self {
        let mut devices = Self::default();
        let huge = MemfdFlags::HUGETLB;
        for (flags, kind) in [
            (MemfdFlags::empty(), Kind::Shmem),
            (huge, Kind::Hugetlb),
            (huge | MemfdFlags::HUGE_2MB, Kind::Hugetlb),
            (huge | MemfdFlags::HUGE_1GB, Kind::Hugetlb),
        ] {
            // A size that the machine does not have gives an error and tells nothing.
            let made =
                live.then(|| memfd_create("memprov", flags | MemfdFlags::CLOEXEC).ok()).flatten();
            if let Some(stat) = made.and_then(|fd| fstat(fd).ok()) {
                devices.kinds.insert((major(stat.st_dev), minor(stat.st_dev)), kind);
            }
        }
        devices
    }

    /// Learns what `lines` and, where needed, the mounts of their process tell.
    pub(crate) fn learn(&mut self, proc: &Proc, tgid: Tgid, lines: &[MapLine<'_>], now: MonoTime) {
        self.learn_names(lines);
        let namespace = proc.mount_namespace(tgid);
        let read = namespace.and_then(|ns| self.namespaces.get(&ns));
        let fresh = read.is_some_and(|read| now.since(*read) < FRESH);
        let known = |line: &MapLine<'_>| self.kinds.contains_key(&(line.major, line.minor));
        if fresh && lines.iter().all(known) {
            return;
        }
        // Unreadable mounts leave files: what the names told stands.
        if let Ok(text) = proc.mounts(tgid) {
            self.learn_mounts(&text);
        }
        if self.kinds.len() + self.namespaces.len() > MOST {
            *self = Self::new(proc.is_live());
            self.learn_names(lines);
        }
        self.namespaces.extend(namespace.map(|ns| (ns, now)));
        for line in lines {
            self.kinds.entry((line.major, line.minor)).or_insert(Kind::Other);
        }
    }

    fn learn_mounts(&mut self, text: &[u8]) {
        for mount in mountinfo::lines(text).flatten() {
            let kind = kind_of(&mount);
            self.kinds.insert((mount.major, mount.minor), kind);
        }
    }

    fn learn_names(&mut self, lines: &[MapLine<'_>]) {
        let named =
            |line: &MapLine<'_>, names: &[&[u8]]| names.iter().any(|n| line.name.starts_with(n));
        for line in lines.iter().filter(|line| line.major == 0) {
            let device = (line.major, line.minor);
            if line.name == b"/anon_hugepage (deleted)" {
                self.kinds.insert(device, Kind::Hugetlb);
            } else if line.shared
                && (line.name == b"/dev/zero (deleted)" || named(line, &[b"[anon_shmem:"]))
            {
                self.kinds.insert(device, Kind::Shmem);
            }
        }
        // These two lie on hugetlb when they are made so; on shmem otherwise.
        for line in lines.iter().filter(|line| line.major == 0) {
            if named(line, &[b"/memfd:", b"/SYSV"]) {
                let kind = self.kinds.entry((line.major, line.minor)).or_insert(Kind::Shmem);
                if *kind == Kind::Other {
                    *kind = Kind::Shmem;
                }
            }
        }
    }

    /// What backs a mapping.
    pub(crate) fn backing(&self, line: &MapLine<'_>) -> Backing {
        let key = ObjectKey { major: line.major, minor: line.minor, inode: line.inode };
        if key == ObjectKey::default() {
            return match line.name {
                // Pages that the kernel inserts as frame numbers: in no Rss. A page of [uprobes] is counted as file, but is
                // no object that processes share.
                b"[vvar]" | b"[vvar_vclock]" | b"[vsyscall]" | b"[uprobes]" => Backing::Special,
                // One object that all processes map; counted as RssFile.
                b"[vdso]" | b"[vectors]" | b"[sigpage]" => Backing::File(key),
                _ => Backing::Anonymous,
            };
        }
        // A private mapping of the zero device is anonymous memory (kernel `mmap_zero`).
        if !line.shared && line.name == b"/dev/zero" {
            return Backing::Anonymous;
        }
        match self.kinds.get(&(line.major, line.minor)) {
            Some(Kind::Hugetlb) => Backing::Hugetlb(key),
            Some(Kind::Shmem) => Backing::Shmem(key),
            // What is mapped there is a device node, if it is not in the directory for shared memory.
            Some(Kind::Devtmpfs) if line.name.starts_with(b"/dev/shm/") => Backing::Shmem(key),
            Some(Kind::Devtmpfs | Kind::Other) | None => Backing::File(key),
        }
    }
}

/// What a mounted file system is.
fn kind_of(mount: &MountLine<'_>) -> Kind {
    match mount.fs_type {
        b"tmpfs" | b"shm" => Kind::Shmem,
        // The initial root file system is tmpfs or ramfs; only tmpfs prints a size (`shmem_show_options`).
        b"rootfs" if mount.super_options.windows(5).any(|w| w == b"size=") => Kind::Shmem,
        b"devtmpfs" => Kind::Devtmpfs,
        b"hugetlbfs" => Kind::Hugetlb,
        _ => Kind::Other,
    }
}

/// Devices (major, minor) of `mountinfo` whose files are no page cache: shmem and hugetlb.
pub(crate) fn in_memory(mountinfo: &[u8]) -> impl Iterator<Item = Device> + '_ {
    let mounts = mountinfo::lines(mountinfo).flatten();
    mounts.filter(|mount| kind_of(mount) != Kind::Other).map(|mount| (mount.major, mount.minor))
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::Backing;
    use memprov_ledger::identity::ObjectKey;

    use super::Devices;
    use crate::maps::{MapLine, lines};

    fn parse(text: &str) -> Vec<MapLine<'_>> {
        lines(text.as_bytes()).collect::<Result<_, _>>().unwrap()
    }

    fn backings(devices: &mut Devices, text: &str) -> Vec<Backing> {
        let lines = parse(text);
        devices.learn_names(&lines);
        lines.iter().map(|line| devices.backing(line)).collect()
    }

    fn key(minor: u32, inode: u64) -> ObjectKey {
        ObjectKey { major: 0, minor, inode }
    }

    #[test]
    fn names_tell_the_kernels_own_mounts_where_nothing_else_does() {
        let text = "1000-2000 rw-s 0 00:01 1024 /dev/zero (deleted)\n\
            2000-3000 rw-p 0 00:01 1026 /memfd:x\\012y (deleted)\n\
            3000-4000 rw-s 0 00:01 0 /SYSV00000000 (deleted)\n\
            4000-5000 rw-p 0 00:11 7 /anon_hugepage (deleted)\n\
            5000-6000 rw-s 0 00:11 9 /memfd:hh (deleted)\n\
            6000-7000 rw-s 0 00:0e 14416 /secretmem (deleted)\n\
            7000-8000 rw-s 0 00:0d 5 anon_inode:[io_uring]\n";
        assert_eq!(
            backings(&mut Devices::default(), text),
            [
                Backing::Shmem(key(1, 1024)),
                Backing::Shmem(key(1, 1026)),
                Backing::Shmem(key(1, 0)),
                Backing::Hugetlb(key(0x11, 7)),
                Backing::Hugetlb(key(0x11, 9)),
                Backing::File(key(0xe, 14416)),
                Backing::File(key(0xd, 5)),
            ]
        );
    }

    #[test]
    fn mounts_tell_tmpfs_and_hugetlbfs() {
        let mut devices = Devices::default();
        devices.learn_mounts(
            b"30 25 0:27 / /dev/shm rw - tmpfs tmpfs rw\n31 25 0:40 / /huge rw - hugetlbfs none rw\n\
            24 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\nbroken\n",
        );
        let text = "1000-2000 rw-s 0 00:1b 2 /dev/shm/x (deleted)\n2000-3000 rw-s 0 00:28 3 /huge/x\n\
            3000-4000 rw-p 0 00:06 4 /dev/zero\n4000-5000 rw-s 0 00:06 4 /dev/dri/card0\n\
            5000-6000 r--p 0 fe:00 4 /usr/bin/x\n6000-7000 r--p 0 fe:00 5 /memfd:x\n";
        assert_eq!(
            backings(&mut devices, text),
            [
                Backing::Shmem(key(0x1b, 2)),
                Backing::Hugetlb(key(0x28, 3)),
                Backing::Anonymous,
                Backing::File(key(6, 4)),
                Backing::File(ObjectKey { major: 0xfe, minor: 0, inode: 4 }),
                Backing::File(ObjectKey { major: 0xfe, minor: 0, inode: 5 }),
            ]
        );
    }

    #[test]
    fn mappings_without_an_object_are_anonymous_except_the_kernels_own() {
        let text = "1000-2000 rw-p 0 00:00 0 [heap]\n2000-3000 rw-p 0 00:00 0 [anon:x]\n\
            3000-4000 r--p 0 00:00 0 [vvar]\n4000-5000 r-xp 0 00:00 0 [vdso]\n5000-6000 rw-p 0 00:00 0\n";
        assert_eq!(
            backings(&mut Devices::default(), text),
            [
                Backing::Anonymous,
                Backing::Anonymous,
                Backing::Special,
                Backing::File(key(0, 0)),
                Backing::Anonymous,
            ]
        );
    }

    #[test]
    fn memfds_of_our_own_tell_the_device_of_all_memfds() {
        assert!(!Devices::new(true).kinds.is_empty());
        assert!(Devices::new(false).kinds.is_empty());
    }
}
