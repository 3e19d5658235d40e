//! Laws of redaction: nothing that names or places somebody remains, and everything that counts does.

use std::collections::BTreeSet;
use std::sync::Arc;

use memprov::trace::{Form, Line, Redactor};
use memprov_ledger::evidence::{
    Backing, Change, Counters, Evidence, Lifecycle, Mapping, Residency,
};
use memprov_ledger::identity::{Extent, ModuleId, PAGE, StartTicks, Tgid};
use memprov_ledger::pages::PageState;
use memprov_ledger::stack::{Module, ModuleRole};
use memprov_ledger::time::Span;
use memprov_ledger::touch::Sample;
use proptest::prelude::proptest;
use proptest::{collection, prop_assert, prop_assert_eq};
use serde_json::Value;

use super::generate;

const OLD: Tgid = Tgid(10);

fn redactor() -> Redactor {
    Redactor::with_key(*b"sixteen bytes, 0", |name| name == "glibc: malloc")
}

/// A line without its texts and the places of its pages.
fn shape(line: &Line) -> Value {
    fn blank(value: &mut Value, key: &str) {
        match value {
            Value::String(text) if !matches!(key, "kind" | "end" | "role" | "stream") => {
                text.clear();
            }
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| blank(value, key)),
            Value::Array(list) if matches!(key, "pages" | "drawn") => {
                list.iter_mut().for_each(|run| run[0] = Value::Null);
            }
            Value::Array(list) => list.iter_mut().for_each(|value| blank(value, key)),
            _ => {}
        }
    }
    let text = super::write(Form::Plain, &generate::header(), std::slice::from_ref(line));
    let text = String::from_utf8(text).expect("a trace is text");
    let mut value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a line is JSON");
    blank(&mut value, "");
    value
}

