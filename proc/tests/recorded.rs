//! Files that real machines of many ages and kinds printed, where they are at hand.
#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use memprov_ledger::evidence::Policy;
    use memprov_ledger::identity::Tgid;
    use memprov_proc::{Proc, ScanError, ScanOptions, Scanner, maps, numa_maps, smaps};

    fn data(below: &str) -> Option<PathBuf> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(below);
        if !path.exists() {
            eprintln!("skipped: {} is not there", path.display());
            return None;
        }
        Some(path)
    }

    fn unpack(below: &str) -> Option<tempfile::TempDir> {
        let archive = data(below)?;
        let dir = tempfile::tempdir().unwrap();
        let tar = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir.path()).status();
        assert!(tar.unwrap().success());
        Some(dir)
    }

    #[test]
    fn the_seven_thousand_mappings_of_a_browser_are_read() {
        let Some(path) = data("proc/blazesym/proc-maps-large") else { return };
        let text = std::fs::read(path).unwrap();
        let lines: Vec<_> = maps::lines(&text).collect::<Result<_, _>>().unwrap();
        assert_eq!(lines.len(), 7066);
        assert_eq!(lines.iter().filter(|l| !l.read && !l.write && !l.exec).count(), 2853);
        assert_eq!(lines.iter().filter(|l| l.name.ends_with(b" (deleted)")).count(), 43);
        assert!(lines.windows(2).all(|w| w[0].end <= w[1].start));
    }

    /// Lines of a file that are no headings of whoever kept it, and how many of those there are.
    fn numa_lines(text: &[u8]) -> (Vec<numa_maps::Line<'_>>, usize) {
        let read: Vec<_> = numa_maps::lines(text).collect();
        let wrong = read.iter().filter(|line| line.is_err()).count();
        (read.into_iter().flatten().collect(), wrong)
    }

    /// The number behind `key` in a line.
    fn count(line: &[u8], key: &str) -> Option<u64> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        words.find_map(|word| word.strip_prefix(key)?.parse().ok())
    }

    #[test]
    fn places_of_a_benchmark_on_four_nodes_are_read_under_each_policy() {
        let Some(dir) = data("proc/libcuckoo-numa_maps") else { return };
        for (name, mode, nodes) in [
            ("numa_test_bind0.txt", Policy::Bind, 1),
            ("numa_test_default.txt", Policy::Default, 1),
            ("numa_test_interleave_all.txt", Policy::Interleave, 4),
        ] {
            let text = std::fs::read(dir.join(name)).unwrap();
            let (lines, wrong) = numa_lines(&text);
            assert_eq!((wrong, lines.is_empty()), (1, false), "{name} has a heading");
            assert!(lines.iter().any(|line| line.policy == mode), "{name}");
            let mut on: Vec<u32> = lines.iter().flat_map(|l| l.nodes.iter().map(|n| n.0)).collect();
            on.sort_unstable();
            on.dedup();
            assert_eq!(on.len(), nodes, "{name}: {on:?}");
            for printed in text.split(|byte| *byte == b'\n') {
                let Some(Ok(line)) = numa_maps::lines(printed).next() else { continue };
                let pages: u64 = line.nodes.iter().map(|(_, pages)| pages).sum();
                // The kernel leaves out how many are mapped where all are anonymous.
                let all = ["mapped=", "anon="].iter().find_map(|key| count(printed, key));
                assert!(line.file.is_some() || pages == all.unwrap_or(0), "{name}: {line:?}");
            }
        }
    }

    #[test]
    fn bytes_by_node_are_the_rss_that_smaps_tells_of_the_same_mapping() {
        let Some(path) = data("text/proc/numa_maps-and-smaps-prefer1-thp.txt") else { return };
        let text = std::fs::read(path).unwrap();
        let (mut lines, _) = numa_lines(&text);
        lines.retain(|line| line.start == 0x7f95_9336_a000 && !line.nodes.is_empty());
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].policy, Policy::Preferred);
        let bytes: u64 = lines[0].bytes().unwrap().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, 409_600 << 10);
    }

    #[test]
    fn odd_mappings_are_read_and_notes_between_them_cost_only_themselves() {
        let Some(path) = data("text/proc/odd-vmas.maps.txt") else { return };
        let text = std::fs::read(path).unwrap();
        let lines: Vec<_> = maps::lines(&text).collect();
        let notes = text.split(|b| *b == b'\n').filter(|l| l.starts_with(b"#")).count();
        assert_eq!(lines.iter().filter(|l| l.is_err()).count(), notes);
        let names: Vec<_> = lines.iter().flatten().map(|l| l.name).collect();
        assert!(names.contains(&&b"[anon:dalvik-free list large object space]"[..]));
        assert!(names.contains(&&b"/SYSV00000000 (deleted) (shmid=0)"[..]));
    }

    #[test]
    fn the_parts_of_smaps_are_its_rollup() {
        let Some(dir) = unpack("proc/pcp/procpid-5.5.7-root-007.tgz") else { return };
        let proc = Proc::at(dir.path());
        let pids = proc.pids().unwrap();
        assert_eq!(pids.len(), 4);
        for tgid in pids {
            assert_eq!(proc.stat(tgid).unwrap().pid, tgid.0);
            let status = proc.status(tgid).unwrap();
            assert_eq!(status.tgid, tgid.0);
            let mut text = Vec::new();
            proc.smaps_text(tgid, &mut text).unwrap();
            let entries = smaps::entries(&text).unwrap();
            let sum = |of: fn(&smaps::Amounts) -> Option<u64>| -> u64 {
                entries.iter().map(|e| of(&e.amounts).unwrap()).sum()
            };
            let rollup = proc.rollup(tgid).unwrap();
            assert_eq!(Some(sum(|a| a.rss)), rollup.rss);
            assert_eq!(Some(sum(|a| a.anonymous)), rollup.anonymous);
            assert_eq!(Some(sum(|a| a.swap)), rollup.swap);
        }
    }

    #[test]
    fn processes_of_old_kernels_are_read_with_what_they_have() {
        for archive in [
            "procpid-3.19.0-root-002.tgz",
            "procpid-4.2.3-root-004.tgz",
            "procpid-4.18.13-root-006.tgz",
        ] {
            let Some(dir) = unpack(&format!("proc/pcp/{archive}")) else { return };
            let proc = Proc::at(dir.path());
            let pids = proc.pids().unwrap();
            assert!(!pids.is_empty());
            for tgid in pids {
                let status = proc.status(tgid).unwrap();
                assert_eq!(proc.stat(tgid).unwrap().pid, tgid.0, "{archive}");
                // RssAnon came with Linux 4.5.
                let old = archive.contains("3.19") || archive.contains("4.2.3");
                assert!(!old || status.amounts.rss_anon.is_none());
                assert!(
                    !old || status.amounts.vm_rss.is_some() || status.amounts.vm_size.is_none()
                );
            }
        }
    }

    #[test]
    fn machines_with_many_nodes_are_read() {
        for (archive, nodes) in [
            ("128arm-2pa2n8cluster4co", 4),
            ("32intel64-2p8co2t+8ve", 2),
            ("nvidiagpunumanodes", 8),
            ("40intel64-4n10c+pci-conflicts", 4),
        ] {
            let Some(dir) = unpack(&format!("proc/hwloc/{archive}.tar.bz2")) else { return };
            let proc = Proc::at(&dir.path().join(archive));
            let read = proc.nodes().unwrap();
            assert_eq!(read.len(), nodes, "{archive}");
            assert!(read.iter().all(|n| n.meminfo.mem_total.is_some()));
            assert!(read.iter().all(|n| n.distances.len() == read.len()), "{archive}");
            assert!(read.windows(2).all(|w| w[0].id < w[1].id));
        }
    }

    #[test]
    fn meminfo_of_many_kernels_is_read() {
        for n in ["001", "002", "004", "005", "006"] {
            let Some(dir) = unpack(&format!("proc/pcp/meminfo-root-{n}.tgz")) else { return };
            let root = [dir.path().to_owned(), dir.path().join(format!("meminfo-root-{n}"))];
            let read: Vec<_> = root.iter().filter_map(|r| Proc::at(r).meminfo().ok()).collect();
            assert!(read.iter().any(|m| m.mem_total > Some(0) && m.cached.is_some()), "{n}");
        }
    }

    #[test]
    fn a_recording_without_pages_is_an_error_that_names_the_file() {
        let Some(root) = data("proc/prometheus-procfs/fixtures") else { return };
        let mut scanner = Scanner::new(Proc::at(&root), ScanOptions::default());
        let error = scanner.scan(Tgid(26231), false).unwrap_err();
        assert!(matches!(error, ScanError::Read { .. }), "{error:?}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("26231/pagemap"), "{source}");
        assert!(scanner.totals(Tgid(26231)).unwrap().counters.minor_faults > 0);
    }
}
