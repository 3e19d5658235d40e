//! More owners than there is room for.

use std::collections::BTreeMap;

use memprov::access::tally::SLOTS;
use memprov::report::{AccessRow, AccessSums, Accesses};
use memprov::trace::Line;
use memprov_ledger::evidence::{Change, Evidence, Lifecycle, Served};
use memprov_ledger::time::{MonoTime, Span};

use crate::rig::{BEGIN, PID, REMOTE, Random, apply, fuser, load, row, told, whole};

/// Owners.
const OWNERS: usize = 3 * SLOTS;

/// Without digits, which names of one kind may differ by.
fn names() -> Vec<String> {
    let letter = |number: usize| char::from(b"abcdefghijklmnop"[number % 16]);
    let name = |number| [letter(number / 256), letter(number / 16), letter(number)];
    (0..OWNERS).map(|number| name(number).iter().collect()).collect()
}

fn samples(row: &AccessRow) -> u64 {
    row.sums.samples.values().sum()
}

#[test]
fn the_largest_owner_is_named_although_it_comes_last_and_nothing_is_missing() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fuser = fuser(&names);
    let mut random = Random(11);
    let (mut at, mut time) = (BEGIN, 0);
    let mut access = |number: usize, served| {
        at += 1_000_000;
        let cycles = 100 + random.bits() % 400;
        time += cycles;
        apply(&mut fuser, load(number, at, cycles, served));
    };
    // Everybody in turn, so that nobody is worth more than another.
    for _ in 0..4 {
        (0..OWNERS - 1).for_each(|number| access(number, Served::Local));
    }
    (0..500).for_each(|_| access(OWNERS - 1, REMOTE));
    let all = 4 * (OWNERS as u64 - 1) + 500;
    let told = told(&fuser);
    let last = row(&told, names[OWNERS - 1]);
    // It is larger than a slot's part of all samples.
    assert!(500 > all / SLOTS as u64 && samples(last) == 500, "{}", samples(last));
    let weights = &last.sums.methods["served"].time.as_ref().unwrap().weights;
    assert_eq!(weights.keys().collect::<Vec<_>>(), ["remote"]);
    let total = &told.totals["loads"];
    assert_eq!((total.samples["attributed"], total.time()), (all, time));
    assert_eq!(told.owners.iter().map(samples).sum::<u64>(), all);
    assert_eq!(told.owners.iter().map(|row| row.sums.time()).sum::<u64>(), time);
    assert!(told.owners.len() <= SLOTS + 1);
    assert!(told.owners.iter().any(|row| row.kind == "other"));
}

#[test]
fn whoever_has_more_than_a_slots_part_of_all_samples_has_a_row_whatever_the_order() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fuser = fuser(&names);
    let mut random = Random(12);
    let mut truth = BTreeMap::<usize, u64>::new();
    // Few have much and many have little, all mixed.
    let (all, mut added) = (30_000u64, 0);
    for n in 0..all {
        let number = usize::try_from(whole(random.next().powi(4) * OWNERS as f64)).unwrap();
        *truth.entry(number).or_default() += 1;
        apply(&mut fuser, load(number, BEGIN + n * 100_000, 200, Served::Local));
        // Panes end, and what each adds is told once.
        if n % 7_000 == 6_999 {
            added += in_pane(&fuser);
            let end = fuser.pane_end();
            fuser.advance(end.max(MonoTime(BEGIN + n * 100_000)));
        }
    }
    added += in_pane(&fuser);
    let told = told(&fuser);
    let slot = all / SLOTS as u64;
    for (number, n) in truth.iter().filter(|(_, n)| **n > slot) {
        let found = samples(row(&told, names[*number]));
        assert!(found <= *n && n - found <= slot, "{number}: {found} of {n}");
    }
    assert_eq!(told.owners.iter().map(samples).sum::<u64>(), all);
    assert_eq!(added, all);
}

#[test]
fn what_an_ended_process_did_stays_in_the_totals_when_its_rows_go() {
    let mut fuser = fuser(&["a", "b"]);
    (0..10).for_each(|n| apply(&mut fuser, load(1, BEGIN + n, 200, Served::Local)));
    let mut kernel = load(0, BEGIN + 10, 300, REMOTE);
    kernel.address = Some(u64::MAX << 12);
    apply(&mut fuser, kernel);
    let (when, change) = (Span::at(MonoTime(BEGIN + 1000)), Change::Exit);
    let exit = Lifecycle { when, tgid: PID, change };
    drop(fuser.apply(Line::Evidence(Evidence::Lifecycle(exit))));
    let before = told(&fuser);
    let kinds = |told: &Accesses| -> Vec<(String, u64)> {
        told.owners.iter().map(|row| (row.kind.clone(), samples(row))).collect()
    };
    fuser.advance(MonoTime(BEGIN + 600_000_000_000));
    let after = told(&fuser);
    let expected = [("other", 10), ("kernel", 1)].map(|(kind, n)| (kind.to_owned(), n));
    assert_eq!(kinds(&after), expected);
    let [before, after] = [before, after].map(|told| told.totals["loads"].clone());
    assert_eq!((&before.samples, before.timed), (&after.samples, after.timed));
    let weights = |of: &AccessSums| of.methods["served"].count.weights.clone();
    assert_eq!(weights(&before), weights(&after));
    fuser.advance(MonoTime(BEGIN + 1_200_000_000_000));
    assert_eq!(in_pane(&fuser), 0);
}

fn in_pane(fuser: &memprov::fuse::Fuser) -> u64 {
    let told = told(fuser);
    let added = told.owners.iter().filter_map(|row| row.added.as_ref());
    added.flat_map(|added| added.samples.values()).sum()
}
