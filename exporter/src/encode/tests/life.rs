//! What happens to series over many panes, whatever happens to processes and shipments.

use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::reader::Reader;
use super::*;

const RESIDENT: &str = "memprov.memory.resident";
const FAULTS: &str = "memprov.memory.faults";
const BY_KIND: &str = "memprov.memory.faults_by_kind";
const SCANS: &str = "memprov.budget.scan.duration";

/// What becomes of the shipment of a pane.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Luck {
    /// It arrives.
    Arrives,
    /// It arrives, and the answer comes after the next pane.
    Late,
    /// It is on its way until the next one replaces it; it may have arrived.
    Replaced { arrived: bool },
    /// The line is busy: nobody asks for one.
    Busy,
    /// The server refuses it.
    Refused,
}

/// One process in one pane.
#[derive(Clone, Debug)]
struct Seen {
    pid: u32,
    container: u32,
    owners: Vec<(u8, u64, bool)>,
    faults: (u64, u64),
    /// Its book is too old.
    stale: bool,
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        4 => Just(Luck::Arrives),
        1 => Just(Luck::Late),
        1 => prop::bool::ANY.prop_map(|arrived| Luck::Replaced { arrived }),
        1 => Just(Luck::Busy),
        1 => Just(Luck::Refused),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    let owners = prop::collection::vec((0u8..10, 0u64..1 << 30, prop::bool::ANY), 0..6);
    let faults = (0u64..1000, 0u64..10);
    (0u32..8, owners, faults, prop::bool::weighted(0.1)).prop_map(|(pid, owners, faults, stale)| {
        Seen { pid, container: pid % 4, owners, faults, stale }
    })
}

fn panes() -> impl Strategy<Value = Vec<(Vec<Seen>, Luck)>> {
    prop::collection::vec((prop::collection::vec(seen(), 0..8), luck()), 1..25)
}

/// A host and what a naive onlooker knows of it.
#[derive(Default)]
struct World {
    pane: u64,
    counts: BTreeMap<u32, (u64, u64)>,
    scans: crate::histogram::Histogram,
    /// Of the last pane.
    resident: u64,
    /// Since each process was seen first.
    faults: u64,
}

impl World {
    /// The next pane, of these processes.
    fn pane(&mut self, seen: &[Seen]) -> (Report, Window) {
        self.pane += 1;
        let end = START + self.pane * MINUTE;
        let as_of = |nanos: u64| {
            let at = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap();
            at.to_string()
        };
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        let before = std::mem::take(&mut self.counts);
        self.resident = 4096;
        for one in seen {
            if processes.contains_key(&one.pid) {
                continue;
            }
            let rows: BTreeMap<u8, OwnerRow> = one
                .owners
                .iter()
                .map(|(id, size, exact)| {
                    let class = if *exact { Exact } else { Inferred };
                    (*id, owner(&format!("{id:02x}"), bytes(*size, class)))
                })
                .collect();
            let rows: Vec<OwnerRow> = rows.into_values().collect();
            let owned: u64 = rows.iter().filter_map(|row| row.resident.bytes).sum();
            let container = format!("c{}", one.container);
            let mut process = process(one.pid, (one.container > 0).then_some(&container), rows);
            // A process begins anew when it was not there in the pane before.
            let (minor, major) = before.get(&one.pid).copied().unwrap_or_default();
            let now = (minor + one.faults.0, major + one.faults.1);
            if before.contains_key(&one.pid) {
                self.faults += one.faults.0 + one.faults.1;
            }
            self.counts.insert(one.pid, now);
            process.comm = container;
            process.faults = Some(Faults { minor: now.0, major: now.1, ..Default::default() });
            process.as_of = as_of(if one.stale { START - 3600 * 1_000_000_000 } else { end });
            if !one.stale {
                self.resident += owned + 70;
            }
            self.scans.record(one.faults.0 as f64 / 1000.0, 1.0);
            processes.insert(one.pid, process);
        }
        let mut report = report(processes.into_values().collect());
        report.scan_seconds = self.scans.clone();
        (report, Window { start: START, end })
    }
}

