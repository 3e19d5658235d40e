//! OpenTelemetry's variables against each other and against everything else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use super::{
    Compression, Config, Effective, Flag, Histograms, Preset, Problem, Protocol, Sources,
    Temporality,
};

fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn load(pairs: &[(&str, &str)]) -> Result<Config, Vec<Problem>> {
    Config::load(&Sources { env: env(pairs), ..Sources::default() })
}

#[test]
fn each_variable_sets_its_key_and_the_one_of_metrics_wins() {
    for (name, general, metrics, key, shown) in [
        ("ENDPOINT", "http://a:1", "http://b:1/", "endpoint", "http://b:1/"),
        ("PROTOCOL", "GRPC", "http/protobuf", "protocol", "http/protobuf"),
        ("HEADERS", "a=1", "b=2,c=%20", "headers", "b=***,c=***"),
        ("COMPRESSION", "none", "GZIP", "compression", "gzip"),
        ("TIMEOUT", "1", "2500", "timeout", "2500ms"),
        ("CERTIFICATE", "/a", "/b", "ca", "/b"),
    ] {
        let general = (format!("OTEL_EXPORTER_OTLP_{name}"), general);
        let metrics = (format!("OTEL_EXPORTER_OTLP_METRICS_{name}"), metrics);
        for (variables, wins) in [
            (vec![&general], &general.0),
            (vec![&metrics, &general], &metrics.0),
            (vec![&general, &metrics], &metrics.0),
        ] {
            let pairs: Vec<_> =
                variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let sources = Sources { env: env(&pairs), ..Sources::default() };
            let effective = Effective::load(&sources).unwrap();
            let key = format!("export.{key}");
            assert_eq!(effective.origins.get(&key), Some(wins), "{pairs:?}");
            if *wins == metrics.0 {
                let line = format!("{} = \"{shown}\"", key.trim_start_matches("export."));
                assert!(effective.to_toml().contains(&line), "{line}: {}", effective.to_toml());
            }
        }
    }
}

#[test]
fn variables_that_exist_once_set_their_keys() {
    let config = load(&[
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            "base2_exponential_bucket_histogram",
        ),
        ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ("OTEL_SERVICE_NAME", "agent"),
        ("OTEL_RESOURCE_ATTRIBUTES", "host.name=a%2Cb,service.name=other"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key"),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE", "/cert"),
    ]);
    let export = config.unwrap().export;
    assert_eq!(export.preset, Preset::Prometheus);
    assert_eq!(export.temporality(), Temporality::Delta);
    assert_eq!(export.histograms(), Histograms::Exponential);
    assert_eq!(export.interval, Duration::from_secs(5));
    assert_eq!(export.service_name, "agent");
    assert_eq!(export.resource_attributes.0["host.name"], "a,b");
    assert_eq!((export.key.to_str(), export.cert.to_str()), (Some("/key"), Some("/cert")));
}

#[test]
fn the_order_is_flags_own_variables_those_of_metrics_general_ones_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[export]\ncompression = \"gzip\"\nprotocol = \"grpc\"\n").unwrap();
    let mut sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    let mut step = |name: &str, value: &str, expected: Compression| {
        match name.starts_with("--") {
            false => sources.env.insert(0, (name.into(), value.into())),
            true => sources.flags.push(Flag {
                flag: name.to_owned(),
                key: "export.compression".to_owned(),
                value: value.to_owned(),
            }),
        }
        let loaded = Effective::load(&sources).unwrap();
        assert_eq!(loaded.config.export.compression, expected, "{name}");
        assert_eq!(loaded.origins["export.compression"], name);
        assert_eq!(loaded.config.export.protocol, Protocol::Grpc);
    };
    step("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", Compression::Zstd);
    step("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none", Compression::None);
    step("MEMPROV_EXPORT_COMPRESSION", "gzip", Compression::Gzip);
    step("--set", "zstd", Compression::Zstd);
}

