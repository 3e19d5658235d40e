//! What the table looks like, kept in `tests/golden`; `UPDATE_GOLDEN=1` rewrites it.

mod places;
mod used;

use std::collections::BTreeMap;
use std::path::Path;

use memprov::report::{
    Book, Control, FirstTouch, Host, OwnerRow, Process, Quantity, Report, SCHEMA, SharedRow,
    TouchRow,
};
use memprov::table::{View, render};
use memprov_ledger::evidence::EvidenceClass;
use unicode_width::UnicodeWidthStr;

const MIB: u64 = 1 << 20;

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file is writable");
    }
    let expected = std::fs::read_to_string(&path).expect("UPDATE_GOLDEN=1 makes it");
    assert!(text == expected, "{} differs; it is now:\n{text}", path.display());
}

fn exact(bytes: u64) -> Quantity {
    Quantity {
        bytes: Some(bytes),
        evidence: EvidenceClass::Exact,
        lo: Some(bytes),
        hi: Some(bytes),
    }
}

fn between(bytes: u64, evidence: EvidenceClass, lo: u64, hi: u64) -> Quantity {
    Quantity { bytes: Some(bytes), evidence, lo: Some(lo), hi: Some(hi) }
}

fn owner(kind: &str, name: &str, caller: &str, reserved: u64, resident: u64) -> OwnerRow {
    OwnerRow {
        id: "00".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        caller: caller.to_owned(),
        stability: "content".to_owned(),
        stack: Vec::new(),
        truncated: false,
        reserved: exact(reserved),
        resident: exact(resident),
        swapped: None,
        touched: None,
        growth_per_minute: None,
        intervals: 1,
        first_touch: Vec::new(),
        placement: None,
    }
}

fn touch(name: &str, caller: &str, bytes: u64) -> TouchRow {
    TouchRow {
        id: "00".to_owned(),
        name: name.to_owned(),
        caller: caller.to_owned(),
        resident: between(bytes, EvidenceClass::Sampled, bytes / 10 * 9, bytes / 10 * 11),
        pages: 100,
        stack: Vec::new(),
    }
}

fn book(owned: u64, joint: u64, unattributed: u64) -> Book {
    let total = owned + joint + unattributed;
    Book {
        control: Control { lo: total, hi: total },
        owned,
        joint,
        unattributed,
        at_rest: true,
        ..Book::default()
    }
}

fn process(pid: u32, comm: &str, books: &[(&str, Book)], owners: Vec<OwnerRow>) -> Process {
    Process {
        pid,
        start_time: Some(1),
        comm: comm.to_owned(),
        space: format!("{pid:x}"),
        space_pids: vec![pid],
        cgroup: None,
        container: None,
        as_of: "2026-11-29T12:00:03.250Z".to_owned(),
        lossless: true,
        predates: 0,
        pages_unread: false,
        books: books.iter().map(|(kind, book)| ((*kind).to_owned(), book.clone())).collect(),
        owners,
        faults: None,
        first_touch: None,
        ran: None,
    }
}

fn report(processes: Vec<Process>) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-11-29T12:00:05.500Z".to_owned(),
        watching_since: "2026-11-29T11:58:00Z".to_owned(),
        no_wall_time: false,
        mechanism: None,
        host: Host {
            kernel: Some("6.18.44".to_owned()),
            nodes: Some(1),
            no_pmu: Some("ENOENT: no event cpu/mem-loads".to_owned()),
            numa: Vec::new(),
        },
        processes,
        regions: Vec::new(),
        shared: Vec::new(),
        cgroups: Vec::new(),
        lost: BTreeMap::new(),
        agent: None,
        accesses: None,
        scan_seconds: Default::default(),
        about: None,
    }
}

