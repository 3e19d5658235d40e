//! `/proc/PID/cgroup` (cgroups(7)): the cgroup of a process, and the container that its path names.

use crate::bytes::{cut, decimal_u32, lines as text_lines};
use crate::read::ParseError;

/// A line: `hierarchy:controllers:path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Hierarchy id; 0 is cgroup v2.
    pub hierarchy: u32,
    /// Controllers, comma-separated; empty for v2, `name=systemd` for a hierarchy without any.
    pub controllers: &'a [u8],
    /// Path below the hierarchy's root, seen from our cgroup namespace.
    pub path: &'a [u8],
}

/// The lines. One that the kernel does not print is an error in its place.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<CgroupLine<'_>, ParseError>> {
    text_lines(text)
        .map(|(number, text)| line(text).map_err(|what| ParseError { line: number, what }))
}

fn line(text: &[u8]) -> Result<CgroupLine<'_>, &'static str> {
    let (hierarchy, rest) = cut(text, b':').ok_or("no controllers")?;
    let (controllers, path) = split_path(rest).ok_or("no path")?;
    let hierarchy = decimal_u32(hierarchy).ok_or("hierarchy is not a number")?;
    Ok(CgroupLine { hierarchy, controllers, path })
}

/// A hierarchy's name may hold colons (`name=a:b`); a path begins with a slash and may hold them, too.
fn split_path(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.windows(2).position(|w| w == b":/")?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The path in the hierarchy that charges memory: that of the `memory` controller (v1 and hybrid), else v2, else
/// whatever comes first. `None` when no line can be read.
#[must_use]
pub fn memory_path(text: &[u8]) -> Option<&[u8]> {
    let rank = |line: &CgroupLine<'_>| match line.controllers {
        c if c.split(|b| *b == b',').any(|c| c == b"memory") => 0,
        _ if line.hierarchy == 0 => 1,
        b"name=systemd" => 2,
        _ => 3,
    };
    lines(text).flatten().min_by_key(rank).map(|line| line.path)
}

/// The id of the container that a cgroup path names: 64 hex digits, or the task form of ECS (32 hex digits, `-`,
/// digits).
///
/// Understood are `…/ID`, `…/RUNTIME-ID.scope` (docker, crio, cri-containerd, libpod, …) and `…:cri-containerd:ID`. The
/// innermost container counts. The scopes of a container's monitor (`crio-conmon-ID`) are not the container.
#[must_use]
pub fn container_id(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(|segment| {
        let name = segment.strip_suffix(".scope").unwrap_or(segment);
        if name.contains("conmon") {
            return None;
        }
        let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let ecs = |text: &str| {
            text.split_once('-').is_some_and(|(task, number)| {
                let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
                task.len() == 32 && hex(task) && digits
            })
        };
        let last = name.rsplit(['-', ':']).next().unwrap_or(name);
        let id = if ecs(name) { name } else { last };
        (ecs(id) || id.len() == 64 && hex(id)).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{container_id, lines, memory_path};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_hierarchy_that_charges_memory_counts() {
        assert_eq!(
            memory_path(b"0::/system.slice/a:b.service\n"),
            Some(&b"/system.slice/a:b.service"[..])
        );
        let hybrid = b"9:name=systemd:/s\n4:cpu,memory:/m\n0::/u\n";
        assert_eq!(memory_path(hybrid), Some(&b"/m"[..]));
        assert_eq!(memory_path(b"1:name=systemd:/s\n0::/\n"), Some(&b"/"[..]));
        assert_eq!(memory_path(b"3:cpuset:/c\n1:name=systemd:/s\n"), Some(&b"/s"[..]));
        assert_eq!(memory_path(b""), None);
        assert_eq!(memory_path(b"nonsense\n0::/\xff\n"), Some(&b"/\xff"[..]));
    }

    #[test]
    fn every_runtime_names_its_container() {
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/kubepods.slice/kubepods-pod12_34.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods/burstable/pod12ab/{ID}"),
            format!("/kubepods.slice/kubepods-pod1.slice:cri-containerd:{ID}"),
            format!("/machine.slice/libpod-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/kubepods.slice/crio-{ID}.scope"),
            format!("/docker/{ID}/init.scope"),
        ] {
            assert_eq!(container_id(&path), Some(ID), "{path}");
        }
        let task = "0123456789abcdef0123456789abcdef-1234567890";
        assert_eq!(
            container_id(&format!("/ecs/0123456789abcdef0123456789abcdef/{task}")),
            Some(task)
        );
    }

    #[test]
    fn what_is_no_container_has_no_id() {
        for path in [
            "/".to_owned(),
            "/system.slice/ssh.service".to_owned(),
            "/user.slice/user-1000.slice/session-3.scope".to_owned(),
            "/process_api/611f958bfc3112562646538c425ca85a".to_owned(),
            format!("/kubepods.slice/crio-conmon-{ID}.scope"),
            format!("/docker/{}", ID.to_uppercase()),
            format!("/docker/{ID}0"),
        ] {
            assert_eq!(container_id(&path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            assert!(lines(&text).count() <= text.len());
            let text = String::from_utf8_lossy(&text);
            assert!(container_id(&text).is_none_or(|id| text.contains(id)));
            assert!(memory_path(text.as_bytes()).is_none_or(|path| path.starts_with(b"/")));
        }
    }
}
