//! Rows of owners, of the functions that touched their pages first, and of shared objects.

use memprov_ledger::evidence::EvidenceClass;
use unicode_width::UnicodeWidthStr;

use super::text::{Paint, bytes, clean, digits, elide, fit, right, signed, unit};
use crate::report::{OwnerRow, Process, Quantity, SharedRow, TouchRow};

/// Owners shown unless all are asked for.
const OWNERS: usize = 12;
/// Functions shown below an owner unless all are asked for.
const TOUCHED: usize = 4;
/// Below this width there is no room for growth and bounds.
const NARROW: usize = 76;

/// One line of a table: four columns, and a name that takes what is left.
pub(super) struct Row {
    resident: String,
    reserved: String,
    third: String,
    confidence: String,
    name: String,
    caller: String,
}

impl Row {
    fn header() -> Self {
        Self {
            resident: "RESIDENT".to_owned(),
            reserved: "RESERVED".to_owned(),
            third: "GROWTH/min".to_owned(),
            confidence: "CONFIDENCE".to_owned(),
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
            confidence: confidence(&row.resident),
            name: named(&row.name),
            caller: clean(&row.caller),
        }
    }

    fn touch(row: &TouchRow) -> Self {
        Self {
            resident: amount(&row.resident),
            reserved: String::new(),
            third: String::new(),
            confidence: confidence(&row.resident),
            name: format!("  ↳ {}", named(&row.name)),
            caller: clean(&row.caller),
        }
    }

    pub(super) fn shared(row: &SharedRow) -> Self {
        Self {
            resident: amount(&row.resident),
            reserved: amount(&row.reserved),
            third: format!("{}{}", row.sharers, if row.sharers_complete { "" } else { "+" }),
            confidence: confidence(&row.resident),
            name: named(&row.name),
            caller: String::new(),
        }
    }

    pub(super) fn line(&self, width: usize) -> String {
        let columns = if width < NARROW {
            let word = self.confidence.split(' ').next().unwrap_or_default();
            format!(
                "  {} {}  {}  ",
                right(&self.resident, 9),
                right(&self.reserved, 9),
                fit(word, 10)
            )
        } else {
            format!(
                "  {} {} {}  {}  ",
                right(&self.resident, 10),
                right(&self.reserved, 10),
                right(&self.third, 11),
                fit(&self.confidence, 22)
            )
        };
        let room = width.saturating_sub(columns.chars().count());
        format!("{columns}{}", called(&self.name, &self.caller, room))
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
        (Some(lo), Some(hi)) if lo != hi => {
            let (name, scale) = unit(hi);
            format!("{word} {}–{} {name}", digits(lo, scale), digits(hi, scale))
        }
        _ => word.to_owned(),
    }
}

fn named(name: &str) -> String {
    if name.is_empty() { "?".to_owned() } else { clean(name) }
}

/// Name and caller in the room there is: each keeps its ends, and the caller does not push the name out.
fn called(name: &str, caller: &str, room: usize) -> String {
    if caller.is_empty() {
        return elide(name, room);
    }
    let room = room.saturating_sub(3);
    let name = elide(name, room.saturating_sub(caller.width()).max(room * 3 / 5));
    let caller = elide(caller, room.saturating_sub(name.width()));
    format!("{name} ← {caller}")
}

/// The table of one process, largest resident first, with what is folded away at the end.
pub(super) fn rows(process: &Process, all: bool, width: usize, paint: Paint) -> Vec<String> {
    let mut owners: Vec<&OwnerRow> = process.owners.iter().collect();
    owners.sort_by(|a, b| {
        (b.resident.bytes, b.reserved.bytes).cmp(&(a.resident.bytes, a.reserved.bytes))
    });
    let mut out = vec![paint.dim(&Row::header().line(width))];
    // One row more is no longer than the line that would stand for it.
    let limit = if all || owners.len() <= OWNERS + 1 { owners.len() } else { OWNERS };
    let (first, rest) = owners.split_at(limit);
    let mut touched = false;
    for owner in first {
        out.push(Row::owner(owner).line(width));
        let limit = if all { owner.first_touch.len() } else { TOUCHED };
        for touch in owner.first_touch.iter().take(limit) {
            out.push(paint.dim(&Row::touch(touch).line(width)));
            touched = true;
        }
    }
    if !rest.is_empty() {
        let total: u64 = rest.iter().filter_map(|row| row.resident.bytes).sum();
        let unknown = rest.iter().filter(|row| row.resident.bytes.is_none()).count();
        let mut line = format!("  … {} more owners {}", rest.len(), bytes(total));
        if unknown > 0 {
            line.push_str(&format!(", {unknown} of them unknown"));
        }
        out.push(elide(&line, width));
    }
    if let Some(touch) = process.first_touch.as_ref().filter(|_| touched) {
        let share = (touch.probability * 100_000.0).round() / 1000.0;
        let line = format!("↳ touched these pages first, estimated from {share} % of all pages");
        out.push(paint.dim(&format!("  {}", elide(&line, width.saturating_sub(2)))));
    }
    out
}
