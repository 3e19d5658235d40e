//! Charge books of the cgroups of one resource added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use memprov_semconv::{self as semconv, book, charge};

use super::group::older;
use super::rows::{Points, Rows, age, level};
use super::words::{Attributes, word};
use crate::report::Cgroup;
use crate::wall;

/// What and which part of it. What no line tells has no part.
type Row<'a> = (&'a str, Option<&'a str>);

/// The sum of some books. It closes as each of them does: `control ≤ Σ rows + skew ≤ control + spread`.
#[derive(Debug, Default)]
pub(super) struct Charges<'a> {
    control: i128,
    spread: i128,
    skew: i128,
    rows: BTreeMap<Row<'a>, i128>,
    /// The oldest reading, nanoseconds since the Unix epoch; `None`: there is no book.
    as_of: Option<u64>,
}

impl<'a> Charges<'a> {
    /// Adds a book, unless it is from before `oldest` (nanoseconds since the Unix epoch).
    pub(super) fn add(&mut self, cgroup: &'a Cgroup, oldest: u64) {
        let Some(as_of) = wall::parse(&cgroup.as_of).filter(|as_of| *as_of >= oldest) else {
            return;
        };
        self.as_of = older(self.as_of, Some(as_of));
        self.control += i128::from(cgroup.control.lo);
        self.spread += i128::from(cgroup.control.hi) - i128::from(cgroup.control.lo);
        self.skew += i128::from(cgroup.skew);
        let told = cgroup.rows.iter().filter_map(|row| {
            Some(((row.kind.as_str(), Some(row.part.as_str())), row.bytes.bytes?))
        });
        for (row, bytes) in told.chain([((charge::UNATTRIBUTED, None), cgroup.unattributed)]) {
            *self.rows.entry(row).or_default() += i128::from(bytes);
        }
    }

    /// Takes in what another resource would say.
    pub(super) fn merge(&mut self, other: Self) {
        self.as_of = older(self.as_of, other.as_of);
        self.control += other.control;
        self.spread += other.spread;
        self.skew += other.skew;
        for (row, bytes) in other.rows {
            *self.rows.entry(row).or_default() += bytes;
        }
    }

    /// Says the rows, and what they add up to.
    pub(super) fn say(&self, end: u64, rows: &mut Rows) {
        if self.as_of.is_none() {
            return;
        }
        let book = word(semconv::BOOK, book::CHARGE);
        for (metric, bytes) in [
            (&semconv::MEMORY_CONTROL, self.control),
            (&semconv::MEMORY_CONTROL_SPREAD, self.spread),
            (&semconv::MEMORY_SKEW, self.skew),
        ] {
            rows.one(metric, std::slice::from_ref(&book), level(bytes));
        }
        let points = self.rows.iter().filter_map(|(row, bytes)| Some((key(*row), level(*bytes)?)));
        rows.say(&semconv::MEMORY_CHARGED, points.collect::<Points>());
        age(book, self.as_of, end, rows);
    }
}

fn key((what, part): Row<'_>) -> Attributes {
    let what = word(semconv::CHARGE, Arc::<str>::from(what));
    let part = part.map(|part| word(semconv::KIND, Arc::<str>::from(part)));
    std::iter::once(what).chain(part).collect()
}
