//! Names as Prometheus has them when it takes OTLP with `UnderscoreEscapingWithSuffixes`, its default translation
//! (OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility"; prometheus/otlptranslator `metric_namer.go`).

use crate::files::Instrument;

/// The units that memprov's metrics have, but for annotations (`{fault}`), with what they append.
pub(crate) const UNITS: [(&str, &str); 3] = [("By", "bytes"), ("s", "seconds"), ("1", "")];

/// The name of a metric. Of a histogram, that of its family: with classic buckets `_bucket`, `_sum` and `_count` follow.
pub(crate) fn metric(name: &str, unit: &str, instrument: Instrument) -> String {
    let mut tokens: Vec<&str> = name.split(|c: char| !valid(c)).filter(|t| !t.is_empty()).collect();
    let suffix = UNITS.iter().find(|(ucum, _)| *ucum == unit).map_or("", |(_, suffix)| suffix);
    if !suffix.is_empty() && !tokens.contains(&suffix) {
        tokens.push(suffix);
    }
    let last = match instrument {
        Instrument::Counter => "total",
        Instrument::Gauge if unit == "1" => "ratio",
        Instrument::Gauge | Instrument::UpDownCounter | Instrument::Histogram => "",
    };
    if !last.is_empty() {
        tokens.retain(|token| *token != last);
        tokens.push(last);
    }
    tokens.join("_")
}

/// The name of a label. Keys of attributes begin with a letter and have no two separators in a row.
pub(crate) fn label(key: &str) -> String {
    key.replace(|c| !valid(c), "_")
}

fn valid(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_prometheus_gives() {
        use Instrument::{Counter, Gauge, Histogram, UpDownCounter};
        for (name, unit, instrument, expected) in [
            ("a.memory.resident", "By", UpDownCounter, "a_memory_resident_bytes"),
            ("a.cpu.time", "s", Counter, "a_cpu_time_seconds_total"),
            ("a.cpu.utilization", "1", Gauge, "a_cpu_utilization_ratio"),
            ("a.source.lost", "{record}", Counter, "a_source_lost_total"),
            ("a.build_info", "{build}", Gauge, "a_build_info"),
            ("a.total.faults", "{fault}", Counter, "a_faults_total"),
            ("a.bytes.sent", "By", Counter, "a_bytes_sent_total"),
            ("a.latency", "s", Histogram, "a_latency_seconds"),
            ("a.weight", "1", UpDownCounter, "a_weight"),
        ] {
            assert_eq!(metric(name, unit, instrument), expected);
        }
        assert_eq!(label("memprov.owner.id"), "memprov_owner_id");
    }
}