/// A server with an arena, at rest, beside a child that shares with it.
fn server() -> Report {
    let mut arena = owner("arena", "arena:jemalloc", "", 1600 * MIB, 1400 * MIB);
    arena.growth_per_minute = Some(12 << 20);
    arena.first_touch = vec![
        touch("dictExpand", "dbAdd", 800 * MIB),
        touch("sdsnewlen", "createStringObject", 400 * MIB),
        touch("listAddNodeTail", "pushGenericCommand", 90 * MIB),
        touch("raxInsert", "streamAppendItem", 40 * MIB),
        touch("luaM_realloc_", "", MIB),
    ];
    let mut ring = owner("mapping", "replication_ring", "replicationStart", 256 * MIB, 256 * MIB);
    ring.growth_per_minute = Some(0);
    let mut heap = owner("preexisting", "preexisting anonymous memory", "", 128 * MIB, 95 * MIB);
    heap.resident = between(95 * MIB, EvidenceClass::Inferred, 90 * MIB, 97 * MIB);
    let mut unknown = owner("pending", "pending", "", 8 * MIB, 0);
    unknown.resident = Quantity { bytes: None, ..Quantity::default() };
    let mut owners = vec![arena, ring, heap, unknown];
    owners.extend((0..25).map(|i| {
        owner("file", &format!("/usr/lib/libpart{i:02}.so"), "", 2 * MIB, 4096 * (100 - i))
    }));
    let file: u64 =
        owners.iter().filter(|o| o.kind == "file").filter_map(|o| o.resident.bytes).sum();
    let mut main = process(
        4242,
        "redis-server",
        &[
            ("anon", book(1751 * MIB, 0, 92 * MIB)),
            ("file", book(file, 143 * MIB, 0)),
            ("swap", book(3 * MIB, 0, 0)),
        ],
        owners,
    );
    main.predates = 95 * MIB;
    main.first_touch = Some(FirstTouch {
        probability: 0.01,
        pages: 4000,
        unknown_share: Some(0.11),
        rows: Vec::new(),
    });
    let mut child = process(
        4250,
        "redis-bgsave",
        &[("anon", Book { skew: -8192, ..book(20 * MIB, 1700 * MIB, 0) })],
        vec![owner("arena", "arena:jemalloc", "", 1600 * MIB, 20 * MIB)],
    );
    let anon = child.books.get_mut("anon").expect("it was made with one");
    anon.control = Control { lo: 1719 * MIB, hi: 1721 * MIB };
    anon.drift = 6 << 20;
    anon.at_rest = false;
    child.lossless = false;
    child.as_of = "2026-11-29T11:57:00Z".to_owned();
    let mut all = report(vec![child, main]);
    all.shared = vec![SharedRow {
        id: "00".to_owned(),
        kind: "file".to_owned(),
        name: "/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned(),
        as_of: "2026-11-29T12:00:00Z".to_owned(),
        stack: Vec::new(),
        reserved: exact(2 * MIB),
        resident: exact(MIB),
        sharers: 2,
        sharers_complete: false,
    }];
    all
}

#[test]
fn a_server_and_its_child_are_shown_with_their_equations() {
    golden("server.txt", &render(&server(), &View::default()));
}

#[test]
fn a_narrow_terminal_gets_the_same_rows_with_fewer_columns() {
    golden("narrow.txt", &render(&server(), &View { width: 60, ..View::default() }));
}

#[test]
fn all_owners_are_shown_when_asked_for() {
    let state_dir = Some("/tmp/my state".to_owned());
    let view = View { all: true, width: 120, state_dir, ..View::default() };
    golden("all.txt", &render(&server(), &view));
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = render(&server(), &View { color: true, ..View::default() });
    golden("color.txt", &coloured);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_eq!(plain, render(&server(), &View::default()));
}

#[test]
fn an_empty_report_says_so_and_what_to_do() {
    golden("empty.txt", &render(&report(Vec::new()), &View::default()));
}

