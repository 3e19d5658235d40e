//! What stands between memprov and a query: a Collector beside it, a gateway, and a store, as `otel-collector/` ships
//! their configurations. Only ports, directories and waits are set from here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memprov_tests::otlp::Kept;
use serde_json::Value;
use tempfile::TempDir;

use crate::programs::{built, root};
use crate::promql::Api;
use crate::service::{Recipe, Service, free_ports};
use crate::witness::{LOGS, METRICS, Witness, requests};

/// The stores that the tests know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Prometheus,
    VictoriaMetrics,
}

/// All of it, running.
pub(crate) struct Stack {
    /// The Collector that memprov sends to.
    pub(crate) agent: Service,
    /// The Collector that writes to the store.
    pub(crate) gateway: Service,
    pub(crate) store: Service,
    pub(crate) api: Api,
    agent_port: u16,
    telemetry: [u16; 2],
    scrape: u16,
    files: TempDir,
}

impl Stack {
    /// Starts everything.
    ///
    /// # Errors
    /// Why this host can't.
    pub(crate) fn start(store: Store) -> Result<Self, String> {
        let collector = built("core")?.join("otelcol-memprov");
        let store_program = built(match store {
            Store::Prometheus => "prometheus",
            Store::VictoriaMetrics => "victoriametrics",
        })?;
        let files = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let [
            of_store,
            agent_port,
            agent_health,
            agent_telemetry,
            gateway_port,
            gateway_health,
            telemetry,
            scrape,
        ] = free_ports();
        let address = |port: u16| format!("127.0.0.1:{port}");
        let api = Api(format!("http://{}", address(of_store)));
        let recipe = match store {
            Store::Prometheus => prometheus(store_program, files.path(), of_store, scrape),
            Store::VictoriaMetrics => victoriametrics(store_program, files.path(), of_store),
        };
        let path = match store {
            Store::Prometheus => "/api/v1/otlp",
            Store::VictoriaMetrics => "/opentelemetry",
        };
        let store = Service::start(recipe, files.path());
        let collector = |name, configurations: &[PathBuf], health, own: Vec<_>| {
            let storage = files.path().join(name).display().to_string();
            let mut environment = own;
            environment.push(("HEALTH_ENDPOINT", address(health)));
            environment.push(("STORAGE_DIRECTORY", storage));
            environment.push(("LONGEST_WAIT", "1s".to_owned()));
            let recipe = Recipe {
                name,
                program: collector.clone(),
                arguments: configurations
                    .iter()
                    .map(|path| format!("--config={}", path.display()))
                    .collect(),
                environment,
                ready: format!("http://{}/", address(health)),
            };
            Service::start(recipe, files.path())
        };
        let shipped = |name: &str| root().join("otel-collector").join(name);
        let witness = root().join("tests/e2e/witness.yaml");
        let gateway = collector(
            "gateway",
            &[shipped("gateway.yaml"), shipped("scrape.yaml"), witness],
            gateway_health,
            vec![
                ("OTLP_ENDPOINT", address(gateway_port)),
                ("PROMETHEUS_ENDPOINT", format!("{}{path}", api.0)),
                ("SCRAPE_ENDPOINT", address(scrape)),
                ("TELEMETRY_PORT", telemetry.to_string()),
                ("WITNESS", files.path().join("witness.jsonl").display().to_string()),
                ("EXEMPLARS", files.path().join("exemplars.jsonl").display().to_string()),
            ],
        );
        let agent = collector(
            "agent",
            &[shipped("agent.yaml")],
            agent_health,
            vec![
                ("OTLP_ENDPOINT", address(agent_port)),
                ("GATEWAY_ENDPOINT", address(gateway_port)),
                ("GATEWAY_INSECURE", "true".to_owned()),
                ("TELEMETRY_PORT", agent_telemetry.to_string()),
            ],
        );
        let telemetry = [agent_telemetry, telemetry];
        Ok(Self { agent, gateway, store, api, agent_port, telemetry, scrape, files })
    }

