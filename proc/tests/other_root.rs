//! Readers below a root that is not `/`: what is there, what is not, what is damaged.
#[cfg(test)]
mod tests {
    use std::path::Path;

    use memprov_ledger::evidence::Backing;
    use memprov_ledger::identity::{PAGE, StartTicks, Tgid};
    use memprov_ledger::pages::PageState;
    use memprov_proc::{Proc, ReadError, RssAccuracy, ScanError, ScanOptions, Scanner};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    const STAT: &str =
        "7 (a b) S 1 7 7 0 -1 4194304 150 0 3 0 1 1 0 0 20 0 1 0 4242 1 1 1 94000 2 140000 0 0\n";
    const STATUS: &str = "Name:\ta b\nTgid:\t7\nPid:\t7\nPPid:\t1\nVmRSS:\t16 kB\nRssAnon:\t8 kB\n\
        RssFile:\t4 kB\nRssShmem:\t4 kB\nVmSwap:\t4 kB\nThreads:\t1\n";

    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            root.write("proc/7/stat", STAT.as_bytes());
            root.write("proc/7/status", STATUS.as_bytes());
            root
        }
        fn write(&self, path: &str, text: &[u8]) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        fn proc(&self) -> Proc {
            Proc::at(self.0.path())
        }
        fn scanner(&self) -> Scanner {
            Scanner::new(self.proc(), ScanOptions::default())
        }
    }

    #[test]
    fn a_recorded_process_is_scanned_like_a_live_one() {
        let root = Root::new();
        root.write("proc/7/cgroup", b"0::/a\xff.slice\n");
        root.write("proc/7/mountinfo", b"30 25 0:27 / /dev/shm rw - tmpfs tmpfs rw\n");
        root.write(
            "proc/7/maps",
            b"1000-4000 rw-p 00000000 00:00 0 [heap]\n4000-5000 rw-s 00000000 00:1b 9 /dev/shm/x\n\
            5000-6000 r--p 00000000 08:01 3 /bin/x\n6000-7000 r--p 00000000 00:00 0 [vvar]\n",
        );
        let present = 1u64 << 63;
        let entries =
            [0, present | 1 << 56, present, 1 << 62, present | 1 << 61, present | 1 << 61, present];
        let bytes: Vec<u8> = entries.iter().flat_map(|e| e.to_ne_bytes()).collect();
        root.write("proc/7/pagemap", &bytes);
        let residency = root.scanner().scan(Tgid(7), true).unwrap();
        let state = |page: u64| residency.pages.as_ref().unwrap().at(page * PAGE);
        assert_eq!(state(1), PageState(PageState::PRESENT | PageState::EXCLUSIVE));
        assert_eq!(state(2), PageState(PageState::PRESENT));
        assert_eq!(state(3), PageState(PageState::SWAPPED));
        assert!(state(4).object() && state(5).object());
        assert_eq!(state(6), PageState(0), "pages of special mappings are not told");
        let maps = residency.maps.as_deref().unwrap();
        assert!(matches!(maps[1].backing, Backing::Shmem(_)));
        assert!(matches!(maps[2].backing, Backing::File(_)));
        assert_eq!(residency.cgroup.as_deref(), Some("/a\\xff.slice"));
        assert_eq!(
            (&*residency.comm, residency.parent, residency.start),
            ("a b", Tgid(1), Some(StartTicks(4242)))
        );
        assert_eq!(residency.layout, Some((140_000, 94_000)));
        assert_eq!(residency.after.anon, Some(8192));
        assert!(residency.slack > 0, "nothing of another machine is called exact");
    }

    #[test]
    fn a_damaged_list_of_mappings_is_an_error_with_path_and_line() {
        let root = Root::new();
        root.write("proc/7/pagemap", b"");
        root.write("proc/7/maps", b"1000-4000 rw-p 00000000 00:00 0\n4000-50");
        let error = root.scanner().scan(Tgid(7), false).unwrap_err();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(next) = source {
            text = format!("{text}: {next}");
            source = next.source();
        }
        assert!(text.contains("7/maps") && text.contains("line 2"), "{text}");
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_refused_at_once() {
        let root = Root::new();
        root.write("proc/7/pagemap", b"");
        let fifo = root.0.path().join("proc/7/maps");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = root.scanner().scan(Tgid(7), false).unwrap_err();
        assert!(
            matches!(&error, ScanError::Read { source: ReadError::NotRegular { path }, .. } if *path == fifo),
            "{error:?}"
        );
    }

    #[test]
    fn what_is_not_there_has_vanished_and_what_is_empty_is_damaged() {
        let root = Root::new();
        let mut scanner = root.scanner();
        assert!(matches!(scanner.scan(Tgid(8), false), Err(ScanError::Vanished { .. })));
        assert!(root.proc().nodes().unwrap_err().vanished());
        assert!(root.proc().rollup(Tgid(7)).unwrap_err().vanished());
        root.write("proc/7/status", b"");
        assert!(matches!(scanner.totals(Tgid(7)), Err(ScanError::Read { .. })));
        root.write("proc/7/stat", &[0xff; 5000]);
        assert!(matches!(root.proc().stat(Tgid(7)), Err(ReadError::Parse { .. })));
        root.write("proc/7/stat", &vec![b' '; 5 << 20]);
        assert!(matches!(root.proc().stat(Tgid(7)), Err(ReadError::TooLong { .. })));
    }

    #[test]
    fn frames_belong_to_the_nodes_whose_blocks_they_are_in() {
        let root = Root::new();
        root.write("sys/devices/system/node/online", b"0,2\n");
        root.write("sys/devices/system/memory/block_size_bytes", b"8000000\n");
        for (node, blocks) in [(0, &[0, 1, 4][..]), (2, &[4, 5])] {
            for block in blocks {
                root.write(&format!("sys/devices/system/node/node{node}/memory{block}"), b"");
            }
            root.write(&format!("sys/devices/system/node/node{node}/memory_failure"), b"");
        }
        let told = root.proc().node_frames().unwrap();
        let block = 32768;
        let expected = [(0, 2 * block, 0), (4 * block, 5 * block, 0), (4 * block, 6 * block, 2)];
        assert_eq!(told, expected);
        root.write("sys/devices/system/memory/block_size_bytes", b"large\n");
        assert!(root.proc().node_frames().unwrap_err().to_string().contains("block_size_bytes"));
    }

    #[test]
    fn nodes_with_gaps_and_without_cpus_or_distances_are_read() {
        let root = Root::new();
        root.write("sys/devices/system/node/online", b"0,2-3\n");
        for (node, cpus, distance) in
            [(0, "0-1", "10 20 20"), (2, "", "20 10 20"), (3, "8", "20 20")]
        {
            let dir = format!("sys/devices/system/node/node{node}");
            root.write(&format!("{dir}/cpulist"), format!("{cpus}\n").as_bytes());
            root.write(&format!("{dir}/distance"), format!("{distance}\n").as_bytes());
            let meminfo = format!("Node {node} MemTotal:  1024 kB\n");
            root.write(&format!("{dir}/meminfo"), meminfo.as_bytes());
        }
        let nodes = root.proc().nodes().unwrap();
        assert_eq!(nodes.iter().map(|n| n.id).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(nodes[1].cpus, []);
        assert_eq!(nodes[1].distances, [(0, 20), (2, 10), (3, 20)]);
        assert_eq!(nodes[2].distances, [], "one column is missing");
        assert_eq!(nodes[0].meminfo.mem_total, Some(1 << 20));
        // A node that goes while it is read costs only itself.
        std::fs::remove_dir_all(root.0.path().join("sys/devices/system/node/node2")).unwrap();
        assert_eq!(root.proc().nodes().unwrap().len(), 2);
    }

    #[test]
    fn a_list_of_children_is_that_of_all_threads() {
        let root = Root::new();
        root.write("proc/7/task/7/children", b"9 8 ");
        root.write("proc/7/task/11/children", b"");
        root.write("proc/7/task/12/children", b"10 ");
        assert_eq!(root.proc().children(Tgid(7)).unwrap(), [Tgid(8), Tgid(9), Tgid(10)]);
        assert_eq!(root.proc().pids().unwrap(), [Tgid(7)]);
        root.write("proc/7/task/12/children", b"x");
        assert!(matches!(root.proc().children(Tgid(7)), Err(ReadError::Parse { .. })));
    }

    #[test]
    fn a_given_accuracy_is_taken_as_it_is() {
        let options =
            ScanOptions { accuracy: Some(RssAccuracy::PerThread), ..ScanOptions::default() };
        let scanner = Scanner::new(Proc::at(Path::new("/nowhere")), options);
        assert_eq!(scanner.accuracy(), RssAccuracy::PerThread);
    }
}