/// The commands suggested, without what they are for.
fn suggested(report: &Report, view: &View) -> Vec<String> {
    let text = render(report, view);
    let next = text.split_once("next:\n").map_or("", |(_, next)| next);
    let command = |line: &str| line.split("  #").next().unwrap_or_default().trim().to_owned();
    next.lines().map(command).collect()
}

#[test]
fn every_suggested_command_can_be_pasted_as_it_stands() {
    let one = || vec![process(1, "a", &[("anon", book(4096, 0, 0))], Vec::new())];
    let mut replay = report(one());
    replay.source = "replay".to_owned();
    let trace = |name: &str| View { trace: Some(name.to_owned()), ..View::default() };
    assert_eq!(
        suggested(&replay, &trace("/tmp/it's.zst")),
        [
            "memprov replay '/tmp/it'\\''s.zst' --all",
            "memprov replay '/tmp/it'\\''s.zst' --output report-json",
            "memprov replay '/tmp/it'\\''s.zst' --output otlp-json",
        ]
    );
    assert_eq!(suggested(&replay, &View::default()), [""; 0], "of what, is not known");
    assert_eq!(suggested(&replay, &trace("a\x1bb")), [""; 0], "cannot be shown as it is");

    let mut snapshot = report(one());
    snapshot.source = "snapshot".to_owned();
    let place = View { state_dir: Some("/tmp/d".to_owned()), ..View::default() };
    assert_eq!(
        suggested(&snapshot, &place),
        [
            "memprov run --state-dir /tmp/d",
            "memprov report --snapshot --pid 1 --all",
            "memprov check"
        ]
    );
    let running = View { daemon: true, ..place.clone() };
    assert_eq!(suggested(&snapshot, &running)[0], "memprov report --state-dir /tmp/d --pid 1");

    let record = "memprov record --state-dir /run/memprov-record --pid 4242 --for 60s";
    let of = |view: &View| suggested(&server(), view)[0].clone();
    assert_eq!(of(&View::default()), format!("{record} --output growth.jsonl.zst"));
    assert!(of(&place).starts_with("memprov record --state-dir /tmp/d-record --pid 4242 "));
}

#[test]
fn a_snapshot_says_in_its_first_line_what_it_cannot_tell() {
    let mut report = report(Vec::new());
    report.source = "snapshot".to_owned();
    let first = |view: &View| render(&report, view).lines().next().unwrap().to_owned();
    let text = first(&View::default());
    assert!(text.starts_with("memprov snapshot: no daemon; call sites are unknown"), "{text}");
    let text = first(&View { daemon: true, ..View::default() });
    assert!(text.starts_with("memprov snapshot: no daemon asked; "), "{text}");
}

#[test]
fn what_holds_no_memory_takes_no_line_unless_all_is_asked_for() {
    let mut empty = book(0, 0, 0);
    empty.control.hi = 256 << 10;
    let rows = vec![
        owner("other", "[vvar]", "", 16_384, 0),
        owner("mapping", "f", "main", 8192, 4096),
        owner("mapping", "untouched", "main", 8192, 0),
        owner("other", "[uprobes]", "", 4096, 4096),
    ];
    let books = [("anon", book(4096, 0, 0)), ("file", book(4096, 0, 0)), ("hugetlb", empty)];
    let report = report(vec![process(1, "a", &books, rows)]);
    let text = render(&report, &View::default());
    assert!(!text.contains("[vvar]") && text.contains("… 1 more owners 0"), "{text}");
    assert!(text.contains("[uprobes]") && text.contains("untouched"), "{text}");
    assert!(!text.contains("huge pages"), "{text}");
    let all = render(&report, &View { all: true, ..View::default() });
    assert!(all.contains("[vvar]") && !all.contains("more owners"), "{all}");
}

