//! What a running daemon takes over from a changed configuration, and how one configuration is told from another.

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use super::{Config, Export, layers, leaves};

/// The keys that a running daemon takes over; every other one counts from the next start on. In order.
pub const SWAPPED: [&str; 26] = [
    "export.ca",
    "export.cert",
    "export.compression",
    "export.detail",
    "export.endpoint",
    "export.exemplar_logs",
    "export.headers",
    "export.interval",
    "export.key",
    "export.max_owners",
    "export.max_request",
    "export.max_resources",
    "export.protocol",
    "export.resources",
    "export.timeout",
    "log",
    "logs.ca",
    "logs.cert",
    "logs.compression",
    "logs.endpoint",
    "logs.headers",
    "logs.key",
    "logs.protocol",
    "logs.timeout",
    "scan.budget",
    "scan.max_age",
];

impl Config {
    /// 32 hexadecimal digits that are equal for equal configurations, whatever their sources: SipHash-2-4 with a zero
    /// key over the lines `key = value`.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hasher = SipHasher24::new();
        for (key, value) in leaves(self) {
            hasher.write(format!("{key} = {}\n", layers::literal(&value.kind)).as_bytes());
        }
        format!("{:032x}", hasher.finish128().as_u128())
    }

    /// This configuration with what a running daemon can take over from `new`, and the keys that differ but wait for a
    /// restart.
    #[must_use]
    pub fn taking(&self, new: &Self) -> (Self, Vec<String>) {
        let ours = self.export.clone();
        let taken = Self {
            log: new.log,
            export: Export {
                // A series keeps its resource and its temporality for as long as it lives.
                service_name: ours.service_name,
                resource_attributes: ours.resource_attributes,
                preset: ours.preset,
                temporality: ours.temporality,
                histograms: ours.histograms,
                ..new.export.clone()
            },
            logs: new.logs.clone(),
            scan: new.scan.clone(),
            ..self.clone()
        };
        let waiting = leaves(&taken)
            .into_iter()
            .zip(leaves(new))
            .filter(|((_, ours), (_, theirs))| ours.kind != theirs.kind)
            .map(|((key, _), _)| key)
            .collect();
        (taken, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::SWAPPED;
    use crate::config::{Config, Effective, Sources, keys};

    /// Values of which each key takes one.
    const VALUES: [&str; 22] = [
        "61s",
        "7",
        "0.5",
        "1MiB",
        "false",
        "true",
        "tp",
        "error",
        "http://other:1",
        "a=b",
        "none",
        "delta",
        "exponential",
        "owners",
        "process",
        "http/protobuf",
        "/elsewhere",
        "off",
        "vaddr",
        "*",
        "1ms",
        "11",
    ];

    /// The defaults with these settings, if they hold and say something else.
    fn with(settings: &[(&str, &str)]) -> Option<Config> {
        let flags = settings.iter().map(|(key, value)| crate::config::tests::flag(key, value));
        let sources = Sources { flags: flags.collect(), ..Sources::default() };
        let config = Effective::load(&sources).ok()?.config;
        (config != Config::default()).then_some(config)
    }

    #[test]
    fn each_key_is_either_taken_over_or_said_to_wait() {
        let ours = Config::default();
        let (mut taken_over, mut untried) = (Vec::new(), Vec::new());
        for key in keys() {
            let Some(new) = VALUES.iter().find_map(|value| with(&[(&key, value)])) else {
                untried.push(key);
                continue;
            };
            assert_ne!(new.hash(), ours.hash(), "{key}");
            let (taken, waiting) = ours.taking(&new);
            if taken == new {
                assert!(waiting.is_empty(), "{key}");
                taken_over.push(key);
            } else {
                assert_eq!(taken, ours, "{key}");
                assert_eq!(waiting, [key]);
            }
        }
        // A certificate and its key go together.
        assert_eq!(untried, ["export.cert", "export.key", "logs.cert", "logs.key"]);
        for [cert, key] in [["export.cert", "export.key"], ["logs.cert", "logs.key"]] {
            let both = with(&[(cert, "/a"), (key, "/b")]).unwrap();
            assert_eq!(ours.taking(&both), (both, Vec::new()));
        }
        taken_over.extend(untried);
        taken_over.sort();
        assert_eq!(taken_over, SWAPPED);
    }

    #[test]
    fn the_shipped_file_names_the_keys_that_are_taken_over() {
        let text = include_str!("../../../packaging/memprov.toml").replace("\n# ", " ");
        let list = SWAPPED.join(", ");
        assert!(text.contains(&list), "say in packaging/memprov.toml: {list}");
    }
}
