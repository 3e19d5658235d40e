//! Which URL requests go to.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::config::{Attributes, Config, Export, Logs, Protocol, Sources};
use crate::otlp::{Settings, StartError};
use crate::report::Identity;

fn url(endpoint: &str, protocol: Protocol) -> String {
    let export = Export { endpoint: endpoint.to_owned(), protocol, ..Export::default() };
    Settings::new(&export, &Identity::default()).unwrap().url.to_string()
}

#[test]
fn http_appends_the_path_of_metrics_to_a_url_without_any_and_grpc_has_its_own() {
    let call = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    for (endpoint, http) in [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("http://c:4318/", "http://c:4318/"),
        ("https://c/otlp/v1/metrics/", "https://c/otlp/v1/metrics/"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
    ] {
        assert_eq!(url(endpoint, Protocol::HttpProtobuf), http);
        let place = endpoint.split('/').take(3).collect::<Vec<_>>().join("/");
        assert_eq!(url(endpoint, Protocol::Grpc), format!("{place}{call}"));
    }
}

#[test]
fn log_records_have_a_path_and_a_call_of_their_own_at_the_receiver_of_metrics() {
    let call = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
    for (endpoint, http) in [
        ("http://c:4318", "http://c:4318/v1/logs"),
        ("https://c/otlp/v1/metrics", "https://c/otlp/v1/logs"),
        ("http://c:4318/own", "http://c:4318/own"),
    ] {
        let url = |protocol| {
            let export = Export { endpoint: endpoint.to_owned(), protocol, ..Export::default() };
            let settings = Settings::logs(&export, &Logs::default(), &Identity::default());
            settings.unwrap().url.to_string()
        };
        assert_eq!(url(Protocol::HttpProtobuf), http);
        assert!(url(Protocol::Grpc).ends_with(call));
    }
}

#[test]
fn opentelemetrys_variables_mean_the_urls_of_its_specification() {
    let general = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let metrics = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
    for (variable, value, expected) in [
        (general, "http://collector:4318", "http://collector:4318/v1/metrics"),
        (general, "http://collector:4318/", "http://collector:4318/v1/metrics"),
        (general, "http://collector:4318/my/", "http://collector:4318/my/v1/metrics"),
        (general, "http://collector:4318/my", "http://collector:4318/my/v1/metrics"),
        (metrics, "http://collector:4318", "http://collector:4318/"),
        (metrics, "https://c.example.com/v1/metrics", "https://c.example.com/v1/metrics"),
        (metrics, "https://c.example.com/v1/metrics/", "https://c.example.com/v1/metrics/"),
    ] {
        let env = vec![
            (variable.into(), value.into()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL".into(), "http/protobuf".into()),
        ];
        let config = Config::load(&Sources { env, ..Sources::default() }).unwrap();
        let settings = Settings::new(&config.export, &Identity::default()).unwrap();
        assert_eq!(settings.url.to_string(), expected, "{variable}={value}");
    }
}

#[test]
fn an_endpoint_that_is_no_url_of_http_is_refused() {
    for endpoint in ["", "localhost:4317", "collector", "ftp://collector:4317", "http://"] {
        let export = Export { endpoint: endpoint.to_owned(), ..Export::default() };
        let refused = Settings::new(&export, &Identity::default()).err();
        assert!(matches!(refused, Some(StartError::Endpoint { .. })), "{endpoint}");
    }
}

#[test]
fn what_messages_call_an_endpoint_holds_no_password() {
    let endpoint = "https://user:secret@collector:4317/x".to_owned();
    let settings = Settings::new(&Export { endpoint, ..Export::default() }, &Identity::default());
    let settings = settings.unwrap();
    assert_eq!(settings.place, "https://collector:4317");
}

#[test]
fn the_clients_metrics_are_of_the_resource_of_the_agent_and_two_hosts_have_two() {
    let resource = |named: &str, host: &str| {
        let resource_attributes = Attributes::try_from(named.to_owned()).unwrap();
        let endpoint = "http://c:4317".to_owned();
        let export = Export { endpoint, resource_attributes, ..Export::default() };
        let identity = Identity { host_id: host.to_owned(), ..Identity::default() }.named(&export);
        Settings::new(&export, &identity).unwrap().agent.unwrap().0.0
    };
    let (a, b) = (resource("", "a"), resource("", "b"));
    assert_eq!((&*a["service.name"], &*a["host.id"]), ("memprov", "a"));
    let instance = |of: &BTreeMap<String, String>| Uuid::parse_str(&of["service.instance.id"]);
    assert_eq!(instance(&a).unwrap().get_version_num(), 5);
    assert_ne!(instance(&a), instance(&b));
    let named = resource("service.instance.id=mine,k8s.pod.name=x", "a");
    assert_eq!(instance(&named), instance(&a));
    assert_eq!(named["k8s.pod.name"], "x");
}