#[test]
fn what_first_touch_did_not_see_is_a_row_where_it_is_more_than_a_tenth() {
    let text = |seen: u64| {
        let mut arena = owner("arena", "arena:glibc", "", 200 * MIB, 100 * MIB);
        arena.first_touch = vec![touch("f", "main", seen / 2), touch("g", "main", seen / 2)];
        let books = [("anon", book(100 * MIB, 0, 0))];
        render(&report(vec![process(1, "a", &books, vec![arena])]), &View::default())
    };
    let rest = text(70 * MIB);
    let lines: Vec<&str> = rest.lines().filter(|line| line.contains('↳')).collect();
    assert!(lines[2].contains("30.0 MiB") && lines[2].contains("sampled"), "{rest}");
    assert!(lines[2].ends_with("↳ first touch not seen"), "{rest}");
    assert!(!text(90 * MIB).contains("not seen"));
    assert!(!text(120 * MIB).contains("not seen"));
}

#[test]
fn hostile_names_cannot_command_the_terminal_or_break_lines() {
    let evil = "\x1b]0;owned\x07\x1b[2J\r\n\u{202e}txt.exe\u{9b}A\u{200d}";
    let mut row = owner("file", evil, evil, 8192, 4096);
    row.first_touch = vec![touch(evil, evil, 4096)];
    let mut long = owner("file", &format!("/{}", "deep/".repeat(2000)), "漢字", 8192, 4096);
    long.resident = exact(2048);
    let mut bad = process(7, evil, &[("anon", book(6144, 0, 0))], vec![row, long]);
    bad.as_of = evil.to_owned();
    let mut report = report(vec![bad]);
    report.host.kernel = Some(evil.to_owned());
    report.host.no_pmu = Some(evil.to_owned());
    report.watching_since = evil.to_owned();
    report.source = evil.to_owned();
    report.lost.insert(evil.to_owned(), 3);
    let text = render(&report, &View::default());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!text.contains(['\u{202e}', '\u{200d}']));
    golden("hostile.txt", &text);
}

#[test]
fn losses_are_shown_with_what_they_mean_and_only_when_there_are_any() {
    let mut lossy = report(vec![process(1, "a", &[("anon", book(4096, 0, 0))], Vec::new())]);
    assert!(!render(&lossy, &View::default()).contains("Lost"));
    for (stream, count) in [
        ("lifecycle", 12),
        ("sideband", 5),
        ("stacks", 3),
        ("faults", 1),
        ("queue", 2),
        ("scans", 0),
    ] {
        lossy.lost.insert(stream.to_owned(), count);
    }
    lossy.host =
        Host { kernel: Some("5.10.0".to_owned()), nodes: Some(4), no_pmu: None, numa: Vec::new() };
    golden("losses.txt", &render(&lossy, &View::default()));
}

#[test]
fn a_process_that_is_watched_by_side_band_says_what_that_means() {
    let mut weak = process(1, "a", &[("anon", book(4096, 0, 0))], Vec::new());
    weak.lossless = false;
    let mut report = report(vec![weak]);
    assert!(render(&report, &View::default()).contains("events went unseen"));
    report.mechanism = Some("perf-sideband".to_owned());
    let text = render(&report, &View::default());
    assert!(text.contains("by perf side-band: no call sites, owners are inferred"), "{text}");
    assert!(!text.contains("events went unseen"), "{text}");
}

#[test]
fn a_recording_is_told_as_one_and_not_as_a_daemon_that_knows_little() {
    let unknown = Quantity { bytes: None, evidence: EvidenceClass::Inferred, lo: None, hi: None };
    let mut rows = vec![owner("mapping", "call site unknown", "", 8 * MIB, 0)];
    rows[0].resident = unknown.clone();
    let mut small = rows.clone();
    small[0].reserved = exact(4096);
    let mut processes = vec![
        process(7, "kthreadd", &[], Vec::new()),
        process(8, "a", &[], small),
        process(9, "b", &[], rows),
    ];
    processes
        .iter_mut()
        .for_each(|process| (process.pages_unread, process.lossless) = (true, false));
    let mut report = report(processes);
    report.source = "import".to_owned();
    report.mechanism = Some("perf-sideband".to_owned());
    report.lost = BTreeMap::from([("sideband".to_owned(), 3), ("accesses".to_owned(), 17)]);
    golden("import.txt", &render(&report, &View::default()));
    report.no_wall_time = true;
    let text = render(&report, &View::default());
    let told =
        ["1 NUMA node · no wall time\n", "since second 17959", "as of second 17959", "(2 s ago)"];
    assert!(told.iter().all(|told| text.contains(told)) && !text.contains("Z "), "{text}");
}

