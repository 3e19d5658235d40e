//! Charge books in the report: one for each cgroup that the processes of the report are in, and for those above.

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::book::Sharing;
use memprov_ledger::charge::{Bounded, Charge, ChargeBook, close};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::space::Space;
use memprov_proc::cgroup::container_id;
use memprov_proc::memcg::upwards;

use crate::owners::{content_id, template};
use crate::report::{CacheFile, Cgroup, ChargeRow, Control, Quantity};
use crate::trace::Clock;
use crate::wall;

/// The books of the cgroups that `spaces` are in, and of those above, in the order of their paths.
#[must_use]
pub fn books(
    ledger: &Ledger,
    sharing: &Sharing<'_>,
    spaces: &[&Space],
    clock: Clock,
) -> Vec<Cgroup> {
    fn cgroup(space: &Space) -> Option<&str> {
        space.scan.as_ref()?.cgroup.as_deref()
    }
    let wanted: BTreeSet<&str> =
        spaces.iter().filter_map(|space| cgroup(space)).flat_map(upwards).collect();
    let mut members: BTreeMap<&str, Vec<&Space>> = BTreeMap::new();
    for space in ledger.spaces() {
        if let Some(path) = cgroup(space).filter(|path| wanted.contains(path)) {
            members.entry(path).or_default().push(space);
        }
    }
    ledger
        .charges()
        .filter(|charge| wanted.contains(&*charge.cgroup))
        .map(|charge| {
            let members = members.get(&*charge.cgroup).map_or(&[][..], Vec::as_slice);
            let mapped = sharing.mapped(members);
            let book = close(charge, &mapped);
            if book.bug {
                tracing::debug!(
                    cgroup = &*charge.cgroup,
                    skew = book.skew,
                    "a charge book does not close"
                );
            }
            section(charge, &book, mapped.processes, clock)
        })
        .collect()
}

fn section(charge: &Charge, book: &ChargeBook, observed: u64, clock: Clock) -> Cgroup {
    let row = |row: &memprov_ledger::charge::Row| ChargeRow {
        kind: row.charged.id().to_owned(),
        part: row.part.to_owned(),
        bytes: quantity(row.bytes),
    };
    Cgroup {
        cgroup: charge.cgroup.to_string(),
        container: container_id(&charge.cgroup).map(str::to_owned),
        as_of: wall::rfc3339(clock, charge.when.begin),
        current: book.current,
        control: Control { lo: book.lo, hi: book.hi },
        whole: charge.whole.current,
        processes: charge.processes,
        observed,
        rows: book.rows.iter().map(row).collect(),
        cache_files: files(book),
        unattributed: book.unattributed,
        skew: book.skew,
        slack: book.slack,
        swap_cache: book.swap_cache,
        charged_elsewhere: Control { lo: book.charged_elsewhere.0, hi: book.charged_elsewhere.1 },
        facts: charge.facts.iter().map(|(key, value)| (key.to_string(), *value)).collect(),
    }
}

/// Files with one template are one owner.
fn files(book: &ChargeBook) -> Vec<CacheFile> {
    let mut sums: BTreeMap<String, Bounded> = BTreeMap::new();
    for file in &book.files {
        let sum = sums.entry(template(&file.path)).or_default();
        sum.bytes = sum.bytes.saturating_add(file.bytes.bytes);
        sum.lo = sum.lo.saturating_add(file.bytes.lo);
        sum.hi = sum.hi.saturating_add(file.bytes.hi);
    }
    let mut rows: Vec<CacheFile> = sums
        .into_iter()
        .map(|(name, bytes)| CacheFile {
            id: content_id(&format!("cache\n{name}")),
            name,
            bytes: quantity(bytes),
        })
        .collect();
    rows.sort_by(|a, b| (b.bytes.bytes, &a.name).cmp(&(a.bytes.bytes, &b.name)));
    rows
}

fn quantity(n: Bounded) -> Quantity {
    let bounds = (n.lo != n.hi).then_some((n.lo, n.hi));
    Quantity {
        bytes: Some(n.bytes),
        evidence: n.class(),
        lo: bounds.map(|(lo, _)| lo),
        hi: bounds.map(|(_, hi)| hi),
    }
}
