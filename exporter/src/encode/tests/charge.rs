//! Charge books in what is said.

use super::*;
use crate::report::{Cgroup, ChargeRow};

fn cgroup(path: &str, container: Option<&str>, as_of: &str) -> Cgroup {
    let row = |kind: &str, part: &str, n| ChargeRow {
        kind: kind.to_owned(),
        part: part.to_owned(),
        bytes: bytes(n, Inferred),
    };
    Cgroup {
        cgroup: path.to_owned(),
        container: container.map(str::to_owned),
        as_of: as_of.to_owned(),
        current: 10_000,
        control: Control { lo: 9_000, hi: 10_000 },
        whole: 10_000,
        processes: Some(1),
        observed: 1,
        rows: vec![
            row("mapped", "anon", 4_000),
            row("cache", "file", 5_000),
            row("kernel", "sock", 2_000),
        ],
        cache_files: Vec::new(),
        unattributed: 0,
        skew: -1_000,
        slack: 4_096,
        swap_cache: None,
        charged_elsewhere: Control { lo: 0, hi: 0 },
        facts: BTreeMap::new(),
    }
}

/// [`busy`], and what its cgroups are charged for.
pub(super) fn charged() -> Report {
    let now = "2026-09-21T14:14:18Z";
    let mut report = busy();
    report.cgroups = vec![
        cgroup("/docker/c0ffee", Some("c0ffee"), now),
        cgroup("/docker/c0ffee/worker", Some("c0ffee"), now),
        cgroup("/system.slice", None, now),
        cgroup("/system.slice/ssh.service", None, now),
        cgroup("/system.slice/ssh.service/old", None, "2026-09-21T13:14:18Z"),
    ];
    report
}

/// Bytes by what a resource stands for, metric and value of a key.
fn told(
    request: &ExportMetricsServiceRequest,
    key: &str,
) -> BTreeMap<(String, String, String), i64> {
    let mut sums = BTreeMap::new();
    for flat in flat(request) {
        let charge =
            flat.metric == "memprov.memory.charged" || flat.get("memprov.book") == "charge";
        if charge && matches!(flat.point.value, Some(Value::AsInt(_))) {
            let name = flat.metric.trim_start_matches("memprov.memory.").to_owned();
            let place = flat.resource["service.name"].clone();
            *sums.entry((place, name, flat.get(key).to_owned())).or_default() += flat.value();
        }
    }
    sums
}

#[test]
fn rows_and_skew_add_up_to_what_the_cgroups_of_each_resource_are_charged_for() {
    for options in
        [all(), Options { resources: 1, ..all() }, Options { grain: Grain::Process, ..all() }]
    {
        let grain = options.grain;
        let request = with(&charged(), options);
        let sums = told(&request, "");
        let places: BTreeSet<&String> = sums.keys().map(|(place, ..)| place).collect();
        let mut total = 0;
        for place in &places {
            let sum = |name: &str| sums[&((*place).clone(), name.to_owned(), String::new())];
            let explained = sum("charged") + sum("skew");
            assert!(sum("control") <= explained, "{place}");
            assert!(explained <= sum("control") + sum("control_spread"), "{place}");
            total += explained;
        }
        assert_eq!(total, 40_000, "one book is too old");
        assert!(grain == Grain::Container || places.len() == 1, "no process is charged");
    }
}

#[test]
fn what_is_nobodys_own_is_the_hosts_and_the_default_tells_no_charges() {
    let sums = told(&with(&charged(), all()), "memprov.charge");
    let cache = |place: &str| sums[&(place.to_owned(), "charged".to_owned(), "cache".to_owned())];
    assert_eq!((cache("proc7"), cache("ssh"), cache("host")), (10_000, 5_000, 5_000));
    assert!(told(&with(&charged(), kinds()), "").is_empty());
}
