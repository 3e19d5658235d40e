//! Where memory lies against where its processes run, by NUMA node.
//!
//! Bytes are levels: what is known to lie on each node, and the rest as `unknown`. CPU time is added up: what a process used
//! since the pane before, spread over what its owners have now, as if it accessed all of it alike.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memprov_semconv::{self as semconv, Key};

use super::accesses::LOCALITIES;
use super::admission::Admission;
use super::group::{Group, Owner};
use super::rows::{Amount, Keyed, Number, Rows, attributes, level, remainder_kind};
use super::series::Sum;
use super::words::{Attributes, Value, word};
use crate::access::locality::Topology;
use crate::places::matrix;
use crate::report::{OwnerRow, Process};

/// Node of bytes whose node is not known.
pub(super) const UNKNOWN: &str = "unknown";
/// Nodes that are told one by one: those with ids below. What lies on others is told as `unknown`.
pub(super) const NODES: u16 = 16;

/// Whether a node is told by its id.
pub(super) fn has_name(node: u32) -> bool {
    node < u32::from(NODES)
}

/// What one owner has in one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places {
    /// Bytes by node.
    bytes: BTreeMap<u32, i128>,
    unknown: i128,
    /// CPU seconds since the last pane by [`LOCALITIES`], where any were counted so far.
    time: [Option<f64>; LOCALITIES.len()],
}

impl Places {
    pub(super) fn merge(&mut self, other: &Self) {
        for (node, bytes) in &other.bytes {
            *self.bytes.entry(*node).or_default() += bytes;
        }
        self.unknown += other.unknown;
        for (sum, more) in self.time.iter_mut().zip(other.time) {
            if let Some(more) = more {
                *sum.get_or_insert(0.0) += more;
            }
        }
    }
}

/// CPU time of each space by node when it was last told.
#[derive(Debug, Default)]
pub(super) struct Seen {
    times: HashMap<String, BTreeMap<u32, f64>>,
    now: HashMap<String, BTreeMap<u32, f64>>,
}

/// What a process added, and between how many bytes it is divided.
#[derive(Debug)]
pub(super) struct Added {
    time: BTreeMap<u32, f64>,
    /// Since the watch began: where there was any, there are series.
    total: BTreeMap<u32, f64>,
    resident: u64,
    /// `None`: there is one node, and nothing to be told.
    topology: Option<Arc<Topology>>,
}

impl Seen {
    /// What a process added on a host of several nodes (`topology`). Its first time is that since the watch began. While its
    /// book is not `told`, nothing is.
    pub(super) fn added(
        &mut self,
        process: &Process,
        topology: Option<&Arc<Topology>>,
        told: bool,
    ) -> Added {
        let total = process.ran.as_ref().map(|ran| ran.total.clone()).unwrap_or_default();
        let before = self.times.get(&process.space);
        let since = |node: &u32| before.and_then(|times| times.get(node)).copied().unwrap_or(0.0);
        let time = total.iter().map(|(node, now)| (*node, (now - since(node)).max(0.0))).collect();
        let bytes = process.owners.iter().filter_map(|row| row.resident.bytes);
        let resident = bytes.fold(0, u64::saturating_add);
        // What finds nothing to be spread over waits.
        let told = if told && resident > 0 { Some(&total) } else { before };
        if let Some(told) = told {
            self.now.insert(process.space.clone(), told.clone());
        }
        Added { time, total, resident, topology: topology.cloned() }
    }

    /// A pane ends: who was not told of in it is forgotten.
    pub(super) fn end(&mut self) {
        self.times = std::mem::take(&mut self.now);
    }
}

impl Added {
    /// What an owner of the process has of it; `None` where it has nothing. Where nobody looked, all is unknown.
    pub(super) fn of(&self, row: &OwnerRow) -> Option<Places> {
        let topology = self.topology.as_deref()?;
        let (all, resident) = (self.resident, row.resident.bytes.filter(|bytes| *bytes > 0)?);
        let nodes = row.placement.as_ref().map(|placement| placement.nodes.as_slice());
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
        let part = resident as f64 / all as f64;
        let time = self.time.iter().map(|(node, time)| (*node, time * part)).collect();
        let mut matrix = matrix(nodes.unwrap_or_default(), resident, time);
        let added = matrix.spread(topology).unwrap_or_default();
        matrix.time.clone_from(&self.total);
        let ever = matrix.spread(topology).unwrap_or_default();
        let mut places = Places { unknown: i128::from(matrix.unplaced), ..Places::default() };
        for (node, bytes) in matrix.bytes {
            if has_name(node) {
                places.bytes.insert(node, i128::from(bytes));
            } else {
                places.unknown += i128::from(bytes);
            }
        }
        let told = |at| ever.get(at).map(|_| added.get(at).copied().unwrap_or(0.0));
        places.time = LOCALITIES.map(told);
        Some(places)
    }
}

/// Says it of the owners in `named` and of all others, or without telling owners apart.
pub(super) fn say(group: &Group<'_>, named: Option<&Admission<Arc<str>>>, rows: &mut Rows) {
    let mut placed: Vec<(&Arc<str>, &Owner, &Places)> =
        group.owners.iter().filter_map(|(id, o)| Some((id, o, o.places.as_deref()?))).collect();
    // Sums of floats are those of one order.
    placed.sort_unstable_by_key(|(id, ..)| *id);
    let mut rest: Option<Places> = None;
    for (id, owner, places) in placed {
        match named {
            Some(named) if named.has(id) => {
                points(places, &|more| attributes(id, owner, more), rows);
            }
            _ => rest.get_or_insert_default().merge(places),
        }
    }
    let Some(rest) = rest else { return };
    let key = |more: &[(Key, Value)]| -> Attributes {
        match named {
            None => more.into(),
            Some(_) => [remainder_kind().as_slice(), more].concat().into(),
        }
    };
    points(&rest, &key, rows);
}

fn points(places: &Places, key: Keyed<'_>, rows: &mut Rows) {
    let on = places.bytes.iter().map(|(node, bytes)| (Arc::<str>::from(node.to_string()), *bytes));
    let rest = (places.unknown > 0).then(|| (Arc::from(UNKNOWN), places.unknown));
    let bytes = on
        .chain(rest)
        .filter_map(|(node, bytes)| Some((key(&[word(semconv::NUMA_NODE, node)]), level(bytes)?)));
    rows.say(&semconv::MEMORY_PLACED, bytes);
    let time = LOCALITIES.iter().zip(places.time).filter_map(|(at, time)| {
        let added = Amount::Added(Sum::Number(Number::Float(time?)));
        Some((key(&[word(semconv::NUMA_LOCALITY, *at)]), added))
    });
    rows.say(&semconv::PLACEMENT_TIME, time);
}
