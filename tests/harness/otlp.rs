//! OTLP as lines of JSON, held against the registry of names.

use std::collections::BTreeSet;
use std::io::BufRead;

use memprov_semconv::contract::Contract;
use serde_json::Value;

/// How many departures are told.
const TOLD: usize = 20;

/// Requests that keep to the registry.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// How many there were.
    pub requests: usize,
    /// How many points they held.
    pub points: usize,
    /// The metrics they held.
    pub names: BTreeSet<&'static str>,
}

/// Checks one request a line, all of one agent. Resources may carry the keys `also` besides those of the registry.
///
/// # Errors
/// When a line can't be read, is no JSON, or departs from the registry: the first of all departures, with their lines.
pub fn kept(lines: impl BufRead, also: &[&str]) -> Result<Kept, String> {
    let mut contract = Contract::new(also);
    let mut requests = 0;
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line.map_err(|e| format!("OTLP: read line {number}: {e}"))?;
        let request: Value = serde_json::from_str(&line)
            .map_err(|e| format!("OTLP: line {number} is no JSON: {e}"))?;
        wrong.extend(contract.check(&request).iter().map(|b| format!("line {number}: {b}")));
        requests += 1;
    }
    if wrong.is_empty() {
        let (points, names) = (contract.points(), contract.names().clone());
        return Ok(Kept { requests, points, names });
    }
    let all = wrong.len();
    wrong.truncate(TOLD);
    Err(format!("OTLP departs from the registry {all} times:\n  {}", wrong.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn lines_that_depart_or_are_no_requests_are_told_by_number() {
        let nothing = r#"{"resourceMetrics": []}"#;
        let two = format!("{nothing}\n{nothing}\n");
        assert_eq!(kept(two.as_bytes(), &[]).unwrap().requests, 2);
        let wrong = kept(format!("{nothing}\n{{}}\n").as_bytes(), &[]).unwrap_err();
        assert!(wrong.contains("line 2: request: it has no list"), "{wrong}");
        let wrong = kept(format!("{nothing}\n{{\n").as_bytes(), &[]).unwrap_err();
        assert!(wrong.starts_with("OTLP: line 2 is no JSON"), "{wrong}");
    }
}
