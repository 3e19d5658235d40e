//! Rows of owners, of the functions that touched their pages first, and of shared objects.

use memprov_ledger::evidence::EvidenceClass;
use unicode_width::UnicodeWidthStr;

use super::text::{Paint, bytes, clean, digits, elide, fit, right, signed, sum, unit};
use crate::report::{OwnerRow, Process, Quantity, SharedRow, TouchRow};

/// Owners shown unless all are asked for.
const OWNERS: usize = 12;
/// Functions shown below an owner unless all are asked for.
const TOUCHED: usize = 4;
/// Columns that a name has at least before another column goes, and that a caller needs beside it.
const NAME: usize = 16;
const CALLER: usize = 8;
/// Widths of the columns.
const BYTES: usize = 8;
const THIRD: usize = 10;
const CONFIDENCE: usize = 22;
const WORD: usize = 10;
const USED: usize = 13;

/// Which columns there is room for: bounds go first, then what is reserved, then growth, then what is used.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    reserved: bool,
    third: bool,
    used: bool,
    confidence: usize,
}

impl Layout {
    /// `used`: something is known of use.
    pub(super) fn of(width: usize, used: bool) -> Self {
        let full = Self { reserved: true, third: true, used, confidence: CONFIDENCE };
        let word = Self { confidence: WORD, ..full };
        let growth = Self { reserved: false, ..word };
        let small = Self { third: false, ..growth };
        let smaller = [full, word, growth, small, Self { used: false, ..growth }];
        let smallest = Self { used: false, ..small };
        smaller.into_iter().find(|layout| layout.before_name() + NAME <= width).unwrap_or(smallest)
    }

    /// Columns that stand before the name.
    fn before_name(self) -> usize {
        let column = |shown, width| if shown { width + 2 } else { 0 };
        2 + BYTES
            + 2
            + column(self.reserved, BYTES)
            + column(self.third, THIRD)
            + column(self.used, USED)
            + column(true, self.confidence)
    }
}

/// One line of a table: up to five columns, and a name that takes what is left.
pub(super) struct Row {
    resident: String,
    reserved: String,
    third: String,
    used: String,
    confidence: String,
    nested: bool,
    name: String,
    caller: String,
}

impl Row {
    fn header() -> Self {
        Self {
            resident: "RESIDENT".to_owned(),
            reserved: "RESERVED".to_owned(),
            third: "GROWTH/min".to_owned(),
            used: "USED".to_owned(),
            confidence: "CONFIDENCE".to_owned(),
            nested: false,
            name: "OWNER".to_owned(),
            caller: "CALLER".to_owned(),
        }
    }

    pub(super) fn shared_header() -> Self {
        Self {
            third: "SHARERS".to_owned(),
            name: "OBJECT".to_owned(),
            caller: String::new(),
            ..Self::header()
        }
    }

    fn owner(row: &OwnerRow) -> Self {
        Self {
            resident: amount(&row.resident),
            reserved: amount(&row.reserved),
            third: row.growth_per_minute.map_or_else(|| "-".to_owned(), signed),
            used: row.touched.as_ref().map_or_else(|| "-".to_owned(), |t| bounds(t.lower, t.upper)),
            confidence: confidence(&row.resident),
            nested: false,
            name: named(&row.name),
            caller: clean(&row.caller),
        }
    }

    fn touch(row: &TouchRow) -> Self {
        Self {
            resident: amount(&row.resident),
            confidence: confidence(&row.resident),
            name: named(&row.name),
            caller: clean(&row.caller),
            ..Self::below()
        }
    }

    /// What a division by first touch leaves.
    fn untouched(rest: u64) -> Self {
        Self {
            resident: bytes(rest),
            confidence: "sampled".to_owned(),
            name: "first touch not seen".to_owned(),
            ..Self::below()
        }
    }

    /// An empty line below an owner.
    fn below() -> Self {
        Self {
            resident: String::new(),
            reserved: String::new(),
            third: String::new(),
            used: String::new(),
            confidence: String::new(),
            nested: true,
            name: String::new(),
            caller: String::new(),
        }
    }

    pub(super) fn shared(row: &SharedRow) -> Self {
        Self {
            resident: amount(&row.resident),
            reserved: amount(&row.reserved),
            third: format!("{}{}", row.sharers, if row.sharers_complete { "" } else { "+" }),
            used: String::new(),
            confidence: confidence(&row.resident),
            nested: false,
            name: named(&row.name),
            caller: String::new(),
        }
    }

    pub(super) fn line(&self, layout: Layout, width: usize) -> String {
        let mut line = format!("  {}  ", right(&self.resident, BYTES));
        if layout.reserved {
            line.push_str(&format!("{}  ", right(&self.reserved, BYTES)));
        }
        if layout.third {
            line.push_str(&format!("{}  ", right(&self.third, THIRD)));
        }
        if layout.used {
            line.push_str(&format!("{}  ", right(&self.used, USED)));
        }
        let words = if layout.confidence < CONFIDENCE {
            self.confidence.split(' ').next().unwrap_or_default()
        } else {
            self.confidence.as_str()
        };
        line.push_str(&format!("{}  ", fit(words, layout.confidence)));
        if self.nested {
            line.push_str(if layout.third { "  ↳ " } else { "↳ " });
        }
        let room = width.saturating_sub(line.width());
        line.push_str(&called(&self.name, &self.caller, room));
        line
    }
}

