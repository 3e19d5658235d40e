use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::{Config, Effective, Flag, Histograms, Mechanism, Problem, Sources, Temporality};

fn toml(text: &str) -> (tempfile::NamedTempFile, Sources) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    (file, sources)
}

fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

pub(super) fn flag(key: &str, value: &str) -> Flag {
    Flag { flag: "--set".to_owned(), key: key.to_owned(), value: value.to_owned() }
}

fn problems(sources: &Sources) -> Vec<Problem> {
    Config::load(sources).unwrap_err()
}

#[test]
fn no_source_gives_the_defaults() {
    assert_eq!(Config::load(&Sources::default()).unwrap(), Config::default());
}

#[test]
fn the_shipped_file_is_the_default_and_mentions_every_key() {
    let text = include_str!("../../../packaging/memprov.toml");
    let (_file, sources) = toml(text);
    let effective = Effective::load(&sources).unwrap();
    assert_eq!(effective.config, Config::default());
    let visible: Vec<String> =
        super::keys().into_iter().filter(|key| !key.starts_with("inject.")).collect();
    let mentioned: Vec<&String> = effective.origins.keys().collect();
    assert_eq!(visible.len(), mentioned.len());
    for key in visible {
        assert!(mentioned.contains(&&key), "{key} is not in the shipped file");
    }
}

#[test]
fn later_sources_win_and_each_value_knows_its_origin() {
    let (file, mut sources) = toml("[export]\ninterval = \"10s\"\nendpoint = \"http://file:1\"\n");
    let loaded = Effective::load(&sources).unwrap();
    assert_eq!(loaded.config.export.interval, Duration::from_secs(10));
    assert_eq!(loaded.origins["export.interval"], format!("{}:2", file.path().display()));

    sources.env = env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:1")]);
    assert_eq!(Config::load(&sources).unwrap().export.endpoint, "http://otel:1");

    sources.env.extend(env(&[
        ("MEMPROV_EXPORT_INTERVAL", "20s"),
        ("MEMPROV_EXPORT_ENDPOINT", "http://own:1"),
    ]));
    let loaded = Effective::load(&sources).unwrap();
    assert_eq!(loaded.config.export.interval, Duration::from_secs(20));
    assert_eq!(loaded.config.export.endpoint, "http://own:1");
    assert_eq!(loaded.origins["export.endpoint"], "MEMPROV_EXPORT_ENDPOINT");

    sources.flags = vec![flag("export.interval", "30s"), flag("export.interval", "40s")];
    let loaded = Effective::load(&sources).unwrap();
    assert_eq!(loaded.config.export.interval, Duration::from_secs(40));
    assert_eq!(loaded.origins["export.interval"], "--set");
}