/// Feeds panes to series and their shipments to a reader; of several options each holds for three panes. Returns all
/// three, after two panes more that arrived: the second tells the ends of what the first told last.
fn run(panes: &[(Vec<Seen>, Luck)], options: &[Options]) -> (Accumulator, Reader, World) {
    let mut series = Accumulator::new(options[0].clone());
    let (mut reader, mut world) = (Reader::default(), World::default());
    let mut late = None;
    let end = [(Vec::new(), Luck::Arrives), (Vec::new(), Luck::Arrives)];
    for (number, (seen, luck)) in panes.iter().chain(&end).enumerate() {
        if number % 3 == 0 {
            series.change(options[number / 3 % options.len()].clone());
        }
        let (report, window) = world.pane(seen);
        series.pane(&report, window);
        let lost = series.lost();
        if let Some((number, fate)) = late.take() {
            series.settle(number, fate);
        }
        if *luck == Luck::Busy {
            continue;
        }
        let Some(shipment) = series.next() else { continue };
        let request = message(&shipment);
        match luck {
            Luck::Arrives => {
                reader.take(&request, true);
                series.settle(shipment.number, Fate::Delivered);
                assert_eq!(
                    reader.now(RESIDENT),
                    world.resident as f64,
                    "nothing is missing or twice"
                );
                assert_eq!(series.lost(), lost);
            }
            Luck::Late => {
                reader.take(&request, true);
                late = Some((shipment.number, Fate::Delivered));
            }
            Luck::Replaced { arrived } if shipment.replaceable => {
                reader.miss();
                if *arrived {
                    reader.take(&request, false);
                }
                late = Some((shipment.number, Fate::Replaced));
            }
            Luck::Replaced { .. } | Luck::Refused => {
                reader.miss();
                series.settle(shipment.number, Fate::Refused);
            }
            Luck::Busy => {}
        }
    }
    let Panes { delivered, replaced, refused } = series.panes();
    assert_eq!(delivered + replaced + refused, panes.len() as u64 + 2, "each pane has one fate");
    (series, reader, world)
}

fn options() -> impl Strategy<Value = Options> {
    let detail = prop_oneof![Just(Detail::Kinds), Just(Detail::Owners)];
    (detail, 1usize..5, 0usize..5).prop_map(|(detail, owners, resources)| Options {
        detail,
        owners,
        resources,
        ..all()
    })
}

