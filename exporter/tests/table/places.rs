//! The section of NUMA nodes.

use std::collections::BTreeMap;

use memprov::report::{Advice, NumaNode, OnNode, OwnerRow, Placement, Quantity};
use memprov::table::{View, render};
use memprov_ledger::evidence::EvidenceClass;
use unicode_width::UnicodeWidthStr;

use super::{MIB, between, book, golden, owner, process, report};

/// An owner of so many MiB on each node; `u64::MAX`: not known.
fn placed(name: &str, on: &[u64], unplaced: u64, remote: Option<f64>) -> OwnerRow {
    let known = |mib: &u64| Some(*mib).filter(|mib| *mib < u64::MAX);
    let all = on.iter().filter_map(known).sum::<u64>() + unplaced;
    let mut row = owner("mapping", name, "", all * MIB, all * MIB);
    let nodes = (0..).zip(on).map(|(node, mib)| {
        let resident = match known(mib) {
            Some(mib) => Quantity { bytes: Some(mib * MIB), ..Quantity::default() },
            None => {
                let most = between(0, EvidenceClass::Inferred, 2 * MIB, 9 * MIB);
                Quantity { bytes: None, ..most }
            }
        };
        OnNode { node, resident }
    });
    let shares =
        remote.map(|share| [("remote".to_owned(), share), ("local".to_owned(), 1.0 - share)]);
    row.placement = Some(Placement {
        nodes: nodes.collect(),
        unplaced: unplaced * MIB,
        shares: shares.into_iter().flatten().collect::<BTreeMap<_, _>>(),
        ..Placement::default()
    });
    row
}

#[test]
fn places_of_bytes_are_shown_with_what_would_help_and_with_what_is_not_known() {
    let mut wrong = placed("load_index", &[800, 0, 0], 0, Some(1.0));
    let advice = |what: &str| Advice { what: what.to_owned(), ..Advice::default() };
    let far = wrong.placement.as_mut().unwrap();
    let there = Advice {
        node: Some(1),
        bytes: Some(800 * MIB),
        remote: Some(0.0),
        against_policy: true,
        ..advice("move")
    };
    far.advice = Some(there);
    let mut spread = placed("workers", &[200, 200, 0], 0, Some(0.5));
    spread.placement.as_mut().unwrap().advice = Some(advice("shared"));
    let mut slow = placed("cold_store", &[0, 0, 100], 0, Some(0.0));
    slow.placement.as_mut().unwrap().advice = Some(advice("tier"));
    let unknown = placed("\x1b[2Jevil", &[4, u64::MAX, 0], 60, None);
    let with = |name, on: &[u64], unplaced, shares: &[(&str, f64)]| {
        let mut row = placed(name, on, unplaced, None);
        let shares = shares.iter().map(|(at, share)| ((*at).to_owned(), *share));
        row.placement.as_mut().unwrap().shares = shares.collect();
        row
    };
    let partly =
        with("partly", &[10, 20, 0], 10, &[("local", 0.5), ("remote", 0.25), ("unknown", 0.25)]);
    let nowhere = with("nowhere", &[], 20, &[("unknown", 1.0)]);
    let mut none = with("undrawn", &[10, 0, 0], 0, &[("local", 1.0)]);
    none.placement.as_mut().unwrap().nodes[1].resident =
        Quantity { bytes: None, ..between(0, EvidenceClass::Sampled, 0, MIB) };
    let owners = vec![wrong, spread, slow, unknown, partly, nowhere, none];
    let books = [("anon", book(1434 * MIB, 0, 0))];
    let mut report = report(vec![process(4242, "server", &books, owners)]);
    report.host.nodes = Some(3);
    let node = |node, cpus| NumaNode { node, cpus, distances: Vec::new() };
    report.host.numa = vec![node(0, 8), node(1, 8), node(2, 0)];
    golden("places.txt", &render(&report, &View::default()));
    let narrow = render(&report, &View { width: 40, ..View::default() });
    let section = narrow.lines().skip_while(|line| !line.starts_with("Where memory lies"));
    assert!(section.take(9).all(|line| line.width() <= 40), "{narrow}");
}
