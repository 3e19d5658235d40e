//! What a running daemon takes over from a changed configuration, and how one configuration is told from another.

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use super::{Config, Export, Scan, layers, leaves};

/// The keys that a running daemon takes over; every other one counts from the next start on. In order.
pub const SWAPPED: [&str; 3] = ["export.interval", "log", "scan.budget"];

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
        let taken = Self {
            log: new.log,
            export: Export { interval: new.export.interval, ..self.export.clone() },
            scan: Scan { budget: new.scan.budget, ..self.scan.clone() },
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
    use crate::config::{Effective, Sources, keys};

    /// The defaults with one setting.
    fn with(key: &str, value: &str) -> crate::config::Config {
        let sources =
            Sources { flags: vec![crate::config::tests::flag(key, value)], ..Sources::default() };
        Effective::load(&sources).unwrap().config
    }

    /// Another value than the default, for each key.
    fn other(key: &str) -> &'static str {
        match key {
            "export.endpoint" => "http://other:1",
            "export.interval" | "scan.max_age" => "61s",
            "export.max_owners" => "7",
            "first_touch.enabled" => "false",
            "hooks.mechanism" => "tp",
            "log" => "error",
            "root" | "state_dir" => "/elsewhere",
            "rings.lifecycle" | "rings.stacks" => "1MiB",
            _ => "0.5",
        }
    }

    #[test]
    fn each_key_is_either_taken_over_or_said_to_wait() {
        let ours = crate::config::Config::default();
        let mut taken_over = Vec::new();
        for key in keys() {
            let new = with(&key, other(&key));
            assert_ne!(new, ours, "{key}");
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
        taken_over.sort();
        assert_eq!(taken_over, SWAPPED);
    }

    #[test]
    fn the_shipped_file_names_the_keys_that_are_taken_over() {
        let text = include_str!("../../../packaging/memprov.toml");
        let list = SWAPPED.join(", ");
        assert!(text.contains(&list), "say in packaging/memprov.toml: {list}");
    }
}