#[test]
fn every_problem_of_every_source_is_reported_at_once() {
    let (file, mut sources) = toml(
        "[export]\nintervall = \"1s\"\ninterval = 60\n[scan]\nbudget = \"lots\"\n[nonsense]\na = 1\n",
    );
    sources.env = env(&[("MEMPROV_HOOKS_MECHANISM", "kprobe"), ("MEMPROV_NONSENSE", "1")]);
    sources.flags = vec![flag("rings.stacks", "3MiB"), flag("scan", "1")];
    let found = problems(&sources);
    let at = |line: u32| format!("{}:{line}", file.path().display());
    let places: Vec<(String, &str)> =
        found.iter().map(|p| (p.origin.clone(), p.key.as_str())).collect();
    for expected in [
        (at(2), "export.intervall"),
        (at(3), "export.interval"),
        (at(5), "scan.budget"),
        (at(7), "nonsense.a"),
        ("environment".to_owned(), "MEMPROV_NONSENSE"),
        ("MEMPROV_HOOKS_MECHANISM".to_owned(), "hooks.mechanism"),
        ("--set".to_owned(), "rings.stacks"),
        ("--set".to_owned(), "scan"),
    ] {
        assert!(places.contains(&expected), "{expected:?} is missing in {places:?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
    let message = |key: &str| found.iter().find(|p| p.key == key).unwrap().to_string();
    assert!(
        message("export.intervall")
            .contains("endpoint, exemplar_logs, headers, histograms, interval")
    );
    assert!(
        message("export.interval")
            .ends_with("= 60: allowed: a whole number and its unit, as in 250ms, 60s, 10m, 1h")
    );
    assert!(message("hooks.mechanism").contains("fentry"), "{}", message("hooks.mechanism"));
    assert!(message("rings.stacks").contains("power of two"));
    assert!(message("scan").contains("section"));
}

#[test]
fn a_wrong_value_is_reported_even_where_a_later_source_overrides_it() {
    let (_file, mut sources) = toml("[scan]\nbudget = 7\n");
    sources.flags = vec![flag("scan.budget", "0.5")];
    assert_eq!(problems(&sources).len(), 1);
}

#[test]
fn values_out_of_bounds_name_their_key_and_what_is_allowed() {
    for (key, value) in [
        ("root", "proc"),
        ("state_dir", ""),
        ("log", "loud"),
        ("export.interval", "0s"),
        ("export.interval", "25h"),
        ("export.interval", "1.5s"),
        ("export.interval", "99999999999999999999s"),
        ("export.interval", "18446744073709551615h"),
        ("export.endpoint", "collector:4317"),
        ("export.endpoint", "http://"),
        ("export.endpoint", "http://:4317"),
        ("export.endpoint", "http://a b:1"),
        ("export.endpoint", "http://user:password@a:1"),
        ("export.protocol", "http/json"),
        ("export.compression", "brotli"),
        ("export.timeout", "0s"),
        ("export.timeout", "11m"),
        ("export.max_request", "1KiB"),
        ("export.headers", "no pair"),
        ("export.headers", "a b=1"),
        ("export.headers", "content-type=text/html"),
        ("export.preset", "datadog"),
        ("export.temporality", "none"),
        ("export.histograms", "summary"),
        ("export.exemplar_logs", "some"),
        ("logs.endpoint", "loki"),
        ("logs.protocol", "export"),
        ("logs.timeout", "11m"),
        ("export.service_name", ""),
        ("export.resource_attributes", "=1"),
        ("export.max_owners", "0"),
        ("export.max_owners", "-1"),
        ("export.max_resources", "0"),
        ("export.resources", "pod"),
        ("export.detail", "all"),
        ("scan.budget", "0"),
        ("scan.budget", "NaN"),
        ("scan.max_age", "8d"),
        ("rings.lifecycle", "4096"),
        ("rings.lifecycle", "4096B"),
        ("rings.lifecycle", "4GiB"),
        ("first_touch.enabled", "perhaps"),
        ("first_touch.probability", "0"),
        ("inject.lifecycle", "1.1"),
    ] {
        let sources = Sources { flags: vec![flag(key, value)], ..Sources::default() };
        let found = problems(&sources);
        assert_eq!(found.len(), 1, "{key} = {value}");
        assert_eq!(found[0].key, key);
        let text = found[0].to_string();
        assert!(text.contains("allowed") || text.contains("expected"), "{text}");
    }
}

#[test]
fn numbers_of_the_wrong_type_are_told_what_is_allowed_too() {
    for (key, value, allowed) in [
        ("access.rate", "often", "allowed: 1 to 100000"),
        ("access.rate", "-5", "allowed: 1 to 100000"),
        ("damon.regions", "many", "allowed: 10 to 10000"),
        ("scan.budget", "lots", "allowed: 0.0001 to 1, a fraction of one CPU"),
        ("inject.queue", "half", "allowed: 0 to 1"),
        ("first_touch.enabled", "perhaps", "allowed: a boolean"),
    ] {
        let sources = Sources { flags: vec![flag(key, value)], ..Sources::default() };
        let text = problems(&sources)[0].to_string();
        assert!(text.contains("this is ") && text.ends_with(allowed), "{text}");
    }
}

#[test]
fn good_values_of_every_key_are_taken_from_text() {
    let flags = [
        ("state_dir", "/tmp/x"),
        ("root", "/mnt/host"),
        ("log", "debug"),
        ("export.interval", "1s"),
        ("export.endpoint", "https://[::1]:4317"),
        ("export.max_owners", "10"),
        ("export.max_resources", "10"),
        ("export.resources", "process"),
        ("export.detail", "all(comm=redis-server)"),
        ("export.protocol", "http/protobuf"),
        ("export.compression", "zstd"),
        ("export.timeout", "1500ms"),
        ("export.max_request", "1MiB"),
        ("export.headers", "api-key=a%2Cb, x = 1 ,"),
        ("export.ca", "/etc/ca.pem"),
        ("export.cert", "/etc/cert.pem"),
        ("export.key", "/etc/key.pem"),
        ("export.preset", "delta"),
        ("export.temporality", "cumulative"),
        ("export.histograms", "preset"),
        ("export.service_name", "agent"),
        ("export.resource_attributes", "host.name=a,k%3Dey=%C3%A9"),
        ("export.exemplar_logs", "true"),
        ("logs.endpoint", "http://loki:3100/otlp/v1/logs"),
        ("logs.protocol", "http/protobuf"),
        ("logs.compression", ""),
        ("logs.timeout", "0s"),
        ("logs.headers", "x=1"),
        ("logs.ca", "/a"),
        ("logs.cert", "/b"),
        ("logs.key", "/c"),
        ("scan.budget", "1"),
        ("scan.max_age", "1h"),
        ("rings.lifecycle", "64KiB"),
        ("rings.stacks", "1GiB"),
        ("rings.accesses", "2MiB"),
        ("access.pmu", "true"),
        ("access.rate", "100"),
        ("access.faults", "comm=redis-server,*"),
        ("first_touch.enabled", "false"),
        ("first_touch.probability", "1"),
        ("hooks.mechanism", "tp_btf"),
        ("damon.mode", "active"),
        ("damon.watch", "fvaddr"),
        ("damon.allow", "comm=redis-server, unit=a.service"),
        ("damon.sample", "20ms"),
        ("damon.aggregation", "400ms"),
        ("damon.regions", "10000"),
        ("inject.lifecycle", "0.1"),
        ("inject.stacks", "0.2"),
        ("inject.faults", "0.3"),
        ("inject.queue", "1"),
    ];
    assert_eq!(flags.len(), super::keys().len());
    let sources = Sources {
        flags: flags.iter().map(|(key, value)| flag(key, value)).collect(),
        ..Sources::default()
    };
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.hooks.mechanism, Mechanism::TpBtf);
    assert_eq!(config.rings.lifecycle, 65_536);
    assert_eq!(config.rings.stacks, 1 << 30);
    assert!(!config.first_touch.enabled);
    assert_eq!(config.damon.allow.0.len(), 2);
    assert_eq!((config.access.pmu, config.access.faults.0.len()), (true, 2));
    assert_eq!(config.inject.queue, 1.0);
    assert_eq!(config.export.max_owners, 10);
    assert_eq!(config.export.headers.0["api-key"], "a,b");
    assert_eq!(config.export.headers.0["x"], "1");
    assert_eq!(config.export.resource_attributes.0["k=ey"], "é");
    assert_eq!(config.export.temporality(), Temporality::Cumulative, "it wins over the preset");
    assert_eq!(config.export.histograms(), Histograms::Exponential, "as the preset has it");
}

#[test]
fn what_is_printed_reads_back_as_the_same_configuration() {
    let sources = Sources {
        flags: vec![flag("scan.max_age", "90s"), flag("inject.queue", "0.25")],
        ..Sources::default()
    };
    let effective = Effective::load(&sources).unwrap();
    let printed = effective.to_toml();
    assert!(printed.contains("max_age = \"90s\"  # --set"), "{printed}");
    let (_file, again) = toml(&printed);
    assert_eq!(Config::load(&again).unwrap(), effective.config);
    assert!(!Effective::load(&Sources::default()).unwrap().to_toml().contains("inject"));
}

#[test]
fn a_maximum_age_below_the_interval_is_refused() {
    let sources = Sources { flags: vec![flag("export.interval", "15m")], ..Sources::default() };
    let found = problems(&sources);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key, "scan.max_age");
    assert!(found[0].message.contains("15m"));
}

