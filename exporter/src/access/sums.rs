//! What samples add up to, by how it is told where they were served from, and where that is.

use memprov_ledger::evidence::Locality;

use super::share::{Share, Slice, Weight, Withheld, share};

/// How it is told where an access went. The two answer different questions and are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// The hardware says what answered.
    Served,
    /// The node that the page lies on, seen from the CPU's.
    Placement,
}

impl Method {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Served, Self::Placement];

    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Placement => "placement",
        }
    }
}

/// What a sample stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Period × latency, in cycles.
    Time,
    /// Period: events of the population that was sampled.
    Count,
}

/// Weights by locality.
pub type ByLocality = [Weight; Locality::ALL.len()];

/// Samples of one owner over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    time: [ByLocality; 2],
    count: [ByLocality; 2],
}

impl Sums {
    /// Adds a sample that stands for `period` events, took so many cycles, and went so far by each of [`Method::ALL`].
    pub fn add(&mut self, period: f64, cycles: Option<f64>, went: [Locality; 2]) {
        for (method, to) in went.into_iter().enumerate() {
            self.count[method][to as usize].add(period);
            if let Some(cycles) = cycles {
                self.time[method][to as usize].add(period * cycles);
            }
        }
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Self) {
        let into = self.time.iter_mut().chain(&mut self.count).flatten();
        let from = other.time.iter().chain(&other.count).flatten();
        into.zip(from).for_each(|(into, from)| into.merge(from));
    }

    /// The weights by locality.
    #[must_use]
    pub fn of(&self, measure: Measure, method: Method) -> &ByLocality {
        let sums = match measure {
            Measure::Time => &self.time,
            Measure::Count => &self.count,
        };
        &sums[method as usize]
    }

    /// What went to `to`, and what went to another place that is known.
    #[must_use]
    pub fn slice(&self, measure: Measure, method: Method, to: Locality) -> Slice {
        let mut slice = Slice::default();
        for (at, weight) in Locality::ALL.iter().zip(self.of(measure, method)) {
            match at {
                _ if *at == to => slice.part.merge(weight),
                Locality::Unknown => {}
                _ => slice.rest.merge(weight),
            }
        }
        slice
    }
}

/// The share of what is known to have gone to `to`.
///
/// # Errors
/// Why there is none.
pub fn share_of(
    slices: &[Sums],
    measure: Measure,
    method: Method,
    to: Locality,
) -> Result<Share, Withheld> {
    let slices: Vec<Slice> = slices.iter().map(|sums| sums.slice(measure, method, to)).collect();
    share(&slices)
}