proptest! {
    #[test]
    fn a_cumulative_reader_knows_everything_in_the_end(
        panes in panes(),
        options in options(),
    ) {
        let (series, reader, world) = run(&panes, &[options]);
        prop_assert_eq!(series.lost(), 0);
        prop_assert_eq!(reader.ever(FAULTS), world.faults as f64);
        prop_assert_eq!(reader.ever(SCANS), world.scans.count() as f64);
        prop_assert_eq!(reader.live(), series.series());
    }

    #[test]
    fn options_that_change_on_the_way_cost_no_count_and_leave_no_series_behind(
        panes in panes(),
        one in options(),
        other in options(),
        grain in prop_oneof![Just(Grain::Container), Just(Grain::Process)],
    ) {
        let (series, reader, world) = run(&panes, &[one, Options { grain, ..other }]);
        prop_assert_eq!(series.lost(), 0);
        prop_assert_eq!(reader.ever(FAULTS), world.faults as f64);
        prop_assert_eq!(reader.ever(SCANS), world.scans.count() as f64);
        prop_assert_eq!(reader.live(), series.series());
    }

    #[test]
    fn deltas_add_up_to_what_was_counted_and_loss_is_counted(
        panes in panes(),
        options in options(),
    ) {
        let style = Style { temporality: Temporality::Delta, histograms: Histograms::Exponential };
        let refused = panes.iter().any(|(_, luck)| matches!(luck, Luck::Refused | Luck::Replaced { .. }));
        let whole = options.detail == Detail::Owners;
        let (series, reader, world) = run(&panes, &[Options { style, ..options }]);
        let faults = reader.ever(FAULTS);
        prop_assert!(faults <= world.faults as f64);
        prop_assert!(refused || series.lost() == 0);
        if series.lost() == 0 {
            prop_assert_eq!(faults, world.faults as f64);
            prop_assert!(!whole || reader.ever(BY_KIND) == faults);
            prop_assert_eq!(reader.ever(SCANS), world.scans.count() as f64);
        }
    }

    #[test]
    fn both_views_of_one_history_agree(panes in panes(), options in options()) {
        let calm: Vec<_> = panes.iter().map(|(seen, _)| (seen.clone(), Luck::Arrives)).collect();
        let style = Style { temporality: Temporality::Delta, ..Style::default() };
        let (_, delta, _) = run(&calm, &[Options { style, ..options.clone() }]);
        let (_, cumulative, _) = run(&calm, &[options]);
        for metric in [RESIDENT, FAULTS, SCANS, BY_KIND] {
            prop_assert_eq!(delta.ever(metric), cumulative.ever(metric));
            prop_assert_eq!(delta.now(metric), cumulative.now(metric));
        }
    }
}

#[test]
fn a_series_that_is_gone_ends_once_with_a_point_without_value() {
    let mut series = Accumulator::new(all());
    let mut tell = |class, minute: u64| {
        let report = report(vec![process(7, Some("c0ffee"), vec![owner("aa", bytes(100, class))])]);
        series.pane(&report, Window { start: START, end: START + minute * MINUTE });
        ship(&mut series)
    };
    let request = tell(Exact, 1);
    assert!(flat(&request).iter().all(|flat| flat.point.value.is_some()));
    let request = tell(Inferred, 2);
    let points = flat(&request);
    let ended: Vec<_> = points.iter().filter(|flat| flat.point.value.is_none()).collect();
    assert_eq!(ended.len(), 1, "resident; reserved is exact in both");
    assert_eq!((ended[0].metric, ended[0].get("memprov.evidence")), (RESIDENT, "exact"));
    assert_eq!(ended[0].point.flags, DataPointFlags::NoRecordedValueMask as u32);
    assert_eq!(ended[0].point.time_unix_nano, START + 2 * MINUTE);
    let request = tell(Inferred, 3);
    assert!(flat(&request).iter().all(|flat| flat.point.value.is_some()));
}

#[test]
fn an_agent_that_ends_ships_what_it_has_and_then_the_end_of_every_series() {
    let mut series = Accumulator::new(all());
    let mut reader = Reader::default();
    series.pane(&busy(), WINDOW);
    series.close(WINDOW.end + 5);
    for _ in 0..2 {
        let request = ship(&mut series);
        reader.take(&request, true);
    }
    assert!(series.next().is_none());
    assert_eq!((reader.live(), series.series()), (0, 0));
    assert!(reader.ever(SCANS) > 0.0);
}