#[test]
fn logs_go_the_way_of_metrics_but_for_what_a_variable_says_of_either() {
    let way = |pairs: &[(&str, &str)]| {
        let config = load(pairs).unwrap();
        let logs = config.export.for_logs(&config.logs);
        (logs.endpoint, String::from(logs.protocol), logs.timeout.as_millis(), logs.ca)
    };
    let expected = |endpoint: &str, protocol: &str, timeout, ca: &str| {
        (endpoint.to_owned(), protocol.to_owned(), timeout, ca.into())
    };
    let general = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:4318/otlp"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/general"),
    ];
    let url = "https://c:4318/otlp/v1/logs";
    assert_eq!(way(&general), expected(url, "http/protobuf", 10_000, "/general"));
    let metrics = [
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://prometheus:9090/api/v1/otlp/v1/metrics"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/metrics"),
    ];
    let both = [general.as_slice(), &metrics].concat();
    assert_eq!(way(&both), expected(url, "http/protobuf", 10_000, "/general"));
    let logs = [
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "loki:3100"),
        ("OTEL_EXPORTER_OTLP_LOGS_INSECURE", "true"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "5"),
    ];
    let all = [both.as_slice(), &logs].concat();
    assert_eq!(way(&all), expected("http://loki:3100/", "grpc", 5, "/general"));
    assert_eq!(way(&[("MEMPROV_EXPORT_ENDPOINT", "http://c:4318")]).0, "http://c:4318");
}

#[test]
fn a_target_without_scheme_is_secure_unless_it_is_said_to_be_insecure() {
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317");
    for (pairs, expected) in [
        (vec![general], "https://c:4317"),
        (vec![general, ("OTEL_EXPORTER_OTLP_INSECURE", "TRUE")], "http://c:4317"),
        (vec![general, ("OTEL_EXPORTER_OTLP_INSECURE", "false")], "https://c:4317"),
        (
            vec![
                general,
                ("OTEL_EXPORTER_OTLP_INSECURE", "false"),
                ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "true"),
            ],
            "http://c:4317",
        ),
        (
            vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:4317"),
                ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
            ],
            "https://c:4317",
        ),
    ] {
        assert_eq!(load(&pairs).unwrap().export.endpoint, expected, "{pairs:?}");
    }
}

#[test]
fn a_disabled_sdk_sends_nothing_unless_memprovs_own_setting_says_where_to() {
    let endpoint = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:1/");
    let sent = |pairs: &[(&str, &str)]| load(pairs).unwrap().export.endpoint;
    assert_eq!(sent(&[endpoint, ("OTEL_SDK_DISABLED", "True")]), "");
    assert_eq!(sent(&[endpoint, ("OTEL_SDK_DISABLED", "false")]), "http://c:1/");
    let own = ("MEMPROV_EXPORT_ENDPOINT", "http://own:1");
    assert_eq!(sent(&[endpoint, ("OTEL_SDK_DISABLED", "true"), own]), "http://own:1");
}

#[test]
fn empty_variables_and_those_of_other_signals_are_not_looked_at() {
    let config = load(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", ""),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", ""),
        ("OTEL_SDK_DISABLED", ""),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "smoke"),
    ]);
    assert_eq!(config.unwrap(), Config::default());
}

#[test]
fn every_problem_names_its_variable_and_no_secret() {
    let wrong = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "thrift"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@c:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "snappy"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "both"),
        ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "exponential"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a"),
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_LOGS_INSECURE", "0"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "lz4"),
    ];
    let found = load(&wrong).unwrap_err();
    let origins: BTreeSet<_> = found.iter().map(|problem| &problem.origin).collect();
    assert_eq!(origins.len(), wrong.len(), "{found:#?}");
    for (name, _) in wrong {
        let problem = found.iter().find(|problem| problem.origin == name);
        let text = problem.unwrap_or_else(|| panic!("{name}: {found:#?}")).to_string();
        assert!(text.contains("allowed: ") && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_client_certificate_without_its_key_is_refused_and_so_is_a_key_alone() {
    for (given, missing) in [("CERTIFICATE", "export.key"), ("KEY", "export.cert")] {
        let name = format!("OTEL_EXPORTER_OTLP_CLIENT_{given}");
        let found = load(&[(&name, "/x")]).unwrap_err();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].origin, name);
        assert!(found[0].message.contains(missing), "{found:?}");
    }
}
