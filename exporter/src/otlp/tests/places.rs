//! Which URL requests go to.

use crate::config::{Attributes, Config, Export, Protocol, Sources};
use crate::otlp::{Settings, StartError};

fn url(endpoint: &str, protocol: Protocol) -> String {
    let export = Export { endpoint: endpoint.to_owned(), protocol, ..Export::default() };
    Settings::new(&export, "host").unwrap().url.to_string()
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
        let settings = Settings::new(&config.export, "host").unwrap();
        assert_eq!(settings.url.to_string(), expected, "{variable}={value}");
    }
}

#[test]
fn an_endpoint_that_is_no_url_of_http_is_refused() {
    for endpoint in ["", "localhost:4317", "collector", "ftp://collector:4317", "http://"] {
        let export = Export { endpoint: endpoint.to_owned(), ..Export::default() };
        let refused = Settings::new(&export, "host").err();
        assert!(matches!(refused, Some(StartError::Endpoint { .. })), "{endpoint}");
    }
}

#[test]
fn what_messages_call_an_endpoint_holds_no_password() {
    let endpoint = "https://user:secret@collector:4317/x".to_owned();
    let settings = Settings::new(&Export { endpoint, ..Export::default() }, "host").unwrap();
    assert_eq!(settings.place, "https://collector:4317");
}

#[test]
fn agents_of_two_hosts_are_two_instances_of_one_service_unless_they_are_named() {
    let resource = |named: &str, host: &str| {
        let resource_attributes = Attributes::try_from(named.to_owned()).unwrap();
        let endpoint = "http://c:4317".to_owned();
        let export = Export { endpoint, resource_attributes, ..Export::default() };
        Settings::new(&export, host).unwrap().agent.unwrap().0.0
    };
    let (a, b) = (resource("", "a"), resource("", "b"));
    assert_eq!(a["service.name"], b["service.name"]);
    assert_eq!((&*a["service.instance.id"], &*b["service.instance.id"]), ("a", "b"));
    let named = resource("service.instance.id=mine,deployment.environment.name=x", "a");
    assert_eq!((&*named["service.instance.id"], &*named["host.id"]), ("mine", "a"));
}