#[test]
fn faults_are_counted_through_a_gap_of_books_and_end_with_their_resource() {
    let mut series = Accumulator::new(all());
    let mut faults = Vec::new();
    for minute in 1..7 {
        let mut one = process(7, Some("c0ffee"), vec![owner("aa", bytes(1, Exact))]);
        one.faults = Some(Faults { minor: 100 * minute, ..Default::default() });
        let stale = [3, 4].contains(&minute);
        one.as_of = if stale { "2026-09-21T13:00:00Z" } else { "2026-09-21T14:14:18Z" }.to_owned();
        let report = report(if minute < 6 { vec![one] } else { Vec::new() });
        series.pane(&report, Window { start: START, end: START + minute * MINUTE });
        let request = ship(&mut series);
        let points = flat(&request);
        let minor = points.iter().find(|f| f.get("system.paging.fault.type") == "minor").unwrap();
        let owner = points.iter().filter(|f| f.get("memprov.owner.id") == "aa");
        let owners = owner.filter(|f| f.point.value.is_some()).count();
        faults.push((minor.point.value.map(|_| minor.value()), owners > 0));
    }
    let counted = |n, owners| (Some(n), owners);
    let expected = [counted(0, true), counted(100, true), counted(200, false), counted(300, false)];
    assert_eq!(faults[..4], expected);
    assert_eq!(faults[4..], [counted(400, true), (None, false)]);
}

#[test]
fn a_total_that_falls_begins_anew() {
    let mut series = Accumulator::new(all());
    let mut seen = Vec::new();
    for (minute, lost) in [(1, 5), (2, 9), (3, 2), (4, 3)] {
        let mut report = report(Vec::new());
        report.lost = BTreeMap::from([("lifecycle".to_owned(), lost)]);
        series.pane(&report, Window { start: START, end: START + minute * MINUTE });
        let request = ship(&mut series);
        let points = flat(&request);
        let point = points.iter().find(|f| f.get("memprov.source.name") == "lifecycle").unwrap();
        seen.push((point.point.start_time_unix_nano, point.value()));
    }
    let again = START + 2 * MINUTE;
    assert_eq!(seen, [(START, 5), (START, 9), (again, 2), (again, 3)]);
}

#[test]
fn nothing_is_shipped_without_a_new_pane_and_a_pane_of_the_past_changes_nothing() {
    let mut series = Accumulator::new(all());
    assert!(series.next().is_none());
    series.pane(&busy(), WINDOW);
    let first = series.next().unwrap();
    series.settle(first.number, Fate::Delivered);
    assert!(series.next().is_none());
    series.pane(&report(Vec::new()), WINDOW);
    assert!(series.next().is_none());
}

#[test]
fn a_delta_is_not_told_again_before_its_fate_is_known_and_a_cumulative_point_is() {
    for (temporality, again) in [(Temporality::Delta, false), (Temporality::Cumulative, true)] {
        let style = Style { temporality, ..Style::default() };
        let mut series = Accumulator::new(Options { style, ..all() });
        series.pane(&busy(), WINDOW);
        let first = series.next().unwrap();
        assert_eq!(first.replaceable, again);
        series.pane(&busy(), Window { end: WINDOW.end + MINUTE, ..WINDOW });
        assert_eq!(series.next().is_some(), again);
        series.settle(first.number, Fate::Delivered);
        assert_eq!(series.next().is_some(), !again);
    }
}

#[test]
fn both_kinds_of_histograms_have_the_same_count_sum_and_registered_name() {
    let mut seen = Vec::new();
    for histograms in [Histograms::Explicit, Histograms::Exponential] {
        let style = Style { histograms, ..Style::default() };
        let mut report = busy();
        [0.0, 1e-5, 0.02, 3.0].iter().for_each(|s| report.scan_seconds.record(*s, 1.0));
        let request = with(&report, Options { style, ..kinds() });
        let metrics = request.resource_metrics.iter().flat_map(|r| &r.scope_metrics[0].metrics);
        let metric = metrics.into_iter().find(|metric| metric.name == SCANS).unwrap();
        match metric.data.as_ref().unwrap() {
            Data::Histogram(histogram) => {
                let point = &histogram.data_points[0];
                assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                seen.push((point.count, point.sum));
            }
            Data::ExponentialHistogram(histogram) => {
                let point = &histogram.data_points[0];
                let buckets = &point.positive.as_ref().unwrap().bucket_counts;
                assert_eq!(point.zero_count + buckets.iter().sum::<u64>(), point.count);
                seen.push((point.count, point.sum));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0, 5);
}
