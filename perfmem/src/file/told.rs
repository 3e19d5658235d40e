//! What is in order, told as evidence.

use std::io::BufRead;
use std::time::Duration;

use memprov_ledger::evidence::{Evidence, Gap, Stream as Lost};
use memprov_ledger::time::{MonoTime, Span};

use super::{Held, Recording};

impl<R: BufRead> Recording<R> {
    /// Tells what is in order now; what there was before comes first.
    pub(super) fn tell(&mut self, released: Vec<(MonoTime, Held)>, out: &mut Vec<Evidence>) {
        if let Some((first, _)) = released.first() {
            self.begin(*first, out);
        }
        for (time, held) in released {
            self.told = self.told.max(time);
            match held {
                Held::Event(event) => {
                    let program = event.program();
                    let told = self.threads.lifecycle(event, Duration::ZERO);
                    // What comes late happened at any time since.
                    let told = told.map(|mut event| {
                        event.when.end = self.told;
                        Evidence::Lifecycle(event)
                    });
                    out.extend(told);
                    out.extend(program.map(|list| Evidence::Residency(Box::new(list))));
                }
                Held::Access(access) => out.push(Evidence::Access(access)),
                Held::Operation(mut access) => {
                    if let Some(aux) = &self.aux {
                        aux.attribute(&mut access);
                    }
                    out.push(Evidence::Access(access));
                }
                Held::Switch(cpu, task) => {
                    if let Some(aux) = &mut self.aux {
                        aux.runs(cpu, task);
                    }
                }
                Held::Lost { since, samples, mappings } => {
                    let when = Span { begin: since.min(time), end: time };
                    // How many of them told of address spaces nobody counted.
                    let gap = |stream, lost| Evidence::Gap(Gap { when, stream, lost, whose: None });
                    if mappings {
                        out.push(gap(Lost::Sideband, 0));
                        self.threads.lose(time);
                    }
                    out.push(gap(Lost::Accesses, samples));
                }
            }
        }
    }

    /// Tells what there was before `first`.
    pub(super) fn begin(&mut self, first: MonoTime, out: &mut Vec<Evidence>) {
        let Some(start) = self.start.take() else { return };
        let crowded = start.crowded;
        self.threads.found(start.threads());
        let when = Span::at(MonoTime(first.0.saturating_sub(1)));
        out.extend(start.residencies(when).map(|seen| Evidence::Residency(Box::new(seen))));
        if crowded > 0 {
            let (stream, lost) = (Lost::Sideband, crowded);
            out.push(Evidence::Gap(Gap { when, stream, lost, whose: None }));
        }
    }
}
