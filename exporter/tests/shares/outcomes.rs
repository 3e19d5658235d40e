//! Every sample is told of once, and what is not known is not in a denominator.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{
    Access, Evidence, Gap, NodeRange, Placed, Policy, Population, Served, Stream,
};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::rig::{BEGIN, PID, REMOTE, address, apply, fuser, load, row, told};
use memprov::report::AccessSums;
use memprov::trace::Line;

#[test]
fn all_samples_have_a_row_and_an_outcome() {
    let mut fuser = fuser(&["a"]);
    let good = |at| load(0, BEGIN + at, 200, Served::Local);
    apply(&mut fuser, good(1));
    apply(&mut fuser, Access { latency: Some(38_882_752), ..good(2) });
    apply(&mut fuser, Access { latency: Some(100_000_000_000_000), ..good(3) });
    apply(&mut fuser, Access { latency: None, ..good(4) });
    apply(&mut fuser, Access { address: Some(0xffff_8818_17d6_3e02), ..good(5) });
    apply(&mut fuser, Access { address: None, ..good(6) });
    apply(&mut fuser, Access { address: Some(0x1000), ..good(7) });
    apply(&mut fuser, Access { tgid: None, ..good(8) });
    apply(&mut fuser, Access { tgid: Some(Tgid(9)), ..good(9) });
    let lost = Gap {
        when: Span::at(MonoTime(BEGIN + 20)),
        stream: Stream::Lifecycle,
        lost: 1,
        whose: Some(PID),
    };
    drop(fuser.apply(Line::Evidence(Evidence::Gap(lost))));
    apply(&mut fuser, good(10));
    let told = told(&fuser);
    let total = &told.totals["loads"];
    let samples = |outcome: &str| total.samples.get(outcome).copied().unwrap_or(0);
    assert_eq!(samples("attributed"), 2, "{total:?}");
    assert_eq!(samples("implausible"), 2);
    assert_eq!((samples("kernel"), samples("no_address"), samples("unowned")), (1, 1, 1));
    assert_eq!(samples("unknown"), 3);
    assert_eq!(total.samples.values().sum::<u64>(), 10);
    let rows = told.owners.iter().map(|row| row.sums.samples.values().sum::<u64>());
    assert_eq!(rows.sum::<u64>(), 10);
    // The impossible ones are counted and not averaged in.
    let a = &row(&told, "a").sums;
    assert_eq!((a.timed, a.latency.as_ref().unwrap().max), (1, Some(200.0)));
    assert_eq!(a.methods["served"].time.as_ref().unwrap().weights["local"], 200);
}

#[test]
fn what_is_not_known_has_a_share_of_its_own_and_is_in_no_other() {
    let mut fuser = fuser(&["a"]);
    for number in 0..4_000u64 {
        let served = match number % 4 {
            0 => REMOTE,
            1 => Served::Local,
            _ => Served::NotAvailable,
        };
        apply(&mut fuser, load(0, BEGIN + number * 10_000_000, 100, served));
    }
    let told = told(&fuser);
    let time = row(&told, "a").sums.methods["served"].time.as_ref().unwrap();
    assert!((time.unknown_share.unwrap() - 0.5).abs() < 1e-9);
    let remote = time.shares["remote"];
    assert!((remote.share - 0.5).abs() < 1e-9 && (time.effective - 2000.0).abs() < 1e-6);
    assert!(!row(&told, "a").sums.methods.contains_key("placement"));
}

#[test]
fn where_places_are_known_of_some_those_of_all_rows_add_up_to_the_whole() {
    let mut fuser = fuser(&["a", "b"]);
    for number in 0..20usize {
        let page_node = (number % 2 == 0).then_some(1);
        let one = load(number % 2, BEGIN + number as u64 * 10_000_000, 100, Served::NotAvailable);
        apply(&mut fuser, Access { cpu_node: Some(0), page_node, ..one });
    }
    let told = told(&fuser);
    let placed = |sums: &AccessSums| sums.methods["placement"].count.weights.clone();
    let expected = |at: &str| BTreeMap::from([(at.to_owned(), 10)]);
    assert_eq!(placed(&row(&told, "a").sums), expected("remote"));
    assert_eq!(placed(&row(&told, "b").sums), expected("unknown"));
    let mut all = expected("remote");
    all.extend(expected("unknown"));
    assert_eq!(placed(&told.totals["loads"]), all);
}

#[test]
fn two_methods_are_two_answers_and_what_contradicts_is_counted() {
    let mut fuser = fuser(&["a"]);
    for number in 0..2_000u64 {
        let on = |served, cpu, page| Access {
            cpu_node: Some(cpu),
            page_node: Some(page),
            ..load(0, BEGIN + number * 10_000_000, 100, served)
        };
        let access = match number % 4 {
            // In a cache, though its page is far away: no contradiction.
            0 => on(Served::Level1, 0, 1),
            1 => on(REMOTE, 0, 1),
            2 => on(Served::Local, 1, 1),
            _ => on(Served::Local, 0, 1),
        };
        apply(&mut fuser, access);
    }
    let told = told(&fuser);
    let sums = &row(&told, "a").sums;
    assert_eq!(sums.conflicts, 500);
    let share = |method: &str| sums.methods[method].time.as_ref().unwrap().shares["remote"].share;
    assert!((share("served") - 0.25).abs() < 1e-9 && (share("placement") - 0.75).abs() < 1e-9);
}

#[test]
fn populations_are_not_added_up() {
    let mut fuser = fuser(&["a"]);
    for number in 0..50 {
        let at = BEGIN + number * 10_000_000;
        apply(&mut fuser, load(0, at, 100, Served::Local));
        let population = Population::Stores;
        let store = load(0, at, 1, Served::Level1);
        apply(&mut fuser, Access { population, latency: None, ..store });
    }
    let told = told(&fuser);
    let rows: Vec<_> = told.owners.iter().map(|row| (&*row.population, row.sums.timed)).collect();
    assert_eq!(rows, [("loads", 50), ("stores", 0)]);
    let withheld = &told.totals["loads"].methods["served"].time.as_ref().unwrap().withheld;
    assert_eq!(withheld.as_deref(), Some("few_samples"));
}

#[test]
fn a_report_about_nobody_sampled_has_no_such_section() {
    assert_eq!(fuser(&["a"]).report(None, MonoTime(BEGIN)).accesses, None);
}

#[test]
fn where_a_page_lies_is_taken_from_the_newest_reading_where_the_sample_does_not_tell_it() {
    let mut fuser = fuser(&["a"]);
    let extent = Extent::new(address(0), 1 << 20);
    let range = NodeRange { extent, policy: Policy::Default, nodes: vec![(1, 1 << 20)] };
    let when = Span { begin: MonoTime(BEGIN - 400), end: MonoTime(BEGIN - 300) };
    let placed = Placed { when, tgid: PID, ranges: Some([range].into()), ..Placed::default() };
    drop(fuser.apply(Line::Evidence(Evidence::Placed(Box::new(placed)))));
    for number in 0..100 {
        let load = load(0, BEGIN + number * 10_000_000, 100, Served::Level1);
        apply(&mut fuser, Access { cpu_node: Some(0), ..load });
    }
    let told = told(&fuser);
    let time = row(&told, "a").sums.methods["placement"].time.as_ref().unwrap();
    assert_eq!(time.weights, BTreeMap::from([("remote".to_owned(), 10_000)]));
}