    /// Where memprov sends to.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.agent_port)
    }

    /// Every request that the gateway has taken.
    pub(crate) fn witness(&self) -> Witness {
        Witness::read(&self.written())
    }

    /// The same of memprov, held against the registry of names.
    ///
    /// # Errors
    /// What departs from it.
    pub(crate) fn kept(&self) -> Result<Kept, String> {
        Witness::kept(&self.written())
    }

    /// What the gateway's file exporter wrote.
    fn written(&self) -> String {
        fs::read_to_string(self.files.path().join("witness.jsonl")).unwrap_or_default()
    }

    /// Every request with metrics that the gateway has taken, as it came.
    pub(crate) fn requests(&self) -> Vec<Value> {
        requests(&self.written(), METRICS).collect()
    }

    /// The same of log records, from the file that the shipped configuration names.
    pub(crate) fn records(&self) -> Vec<Value> {
        let written = fs::read_to_string(self.files.path().join("exemplars.jsonl"));
        requests(&written.unwrap_or_default(), LOGS).collect()
    }

    /// What a scrape of the gateway's exporter shows.
    pub(crate) fn scraped(&self) -> String {
        text(&format!("http://127.0.0.1:{}/metrics", self.scrape))
    }

    /// Points that the Collector beside memprov has taken so far, by its own account.
    pub(crate) fn accepted(&self) -> f64 {
        let text = text(&format!("http://127.0.0.1:{}/metrics", self.telemetry[0]));
        let of_points = "otelcol_receiver_accepted_metric_points";
        let lines = text.lines().filter(|line| line.starts_with(of_points));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// What went wrong on the way by the Collectors' and the store's own account.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for port in self.telemetry {
            let text = text(&format!("http://127.0.0.1:{port}/metrics"));
            let of_points = ["send_failed", "enqueue_failed", "refused", "incoming_refused"];
            complaints.extend(nonzero(&text, |name| {
                let signals = ["_metric_points", "_log_records"];
                signals.iter().any(|signal| name.contains(signal))
                    && of_points.iter().any(|kind| name.contains(kind))
            }));
        }
        let own = text(&format!("{}/metrics", self.api.0));
        complaints.extend(nonzero(&own, |series| {
            series.starts_with("prometheus_tsdb_out_of_order_samples_total")
                || series.starts_with("prometheus_tsdb_too_old_samples_total")
                || series.starts_with("prometheus_tsdb_out_of_bound_samples_total")
                || series.starts_with("prometheus_http_requests_total")
                    && series.contains("/otlp/")
                    && !series.contains("code=\"200\"")
        }));
        complaints
    }
}

/// The samples of a text exposition whose series is chosen and whose value isn't 0.
fn nonzero(exposition: &str, chosen: impl Fn(&str) -> bool) -> Vec<String> {
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, value)| chosen(series) && value.parse() != Ok(0.0))
        .map(|(series, value)| format!("{series} {value}"))
        .collect()
}

fn text(url: &str) -> String {
    let answer = ureq::get(url).call().and_then(|mut answer| answer.body_mut().read_to_string());
    answer.unwrap_or_else(|e| panic!("GET {url}: {e}"))
}

/// Prometheus with the configuration that is shipped, and one more job that scrapes the gateway.
fn prometheus(programs: PathBuf, files: &Path, port: u16, scrape: u16) -> Recipe {
    let shipped = root().join("otel-collector/prometheus.yml");
    let configuration = fs::read_to_string(&shipped).expect("prometheus.yml is shipped");
    // A pane is a second here.
    let mut configuration =
        configuration.replace("evaluation_interval: 60s", "evaluation_interval: 1s");
    symlink(root().join("dashboards/rules"), files.join("rules")).expect("the rules are linked");
    // What is scraped is kept apart, so that queries of what was pushed stay as they are.
    configuration.push_str(&format!(
        "
scrape_configs:
  - job_name: scraped
    scrape_interval: 1s
    honor_labels: true
    static_configs:
      - targets: [\"127.0.0.1:{scrape}\"]
    metric_relabel_configs:
      - {{source_labels: [__name__], target_label: __name__, replacement: scraped_$1}}
"
    ));
    let path = files.join("prometheus.yml");
    fs::write(&path, configuration).expect("the configuration is written");
    Recipe {
        name: "prometheus",
        program: programs.join("prometheus"),
        arguments: vec![
            format!("--config.file={}", path.display()),
            format!("--storage.tsdb.path={}", files.join("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-otlp-receiver".to_owned(),
            "--enable-feature=exemplar-storage".to_owned(),
        ],
        environment: Vec::new(),
        ready: format!("http://127.0.0.1:{port}/-/ready"),
    }
}

fn victoriametrics(programs: PathBuf, files: &Path, port: u16) -> Recipe {
    Recipe {
        name: "victoriametrics",
        program: programs.join("victoria-metrics"),
        arguments: vec![
            format!("-storageDataPath={}", files.join("victoria").display()),
            format!("-httpListenAddr=127.0.0.1:{port}"),
            "-opentelemetry.usePrometheusNaming".to_owned(),
            // The newest samples are asked for at once.
            "-search.latencyOffset=0s".to_owned(),
        ],
        environment: Vec::new(),
        ready: format!("http://127.0.0.1:{port}/health"),
    }
}
