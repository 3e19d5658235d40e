//! Bounds of values, which no type says.

use std::path::PathBuf;
use std::time::Duration;

use super::{Config, DamonMode, units};

/// Settings that are each allowed, but not together.
pub(super) struct Contradiction {
    /// The setting that is to blame, and those that it contradicts.
    pub(super) keys: [&'static str; 2],
    /// The value of the first.
    pub(super) value: String,
    /// What is allowed.
    pub(super) message: String,
}

impl Config {
    /// What must hold between settings, and does not.
    pub(super) fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let interval = self.export.interval;
        if self.scan.max_age < interval {
            found.push(Contradiction {
                keys: ["scan.max_age", "export.interval"],
                value: units::show(self.scan.max_age),
                message: format!(
                    "allowed: export.interval ({}) or more, else every export would be a gap",
                    units::show(interval)
                ),
            });
        }
        let (export, logs) = (&self.export, &self.logs);
        let export = [("export.cert", &export.cert), ("export.key", &export.key)];
        let logs = [("logs.cert", &logs.cert), ("logs.key", &logs.key)];
        let pairs = [export, logs].into_iter().flat_map(|[cert, key]| [(cert, key), (key, cert)]);
        for ((given, path), (missing, other)) in pairs {
            if !path.as_os_str().is_empty() && other.as_os_str().is_empty() {
                found.push(Contradiction {
                    keys: [given, missing],
                    value: path.display().to_string(),
                    message: format!("allowed: together with {missing}, which is empty"),
                });
            }
        }
        let damon = &self.damon;
        if damon.aggregation < damon.sample.saturating_mul(5) {
            found.push(Contradiction {
                keys: ["damon.aggregation", "damon.sample"],
                value: units::show(damon.aggregation),
                message: format!(
                    "allowed: five times damon.sample ({}) or more",
                    units::show(damon.sample)
                ),
            });
        }
        found
    }

    /// What holds, and does not do what it seems to be there for: a sentence each.
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let active = self.damon.mode == DamonMode::Active;
        let nobody = self.damon.allow.0.is_empty();
        let logs = self.export.exemplar_logs;
        let cases = [
            (
                active && nobody,
                "damon.mode is active and damon.allow is empty: nobody is watched; set damon.allow to \
                 comm=NAME, unit=NAME, container=ID or *",
            ),
            (
                !active && !nobody,
                "damon.allow is set and damon.mode is not active: no monitor of ours is run",
            ),
            (
                logs && self.export.endpoint.is_empty(),
                "export.exemplar_logs is on and export.endpoint is empty: nothing is sent",
            ),
        ];
        cases.into_iter().filter(|(holds, _)| *holds).map(|(_, what)| what.to_owned()).collect()
    }

    /// What no single type can say: the first bound that this tree violates, and its key.
    pub(super) fn violation(&self) -> Option<(&'static str, String)> {
        let seconds = |s| Duration::from_secs(s);
        let within = |key, value: Duration, lo, hi: Duration| {
            (value < lo || value > hi)
                .then(|| (key, format!("allowed: {} to {}", units::show(lo), units::show(hi))))
        };
        let probability = |key, value: f64| {
            (!(0.0..=1.0).contains(&value)).then(|| (key, "allowed: 0 to 1".to_owned()))
        };
        let ring = |key, bytes: u32| {
            (!bytes.is_power_of_two() || !(64 << 10..=1 << 30).contains(&bytes))
                .then(|| (key, "allowed: a power of two from 64KiB to 1GiB".to_owned()))
        };
        let directory = |key, path: &PathBuf| {
            (!path.is_absolute()).then(|| (key, "allowed: an absolute path".to_owned()))
        };
        directory("root", &self.root)
            .or_else(|| {
                self.state_dir
                    .as_os_str()
                    .is_empty()
                    .then(|| ("state_dir", "allowed: a directory".to_owned()))
            })
            .or_else(|| {
                within("export.interval", self.export.interval, seconds(1), seconds(86_400))
            })
            .or_else(|| endpoint(&self.export.endpoint).map(|why| ("export.endpoint", why)))
            .or_else(|| endpoint(&self.logs.endpoint).map(|why| ("logs.endpoint", why)))
            .or_else(|| within("logs.timeout", self.logs.timeout, Duration::ZERO, seconds(600)))
            .or_else(|| {
                within(
                    "export.timeout",
                    self.export.timeout,
                    Duration::from_millis(1),
                    seconds(600),
                )
            })
            .or_else(|| {
                (!(64 << 10..=64 << 20).contains(&self.export.max_request))
                    .then(|| ("export.max_request", "allowed: 64KiB to 64MiB".to_owned()))
            })
            .or_else(|| {
                let name = &self.export.service_name;
                name.is_empty().then(|| ("export.service_name", "allowed: a name".to_owned()))
            })
            .or_else(|| {
                (self.export.max_owners == 0)
                    .then(|| ("export.max_owners", "allowed: 1 or more".to_owned()))
            })
            .or_else(|| {
                (self.export.max_resources == 0)
                    .then(|| ("export.max_resources", "allowed: 1 or more".to_owned()))
            })
            .or_else(|| {
                let budget = self.scan.budget;
                (!(0.0001..=1.0).contains(&budget)).then(|| {
                    ("scan.budget", "allowed: 0.0001 to 1, a fraction of one CPU".to_owned())
                })
            })
            .or_else(|| within("scan.max_age", self.scan.max_age, seconds(1), seconds(7 * 86_400)))
            .or_else(|| ring("rings.lifecycle", self.rings.lifecycle))
            .or_else(|| ring("rings.stacks", self.rings.stacks))
            .or_else(|| ring("rings.accesses", self.rings.accesses))
            .or_else(|| {
                (!(1..=100_000).contains(&self.access.rate))
                    .then(|| ("access.rate", "allowed: 1 to 100000".to_owned()))
            })
            .or_else(|| {
                let p = self.first_touch.probability;
                (p.is_nan() || p <= 0.0 || p > 1.0).then(|| {
                    let allowed = "allowed: above 0, up to 1; first_touch.enabled turns it off";
                    ("first_touch.probability", allowed.to_owned())
                })
            })
            .or_else(|| {
                let least = Duration::from_millis(1);
                within("damon.sample", self.damon.sample, least, seconds(10))
            })
            .or_else(|| {
                within(
                    "damon.aggregation",
                    self.damon.aggregation,
                    Duration::from_millis(5),
                    seconds(600),
                )
            })
            .or_else(|| {
                (!(10..=10_000).contains(&self.damon.regions))
                    .then(|| ("damon.regions", "allowed: 10 to 10000".to_owned()))
            })
            .or_else(|| probability("inject.lifecycle", self.inject.lifecycle))
            .or_else(|| probability("inject.stacks", self.inject.stacks))
            .or_else(|| probability("inject.faults", self.inject.faults))
            .or_else(|| probability("inject.queue", self.inject.queue))
    }
}

/// Why this is no URL of an OTLP receiver; `None` when it is one, or empty.
fn endpoint(text: &str) -> Option<String> {
    let allowed = "allowed: http://host:port or https://host:port, or empty to send nothing";
    if text.is_empty() {
        return None;
    }
    if text.contains('@') {
        return Some(format!("{allowed}; user and password belong into export.headers"));
    }
    let known = text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    });
    (!known).then(|| allowed.to_owned())
}
