//! A fuser with one process that has named mappings, and accesses to them.

use std::sync::Arc;
use std::time::Duration;

use memprov::fuse::Fuser;
use memprov::report::{AccessRow, Accesses};
use memprov::trace::{Clock, Header, Line};
use memprov_ledger::evidence::{
    Access, Backing, Counters, Evidence, Mapping, Population, Residency, Served,
};
use memprov_ledger::identity::{Extent, StartTicks, Tgid};
use memprov_ledger::pages::PageSet;
use memprov_ledger::time::{MonoTime, Span};

/// The process.
pub(crate) const PID: Tgid = Tgid(4242);
/// When its mappings were listed; accesses come later.
pub(crate) const BEGIN: u64 = 1_000_000_000;
/// Bytes from mapping to mapping.
const STRIDE: u64 = 1 << 24;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number of 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in 0 to 1.
    pub(crate) fn next(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Log-normal around 1 with this deviation of the logarithm.
    pub(crate) fn spread(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.next()).ln()).sqrt();
        (sigma * radius * (std::f64::consts::TAU * self.next()).cos()).exp()
    }
}

/// A number without its fraction.
pub(crate) fn whole(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "small and not negative")]
    let whole = number as u64;
    whole
}

/// A fuser that knows process [`PID`] with mappings of these names.
pub(crate) fn fuser(names: &[&str]) -> Fuser {
    let header = Header::new(Clock { wall_at_zero: 0 }, MonoTime(0));
    let mapping = |(number, name): (usize, &&str)| Mapping {
        extent: Extent::new(address(number), STRIDE / 2),
        backing: Backing::Anonymous,
        offset: 0,
        shared: false,
        exec: false,
        write: true,
        path: Some(format!("[anon:{name}]").into()),
    };
    let maps: Vec<Mapping> = names.iter().enumerate().map(mapping).collect();
    let totals = Counters { anon: Some(0), file: Some(0), ..Counters::default() };
    let seen = Residency {
        when: Span { begin: MonoTime(BEGIN - 1000), end: MonoTime(BEGIN - 500) },
        tgid: PID,
        start: Some(StartTicks(1)),
        comm: "mix".into(),
        parent: Tgid(1),
        layout: None,
        cgroup: Some("/system.slice/mix.service".into()),
        before: totals,
        maps: Some(maps.into()),
        pages: Some(Arc::new(PageSet::default())),
        exclusive_known: true,
        after: totals,
        slack: 0,
        object_slack: 0,
    };
    let mut fuser = Fuser::new(header, "replay", Duration::from_secs(60));
    drop(fuser.apply(Line::Evidence(Evidence::Residency(Box::new(seen)))));
    fuser
}

/// The first address of mapping `number`.
pub(crate) fn address(number: usize) -> u64 {
    0x7000_0000_0000 + number as u64 * STRIDE
}

/// A load from mapping `number`.
pub(crate) fn load(number: usize, at: u64, latency: u64, served: Served) -> Access {
    Access {
        when: Span::at(MonoTime(at)),
        tgid: Some(PID),
        address: Some(address(number) + at % 4096),
        population: Population::Loads,
        latency: Some(latency),
        served,
        ..Access::default()
    }
}

/// Memory of another node.
pub(crate) const REMOTE: Served = Served::RemoteMemory { hops: None };

/// Takes in an access.
pub(crate) fn apply(fuser: &mut Fuser, access: Access) {
    drop(fuser.apply(Line::Evidence(Evidence::Access(Box::new(access)))));
}

/// What the fuser says now.
pub(crate) fn told(fuser: &Fuser) -> Accesses {
    fuser.report(None, fuser.now()).accesses.expect("there are samples")
}

/// The row of an owner.
pub(crate) fn row<'a>(told: &'a Accesses, name: &str) -> &'a AccessRow {
    let name = format!("[anon:{name}]");
    let found = told.owners.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("{name} is not told: {:?}", told.owners))
}
