//! A backend as Prometheus is one: what it takes, and what it would refuse or show wrong.

use super::*;

/// What tells a series apart: resource, metric, attributes.
type Identity = (BTreeMap<String, String>, String, BTreeMap<String, String>);

#[derive(Debug)]
struct Known {
    start: u64,
    time: u64,
    /// The value now: of a delta series all since its start.
    value: f64,
    ended: bool,
    /// Its end was in a shipment that somebody replaced, and may come again.
    unsure: bool,
    /// What earlier lives counted.
    before: f64,
}

/// Keeps every series it was ever told of.
#[derive(Debug, Default)]
pub(super) struct Reader {
    known: BTreeMap<Identity, Known>,
    /// Resources by instance id.
    resources: BTreeMap<String, BTreeMap<String, String>>,
    /// A shipment did not arrive, or nobody knows that it did.
    missed: bool,
}

impl Reader {
    /// A shipment does not arrive.
    pub(super) fn miss(&mut self) {
        self.missed = true;
    }

    /// Takes a shipment. `settled`: its sender knows that it arrived. Panics where a law is broken.
    pub(super) fn take(&mut self, request: &ExportMetricsServiceRequest, settled: bool) {
        let mut seen = BTreeSet::new();
        let mut times = BTreeSet::new();
        let delta = deltas(request);
        for flat in flat(request) {
            let instance = flat.resource["service.instance.id"].clone();
            let attributes =
                self.resources.entry(instance).or_insert_with(|| flat.resource.clone());
            assert_eq!(*attributes, flat.resource, "attributes of a resource stay");
            let (start, time) = (flat.point.start_time_unix_nano, flat.point.time_unix_nano);
            times.insert(time);
            assert!(start <= time);
            let metric = flat.metric.to_owned();
            let counts = memprov_semconv::ALL.iter().any(|m| {
                m.name == metric
                    && matches!(m.instrument, Instrument::Counter | Instrument::Histogram)
            });
            let identity = (flat.resource, metric, flat.attributes);
            assert!(seen.insert(identity.clone()), "{identity:?} twice in a shipment");
            let value = match flat.point.value {
                Some(Value::AsInt(value)) => Some(value as f64),
                Some(Value::AsDouble(value)) => Some(value),
                None => None,
            };
            assert_eq!(
                value.is_none(),
                flat.point.flags == DataPointFlags::NoRecordedValueMask as u32
            );
            let known = self.known.get_mut(&identity);
            match (value, known) {
                (None, None) => assert!(self.missed, "{identity:?} ends and was never there"),
                (None, Some(known)) => {
                    assert!(!known.ended || known.unsure || self.missed, "{identity:?} ends twice");
                    (known.ended, known.unsure, known.time) = (true, !settled, time);
                }
                (Some(value), None) => {
                    let known =
                        Known { start, time, value, ended: false, unsure: false, before: 0.0 };
                    self.known.insert(identity, known);
                }
                (Some(value), Some(known)) => {
                    assert!(time >= known.time, "{identity:?} goes back in time");
                    let same = time == known.time;
                    if known.ended && !known.unsure {
                        assert!(
                            start >= known.time || !counts,
                            "{identity:?} goes on behind its end"
                        );
                        assert!(start > known.start, "{identity:?} lives again and says so");
                        known.before += known.value;
                        (known.start, known.value) = (start, value);
                    } else if counts && delta.contains(&identity.1) {
                        assert!(start >= known.time, "{identity:?} overlaps");
                        assert!(self.missed || start == known.time, "{identity:?} leaves a gap");
                        known.value += value;
                    } else {
                        assert!(start >= known.start);
                        if start > known.start {
                            known.before += known.value;
                            known.start = start;
                        } else if counts {
                            assert!(value >= known.value, "{identity:?} falls");
                        }
                        assert!(!same || value == known.value || !counts);
                        known.value = value;
                    }
                    (known.time, known.ended) = (time, false);
                }
            }
        }
        assert!(times.len() <= 1, "one time in a shipment");
    }

    /// The sum of a metric over all series that live.
    pub(super) fn now(&self, metric: &str) -> f64 {
        let live = self.of(metric).filter(|known| !known.ended);
        live.map(|known| known.value).sum()
    }

    /// All that a metric ever counted, in series that ended, too.
    pub(super) fn ever(&self, metric: &str) -> f64 {
        self.of(metric).map(|known| known.value + known.before).sum()
    }

    /// Series that live.
    pub(super) fn live(&self) -> usize {
        self.known.values().filter(|known| !known.ended).count()
    }

    fn of<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = &'a Known> {
        self.known.iter().filter(move |((_, name, _), _)| name == metric).map(|(_, known)| known)
    }
}

/// Metrics whose points tell what was counted since the point before.
fn deltas(request: &ExportMetricsServiceRequest) -> BTreeSet<String> {
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    scopes
        .flat_map(|scope| &scope.metrics)
        .filter(|metric| {
            let temporality = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => sum.aggregation_temporality,
                Data::Histogram(histogram) => histogram.aggregation_temporality,
                Data::ExponentialHistogram(histogram) => histogram.aggregation_temporality,
                Data::Gauge(_) | Data::Summary(_) => 0,
            };
            temporality == AggregationTemporality::Delta as i32
        })
        .map(|metric| metric.name.clone())
        .collect()
}