#[test]
fn books_that_do_not_close_are_never_shown_as_an_equation() {
    let mut broken = book(8192, 0, 0);
    broken.control = Control { lo: 4096, hi: 4096 };
    let report = report(vec![process(1, "a", &[("anon", broken)], Vec::new())]);
    let text = render(&report, &View::default());
    assert!(text.contains("RSS 8.00 KiB ≠ owners 8.00"), "{text}");
    assert!(text.contains("the kernel says 4.00 · the books do not close"), "{text}");
    assert!(!text.contains(" = "), "{text}");
}

#[test]
fn an_address_space_of_several_processes_is_shown_once() {
    let mut first = process(10, "java", &[("anon", book(4096, 0, 0))], Vec::new());
    first.space_pids = vec![10, 11];
    let mut second = first.clone();
    second.pid = 11;
    let text = render(&report(vec![first, second]), &View::default());
    assert_eq!(text.matches("RSS").count(), 1, "{text}");
    assert!(text.contains("10 java (same memory: 11)"), "{text}");
}

#[test]
fn processes_beyond_the_largest_are_folded_with_their_sum() {
    let many = (1..=100u32)
        .map(|pid| {
            process(pid, "worker", &[("anon", book(u64::from(pid) * MIB, 0, 0))], Vec::new())
        })
        .collect();
    let report = report(many);
    let text = render(&report, &View::default());
    let folded: u64 = (1..=92).sum();
    assert!(
        text.contains(&format!("… 92 more processes, RSS {:.2} GiB", folded as f64 / 1024.0)),
        "{text}"
    );
    let all = render(&report, &View { all: true, ..View::default() });
    assert_eq!(all.matches(" worker").count(), 100);
}

#[test]
fn names_keep_sixteen_columns_while_other_columns_can_go() {
    let golden_name = |width| format!("width{width}.txt");
    for width in [40, 52] {
        golden(&golden_name(width), &render(&server(), &View { width, ..View::default() }));
    }
    for width in 40..=120 {
        let text = render(&server(), &View { width, ..View::default() });
        for name in ["replication_ring", "arena:jemalloc"] {
            assert!(text.contains(name), "{width}: {text}");
        }
        let head = text.lines().find(|line| line.contains("RESIDENT")).unwrap();
        assert_eq!(head.contains("RESERVED"), width >= 62, "{width}");
        assert_eq!(head.contains("GROWTH"), width >= 52, "{width}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_but_those_to_be_copied() {
    for width in [40, 60, 76, 80, 100, 200] {
        let text = render(&server(), &View { width, ..View::default() });
        let table = text.split("next:").next().unwrap();
        for line in table.lines() {
            assert!(line.width() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn what_is_left_out_of_the_table_and_unknown_is_no_zero() {
    let nothing = |pid| process(pid, "recorded", &[], Vec::new());
    let text = render(&report((1..=60).map(nothing).collect()), &View::default());
    assert!(text.contains("more processes, RSS ?"), "{text}");
    let unknown = Quantity { bytes: None, ..exact(0) };
    let row = |n: u64| OwnerRow {
        resident: unknown.clone(),
        ..owner("file", &format!("/f{n}"), "", MIB, 0)
    };
    let many = process(1, "many", &[], (0..60).map(row).collect());
    let text = render(&report(vec![many]), &View::default());
    assert!(text.contains("more owners ?"), "{text}");
}