#[test]
fn broken_toml_names_each_line_and_a_missing_file_its_path() {
    let (file, sources) = toml("log = \n[export\ninterval = \"1s\"\n");
    let found = problems(&sources);
    assert!(found.len() >= 2, "{found:?}");
    assert!(found.iter().any(|p| p.origin == format!("{}:1", file.path().display())), "{found:?}");
    let gone = Sources { file: Some("/nowhere/memprov.toml".into()), ..Sources::default() };
    let found = problems(&gone);
    assert_eq!(found.len(), 1);
    assert!(found[0].to_string().starts_with("/nowhere/memprov.toml: cannot read"));
}

#[test]
fn odd_tables_and_keys_are_problems_and_never_panics() {
    for text in [
        "export = 5",
        "[export.interval]\nx = 1",
        "[export]\ninterval = []",
        "[export]\ninterval = 2026-01-01",
        "\"export.interval\" = \"1s\"\n[[scan]]\nbudget = 1",
        "\"a b\" = 1",
        "\"\" = 1",
        "[\"\".\"[0]\"]\nx = 1",
        "[unknown]",
        "log = 99999999999999999999999",
    ] {
        let (_file, sources) = toml(text);
        assert!(Config::load(&sources).is_err(), "{text}");
    }
    let (_file, sources) = toml("[export]\n");
    assert_eq!(Config::load(&sources).unwrap(), Config::default());
}

#[test]
fn variables_that_are_no_settings_do_not_stop_the_daemon() {
    let sources = Sources {
        env: env(&[
            ("MEMPROV_CONFIG", "/x"),
            ("MEMPROV_SERVICE_HOST", "10.0.0.1"),
            ("MEMPROV_PORT_4317_TCP", "tcp://10.0.0.1:4317"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
            ("PATH", "/bin"),
        ]),
        ..Sources::default()
    };
    assert_eq!(Config::load(&sources).unwrap(), Config::default());
}

#[test]
fn a_variable_that_is_not_utf8_is_a_problem_only_when_it_is_ours() {
    let bytes = OsStr::from_bytes(b"\xff").to_owned();
    let mut sources = Sources { env: vec![("HOME".into(), bytes.clone())], ..Sources::default() };
    assert!(Config::load(&sources).is_ok());
    sources.env = vec![("MEMPROV_LOG".into(), bytes)];
    assert_eq!(problems(&sources).len(), 1);
}