fn extents(line: &Line) -> Vec<Extent> {
    match line {
        Line::Evidence(Evidence::Lifecycle(e)) => match e.change {
            Change::Map { extent, .. }
            | Change::Unmap { extent }
            | Change::Name { extent, .. }
            | Change::Vma { extent, .. }
            | Change::Doubt { extent } => vec![extent],
            Change::Remap { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        },
        Line::Evidence(Evidence::Residency(e)) => {
            let maps = e.maps.iter().flat_map(|maps| maps.iter()).map(|m| m.extent);
            maps.chain(e.pages.iter().flat_map(|p| p.all()).map(|(extent, _)| extent)).collect()
        }
        Line::Evidence(Evidence::Frames(e)) => e.runs.iter().map(|run| run.extent).collect(),
        Line::Evidence(Evidence::Placed(e)) => {
            let drawn = e.drawn.iter().flat_map(|drawn| drawn.iter());
            let drawn = drawn.map(|(page, _)| Extent::new(page * PAGE, PAGE));
            let ranges = e.ranges.iter().flat_map(|ranges| ranges.iter());
            ranges.map(|range| range.extent).chain(drawn).collect()
        }
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn redaction_keeps_shape_and_sizes_and_no_name(
        lines in collection::vec(generate::line(generate::name()), 1..12)
    ) {
        let mut redactor = redactor();
        for line in lines {
            let redacted = redactor.line(line.clone());
            // Public names stay; these are drawn without the mark.
            prop_assert_eq!(shape(&redacted), shape(&line));
            if !matches!(line, Line::Name { .. }) {
                prop_assert!(!format!("{redacted:?}").contains("zeal"), "{:?}", redacted);
            }
            let moves: BTreeSet<u64> = extents(&line)
                .into_iter()
                .zip(extents(&redacted))
                .filter(|(before, _)| before.start < 1 << 56)
                .map(|(before, after)| {
                    assert_eq!(before.len(), after.len());
                    after.start - before.start
                })
                .collect();
            prop_assert!(moves.len() <= 1, "one process moves as one: {:?}", moves);
            prop_assert!(moves.iter().all(|by| by % (2 << 20) == 0));
        }
    }
}

#[test]
fn the_header_of_a_redacted_trace_names_no_host_and_claims_no_sample() {
    let (before, after) = (generate::header(), redactor().header(generate::header()));
    assert!(after.redacted);
    assert_eq!(after.identity.host_id.len(), before.identity.host_id.len());
    assert_ne!(after.identity.host_id, before.identity.host_id);
    assert_ne!(after.identity.host_name, before.identity.host_name);
    assert_eq!(after.sample, Sample::default());
    assert_eq!(after.clock, before.clock);
}

fn change(tgid: Tgid, change: Change) -> Line {
    Line::Evidence(Evidence::Lifecycle(Lifecycle { when: Span::default(), tgid, change }))
}

fn unmap(redactor: &mut Redactor, tgid: Tgid) -> u64 {
    let extent = Extent::new(0x7f00_0000_0000, PAGE);
    extents(&redactor.line(change(tgid, Change::Unmap { extent })))[0].start
}

#[test]
fn a_child_moves_as_its_parent_until_it_runs_another_program() {
    let mut redactor = redactor();
    let (child, other) = (Tgid(11), Tgid(12));
    assert_eq!(unmap(&mut redactor, OLD), unmap(&mut redactor, other), "older than the trace");
    redactor.line(change(OLD, Change::Exec));
    let parent = unmap(&mut redactor, OLD);
    assert_ne!(parent, unmap(&mut redactor, other));
    redactor.line(change(OLD, Change::Fork { child, child_start: StartTicks(1), shares: false }));
    assert_eq!(unmap(&mut redactor, child), parent);
    redactor.line(change(child, Change::Exec));
    assert_ne!(unmap(&mut redactor, child), parent);
    assert_eq!(unmap(&mut redactor, OLD), parent);
}

#[test]
fn all_places_of_a_scan_move_together_and_those_of_the_kernel_stay() {
    let start = 0x5555_5540_0000;
    let mapping = |start, path: &str| Mapping {
        extent: Extent::new(start, PAGE),
        backing: Backing::Anonymous,
        offset: 0,
        shared: false,
        exec: false,
        write: false,
        path: Some(path.into()),
    };
    let scan = Residency {
        when: Span::default(),
        tgid: OLD,
        start: Some(StartTicks(1)),
        comm: "secret".into(),
        parent: Tgid(1),
        layout: Some((start, start)),
        cgroup: Some("/".into()),
        before: Counters::default(),
        maps: Some([mapping(start, "[heap]"), mapping(0xffff_ffff_ff60_0000, "[vsyscall]")].into()),
        pages: Some(Arc::new([(Extent::new(start, PAGE), PageState(1))].into_iter().collect())),
        exclusive_known: true,
        after: Counters::default(),
        slack: 0,
        object_slack: 0,
    };
    let mut redactor = redactor();
    let line = redactor.line(Line::Evidence(Evidence::Residency(Box::new(scan))));
    let Line::Evidence(Evidence::Residency(scan)) = line else { panic!("another kind") };
    let (maps, pages) = (scan.maps.unwrap(), scan.pages.unwrap());
    let moved = maps[0].extent.start;
    assert_ne!(moved, start);
    assert_eq!(scan.layout, Some((moved, moved)));
    assert_eq!(pages.at(moved), PageState(1));
    assert_eq!(maps[1].extent.start, 0xffff_ffff_ff60_0000);
    assert_eq!(scan.cgroup.as_deref(), Some("/"));
}

/// What a path becomes: `*` for each word that was hashed, `#` for each digit.
fn redacted(path: &str) -> String {
    let extent = Extent::default();
    let line = redactor().line(change(OLD, Change::Name { extent, name: Some(path.into()) }));
    let Line::Evidence(Evidence::Lifecycle(e)) = line else { panic!("another kind") };
    let Change::Name { name: Some(name), .. } = e.change else { panic!("another change") };
    name.to_string()
}

#[test]
fn punctuation_and_the_words_for_kinds_of_objects_stay() {
    let word = redacted("acme");
    assert_eq!(word.len(), 12);
    assert_eq!(redacted("/acme/acme-acme.so.6"), format!("/{word}/{word}-{word}.so.6"));
    assert_eq!(redacted("/memfd:acme (deleted)"), format!("/memfd:{word} (deleted)"));
    assert_eq!(redacted("[anon:acme]"), format!("[anon:{word}]"));
    assert_eq!(redacted("/dev/shm/acme"), format!("/dev/shm/{word}"));
    assert_eq!(redacted("/SYSV0052e2c1 (deleted)").len(), "/SYSV0052e2c1 (deleted)".len());
    assert_eq!(redacted("glibc: malloc"), "glibc: malloc");
    assert_ne!(redacted("glibc: other"), "glibc: other");
    assert_ne!(word, redacted("acmf"));
}

/// Templates of paths replace runs of digits and hex: what they would join must still look alike.
#[test]
fn numbers_stay_numbers_of_the_same_length_and_words_hold_none() {
    let numbers = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    assert_eq!(numbers(&redacted("acme")), 0);
    assert_eq!(numbers(&redacted("acme-12345678901234567890")), 20);
    let container = "3f2a".repeat(16);
    let hidden = redacted(&format!("docker-{container}.scope"));
    let (_, id) = hidden.split_once('-').unwrap();
    let id = id.strip_suffix(".scope").unwrap();
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_ne!(id, container);
}

#[test]
fn modules_of_the_user_lose_their_names_and_public_ones_keep_them() {
    let mut redactor = redactor();
    let build_id = Some("ab12".repeat(10));
    let mut names = |id, name: &str, role| {
        let id = ModuleId(id);
        let module = Module { name: name.into(), build_id: build_id.clone(), role };
        let Line::Module { module: after, .. } =
            redactor.line(Line::Module { id, module: module.clone() })
        else {
            panic!("another kind")
        };
        let name = Line::Name { module: id, function: 1, name: Some("inner".into()) };
        (module == after, redactor.line(name.clone()) == name)
    };
    assert_eq!(names(1, "acmed", ModuleRole::Code), (false, false));
    assert_eq!(names(2, "libc.so.6", ModuleRole::Libc), (true, true));
}

#[test]
fn every_trace_has_its_own_key() {
    let name = Line::Name { module: ModuleId(1), function: 1, name: Some("inner".into()) };
    let [one, two] = [(); 2].map(|()| Redactor::new(|_| false).unwrap().line(name.clone()));
    assert_ne!(one, two);
    assert_eq!(redactor().line(name.clone()), redactor().line(name));
}