fn amount(quantity: &Quantity) -> String {
    quantity.bytes.map_or_else(|| "?".to_owned(), bytes)
}

/// The word, with bounds where it is not exact.
fn confidence(quantity: &Quantity) -> String {
    if quantity.bytes.is_none() {
        return "unknown".to_owned();
    }
    let word = match quantity.evidence {
        EvidenceClass::Exact => return "exact".to_owned(),
        EvidenceClass::Inferred => "inferred",
        EvidenceClass::Sampled => "sampled",
    };
    match (quantity.lo, quantity.hi) {
        (Some(lo), Some(hi)) if lo != hi => format!("{word} {}", bounds(lo, hi)),
        _ => word.to_owned(),
    }
}

/// Two amounts in the unit of the larger.
fn bounds(lo: u64, hi: u64) -> String {
    let (name, scale) = unit(hi);
    let lo = if lo == 0 { "0".to_owned() } else { digits(lo, scale) };
    format!("{lo}–{} {name}", digits(hi, scale))
}

fn named(name: &str) -> String {
    if name.is_empty() { "?".to_owned() } else { clean(name) }
}

/// Name and caller in the room there is: each keeps its ends, and where both have none the caller goes.
fn called(name: &str, caller: &str, room: usize) -> String {
    let least = name.width().min(NAME) + 3 + caller.width().min(CALLER);
    if caller.is_empty() || room < least {
        return elide(name, room);
    }
    let room = room - 3;
    let name = elide(name, room.saturating_sub(caller.width()).max(room * 3 / 5).max(NAME));
    let caller = elide(caller, room.saturating_sub(name.width()));
    format!("{name} ← {caller}")
}

/// Resident bytes of an owner that its division by first touch leaves, where that is more than a tenth.
fn not_seen(owner: &OwnerRow) -> Option<u64> {
    let resident = owner.resident.bytes.filter(|_| !owner.first_touch.is_empty())?;
    let seen = owner.first_touch.iter().filter_map(|row| row.resident.bytes);
    let rest = resident.saturating_sub(seen.fold(0, u64::saturating_add));
    (u128::from(rest) * 10 > u128::from(resident)).then_some(rest)
}

/// The table of one process, largest resident first, with what is folded away at the end.
pub(super) fn rows(process: &Process, all: bool, width: usize, paint: Paint) -> Vec<String> {
    // Pages that the kernel shows to every process ([vvar], [vsyscall]) are in nobody's Rss.
    let idle = |row: &&OwnerRow| !all && row.kind == "other" && row.resident.bytes == Some(0);
    let (idle, mut owners): (Vec<&OwnerRow>, Vec<&OwnerRow>) =
        process.owners.iter().partition(idle);
    owners.sort_by(|a, b| {
        (b.resident.bytes, b.reserved.bytes).cmp(&(a.resident.bytes, a.reserved.bytes))
    });
    // Of what no region covers nothing is known; the longest time holds all others.
    let seconds = owners.iter().filter_map(|row| row.touched.as_ref()).map(|t| t.seconds);
    let seconds = seconds.reduce(f64::max);
    let layout = Layout::of(width, seconds.is_some());
    let mut out = vec![paint.dim(&Row::header().line(layout, width))];
    // One row more is no longer than the line that would stand for it.
    let limit = if all || owners.len() <= OWNERS + 1 { owners.len() } else { OWNERS };
    let first: Vec<&OwnerRow> = owners.drain(..limit).collect();
    let rest: Vec<&OwnerRow> = owners.into_iter().chain(idle).collect();
    let mut touched = false;
    for owner in first {
        out.push(Row::owner(owner).line(layout, width));
        let limit = if all { owner.first_touch.len() } else { TOUCHED };
        for touch in owner.first_touch.iter().take(limit) {
            out.push(paint.dim(&Row::touch(touch).line(layout, width)));
            touched = true;
        }
        if let Some(rest) = not_seen(owner) {
            out.push(paint.dim(&Row::untouched(rest).line(layout, width)));
        }
    }
    if !rest.is_empty() {
        let total = sum(rest.iter().map(|row| row.resident.bytes));
        out.push(elide(&format!("  … {} more owners {total}", rest.len()), width));
    }
    if let Some(seconds) = seconds.filter(|_| layout.used) {
        let line =
            format!("USED within {seconds:.0} s, at least and at most, as DAMON's checks tell");
        out.push(paint.dim(&format!("  {}", elide(&line, width.saturating_sub(2)))));
    }
    if let Some(touch) = process.first_touch.as_ref().filter(|_| touched) {
        let share = (touch.probability * 100_000.0).round() / 1000.0;
        let line = format!("↳ touched these pages first, estimated from {share} % of all pages");
        out.push(paint.dim(&format!("  {}", elide(&line, width.saturating_sub(2)))));
    }
    out
}
