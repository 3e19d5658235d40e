use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, Exit, Failure, Io, Sink, Watch, dispatch};
use crate::config::{Config, Effective, LogLevel, STATE_DIR};
use crate::encode::Accumulator;
use crate::otlp::Stats;
use crate::report::{Report, SCHEMA};
use crate::screen::{Screen, Terminal};
use crate::socket::{Handler, Refusal, Server, listener_pid};
use crate::statedir::StateDir;
use crate::support::{HookProbe, HookState, PagesProbe};

fn empty(source: &str) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        source: source.to_owned(),
        generated_at: "2026-11-29T12:00:00Z".to_owned(),
        watching_since: "2026-11-29T12:00:00Z".to_owned(),
        ..Report::default()
    }
}

/// Writes down what it is asked for.
#[derive(Default)]
struct Notes(RefCell<Vec<String>>);

impl Notes {
    fn note(&self, text: String) {
        self.0.borrow_mut().push(text);
    }
}

impl Engine for Notes {
    fn run(
        &self,
        settings: &Effective,
        watch: &Watch,
        screen: Option<&Screen>,
    ) -> Result<(), Failure> {
        let interval = settings.config.export.interval;
        self.note(format!("run {interval:?} {watch:?} screen={}", screen.is_some()));
        Ok(())
    }

    fn record(
        &self,
        _settings: &Effective,
        watch: &Watch,
        trace: &Path,
        redact: bool,
    ) -> Result<(), Failure> {
        self.note(format!("record {:?} {} redact={redact}", watch.limit, trace.display()));
        Err(Failure::new(Exit::Failed, "disk full"))
    }

    fn replay(
        &self,
        trace: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        self.note(format!("replay {} {interval:?}", trace.display()));
        sink(&empty("replay"))?;
        sink(&empty("replay"))
    }

    fn import(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        self.note(format!("import {} {interval:?}", recording.display()));
        sink(&empty("import"))
    }

    fn send(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        config: &Config,
    ) -> Result<Stats, Failure> {
        self.note(format!("send {} {interval:?} {}", recording.display(), config.export.endpoint));
        Ok(Stats { sent: 2, delivered_points: 30, ..Stats::default() })
    }

    fn convert(&self, recording: &Path, trace: &Path, redact: bool) -> Result<(), Failure> {
        let (from, to) = (recording.display(), trace.display());
        self.note(format!("convert {from} {to} redact={redact}"));
        Ok(())
    }

    fn snapshot(&self, _config: &Config, pid: Option<u32>) -> Result<Report, Failure> {
        self.note(format!("snapshot {pid:?}"));
        Ok(empty("snapshot"))
    }

    fn lines(&self, report: &mut Report) -> Result<(), Failure> {
        report.host.kernel = Some("with lines".to_owned());
        Ok(())
    }

    fn otlp_json(&self, report: &Report, _series: &mut Accumulator) -> Vec<String> {
        vec![format!("{{\"otlp\":\"{}\"}}", report.source)]
    }

    fn probe(&self, _config: &Config) -> (Vec<HookProbe>, PagesProbe) {
        let hook = HookProbe {
            id: "mapping".to_owned(),
            state: HookState::Attached,
            mechanism: "tp_btf".to_owned(),
            reason: String::new(),
        };
        (vec![hook], PagesProbe::default())
    }
}

struct Done {
    status: u8,
    out: String,
    err: String,
    notes: Vec<String>,
    log: Option<LogLevel>,
}

fn call(args: &[&str], env: &[(&str, &str)], interactive: bool) -> Done {
    let engine = Notes::default();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("memprov").chain(args.iter().copied()).map(OsString::from);
    let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let log = Cell::new(None);
    let mut io = Io {
        out: &mut out,
        err: &mut err,
        terminal: Terminal { interactive, color: false },
        log: &|level| log.set(Some(level)),
    };
    let status = dispatch(args, &env, &engine, &mut io);
    Done {
        log: log.get(),
        status,
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        notes: engine.0.into_inner(),
    }
}

#[test]
fn help_and_version_are_no_errors_and_wrong_usage_is_64() {
    for args in [["--help"].as_slice(), &["--version"], &["run", "--help"]] {
        let done = call(args, &[], false);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{args:?}");
        assert!(done.out.contains("memprov"));
    }
    for args in [
        [].as_slice(),
        &["fly"],
        &["run", "--pid", "x"],
        &["run", "--pid", "0"],
        &["run", "--output", "json"],
        &["run", "--for", "10"],
        &["run", "--set", "novalue"],
        &["run", "--interval", "soon"],
        &["report", "--output", "xml"],
        &["record"],
        &["replay"],
        &["import"],
        &["import", "f", "--redact"],
        &["import", "f", "--trace", "t", "--output", "json"],
        &["import", "f", "--endpoint", "http://h:1", "--trace", "t"],
        &["check", "--require", "telepathy"],
        &["config", "--set", "scan.budgets=1"],
    ] {
        let done = call(args, &[], false);
        assert_eq!(done.status, 64, "{args:?}: {}", done.err);
        assert!(done.err.starts_with("memprov: "), "{args:?}");
        assert!(done.notes.is_empty(), "{args:?}");
    }
}

#[test]
fn run_watches_what_was_asked_for_and_shows_a_table_to_terminals_only() {
    let args = ["run", "--interval", "1s", "--pid", "7", "--pid", "8", "--for", "30s"];
    let expected = "run 1s Watch { pids: [7, 8], limit: Some(30s) } screen=";
    assert_eq!(call(&args, &[], false).notes, [format!("{expected}false")]);
    assert_eq!(call(&args, &[], true).notes, [format!("{expected}true")]);
    let forced = [args.as_slice(), &["--output", "table"]].concat();
    assert_eq!(call(&forced, &[], false).notes, [format!("{expected}true")]);
    let silent = [args.as_slice(), &["--output", "none"]].concat();
    assert_eq!(call(&silent, &[], true).notes, [format!("{expected}false")]);
}

#[test]
fn a_screen_on_a_terminal_is_not_written_over_by_news_unless_they_are_asked_for() {
    assert_eq!(call(&["run"], &[], true).log, Some(LogLevel::Warn));
    assert_eq!(call(&["run"], &[], false).log, Some(LogLevel::Info));
    assert_eq!(call(&["run", "--output", "table"], &[], false).log, Some(LogLevel::Info));
    assert_eq!(call(&["run", "--output", "none"], &[], true).log, Some(LogLevel::Info));
    assert_eq!(call(&["run", "--set", "log=info"], &[], true).log, Some(LogLevel::Info));
    assert_eq!(call(&["run"], &[("MEMPROV_LOG", "debug")], true).log, Some(LogLevel::Debug));
}

#[test]
fn all_mistakes_of_a_configuration_are_printed_a_line_each() {
    let done =
        call(&["run", "--set", "scan.budget=9", "--interval", "x"], &[("MEMPROV_LOG", "?")], false);
    assert_eq!(done.status, 64);
    assert_eq!(done.err.lines().count(), 3, "{}", done.err);
    assert!(
        done.err.contains("memprov: MEMPROV_LOG: log = \"?\": allowed: off, error"),
        "{}",
        done.err
    );
    assert!(done.err.contains("memprov: --interval: export.interval"), "{}", done.err);
}

#[test]
fn config_prints_what_is_in_effect_and_check_prints_nothing() {
    let done = call(&["config", "--state-dir", "/tmp/x"], &[("MEMPROV_SCAN_BUDGET", "0.5")], false);
    assert_eq!(done.status, 0);
    assert!(done.out.contains("budget = 0.5  # MEMPROV_SCAN_BUDGET"), "{}", done.out);
    assert!(done.out.contains("state_dir = \"/tmp/x\"  # --state-dir"), "{}", done.out);
    let done = call(&["config", "--check"], &[], false);
    assert_eq!((done.status, done.out.as_str()), (0, ""));
    let nobody = &["--set", "damon.mode=active"];
    for command in [["config", "--check"].as_slice(), &["check"]] {
        let done = call(&[command, nobody].concat(), &[], false);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(done.err.contains("damon.allow is empty: nobody is watched"), "{}", done.err);
        let done = call(&[command, nobody, &["--set", "damon.allow=*"]].concat(), &[], false);
        assert_eq!(done.err, "");
    }
    for (idle, why) in [
        ("damon.allow=*", "no monitor of ours is run"),
        ("export.exemplar_logs=true", "nothing is sent"),
    ] {
        let done = call(&["config", "--check", "--set", idle], &[], false);
        assert!(done.status == 0 && done.err.contains(why), "{idle}: {}", done.err);
    }
    let done = call(&["config", "--config", "/nowhere.toml"], &[], false);
    assert_eq!(done.status, 64);
    let done = call(&["config"], &[("MEMPROV_CONFIG", "/nowhere.toml")], false);
    assert!(done.err.contains("/nowhere.toml"), "{}", done.err);
}

#[test]
fn a_failure_of_the_engine_is_status_1_with_its_message() {
    let done = call(&["record", "--output", "t.zst", "--for", "5s"], &[], false);
    assert_eq!((done.status, done.err.as_str()), (1, "memprov: disk full\n"));
    assert_eq!(done.notes, ["record Some(5s) t.zst redact=false"]);
    let done = call(&["record", "--output", "t.zst", "--redact"], &[], false);
    assert_eq!(done.notes, ["record None t.zst redact=true"]);
}

#[test]
fn a_replay_prints_every_report_in_the_form_that_was_asked_for() {
    let done = call(&["replay", "t", "--output", "otlp-json", "--interval", "10s"], &[], false);
    assert_eq!(done.out, "{\"otlp\":\"replay\"}\n{\"otlp\":\"replay\"}\n");
    assert_eq!(done.notes, ["replay t Some(10s)"]);
    for form in ["json", "report-json"] {
        let done = call(&["replay", "t", "--output", form], &[], true);
        let first: Report = serde_json::from_str(done.out.lines().next().unwrap()).unwrap();
        assert_eq!(first, empty("replay"));
    }
    assert!(call(&["replay", "t"], &[], true).out.contains("No process is observed"));
    assert!(call(&["replay", "t"], &[], false).out.starts_with("{\"schema\""));
}

#[test]
fn an_import_prints_a_report_or_writes_a_trace() {
    let done = call(&["import", "perf.data"], &[], false);
    assert_eq!(serde_json::from_str::<Report>(&done.out).unwrap(), empty("import"));
    assert_eq!(done.notes, ["import perf.data None"]);
    let done = call(&["import", "dir/perf.data"], &[], true);
    assert!(done.out.contains("memprov import dir/perf.data --output otlp-json"), "{}", done.out);
    let done = call(&["import", "perf.data", "--trace", "t.zst", "--redact"], &[], true);
    assert_eq!((done.status, done.out.as_str()), (0, ""));
    assert_eq!(done.notes, ["convert perf.data t.zst redact=true"]);
    let done = call(&["import", "-", "--endpoint", "http://h:4317"], &[], true);
    assert_eq!(done.notes, ["send - None http://h:4317"]);
    assert_eq!(done.out, "30 points in 2 requests to http://h:4317\n");
    assert!(!call(&["import", "-"], &[], true).out.contains("memprov import - "));
}

struct Fixed;

impl Handler for Fixed {
    fn report(&self, pid: Option<u32>) -> Result<Vec<u8>, Refusal> {
        if pid == Some(9) {
            return Err(Refusal::NothingToSay("process 9 is not observed".to_owned()));
        }
        // With a field that this build does not know.
        let mut json = serde_json::to_value(empty("daemon")).unwrap();
        json["newer"] = serde_json::json!(1);
        Ok(json.to_string().into_bytes())
    }
}

#[test]
fn a_report_comes_from_the_daemon_as_it_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let held = StateDir::hold(dir.path()).unwrap();
    let _server = Server::start(&held, Arc::new(Fixed)).unwrap();
    let place = dir.path().to_str().unwrap();
    let done = call(&["report", "--state-dir", place, "--pid", "1", "--output", "json"], &[], true);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.out.contains("\"newer\":1") && done.out.ends_with("}\n"), "{}", done.out);
    let done = call(&["report", "--state-dir", place, "--lines", "--output", "json"], &[], true);
    assert!(done.out.contains("with lines"), "{}", done.out);
    let done = call(&["report", "--state-dir", place], &[], true);
    assert!(done.out.contains("memprov daemon"), "{}", done.out);
    assert!(done.out.contains(&format!("--state-dir {place}")), "{}", done.out);
    let done = call(&["report", "--state-dir", place, "--output", "otlp-json"], &[], true);
    assert_eq!(done.out, "{\"otlp\":\"daemon\"}\n");
    let done = call(&["report", "--state-dir", place, "--pid", "9"], &[], true);
    assert_eq!(done.status, 69);
    assert!(done.err.contains("process 9 is not observed"), "{}", done.err);
    assert!(done.notes.is_empty());
}

#[test]
fn a_snapshot_is_taken_when_asked_for_and_never_in_place_of_a_named_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let done = call(&["report", "--state-dir", place, "--output", "json"], &[], false);
    assert_eq!(done.status, 69);
    assert!(done.err.contains("memprov run"), "{}", done.err);
    assert!(done.notes.is_empty() && done.out.is_empty());
    let done = call(&["report"], &[("MEMPROV_STATE_DIR", place)], false);
    assert_eq!(done.status, 69);
    let done = call(&["report", "--state-dir", place, "--snapshot", "--pid", "3"], &[], false);
    assert_eq!((done.status, done.notes), (0, vec!["snapshot Some(3)".to_owned()]));
    assert!(done.out.contains("\"source\":\"snapshot\""));
}

#[test]
fn a_snapshot_in_place_of_a_daemon_is_told_on_standard_error() {
    if listener_pid(Path::new(STATE_DIR)).is_some() {
        eprintln!("skipped: a daemon answers in {STATE_DIR}");
        return;
    }
    let done = call(&["report", "--output", "json"], &[], false);
    assert_eq!((done.status, done.notes), (0, vec!["snapshot None".to_owned()]));
    assert!(done.err.starts_with("memprov: no daemon on /run/memprov/memprov.sock: a snapshot"));
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    let asked_for = call(&["report", "--snapshot", "--output", "json"], &[], false);
    assert_eq!((asked_for.status, asked_for.err.as_str()), (0, ""));
}

#[test]
fn a_replay_suggests_its_own_trace() {
    let done = call(&["replay", "dir/t.zst"], &[], true);
    assert!(done.out.contains("memprov replay dir/t.zst --output otlp-json"), "{}", done.out);
}

#[test]
fn check_prints_the_matrix_and_a_demand_decides_its_status() {
    let done = call(&["check", "--output", "json"], &[], false);
    assert_eq!(done.status, 0, "{}", done.err);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(json["schema"], "memprov.check/1");
    let done = call(&["check", "--require", "mapping.lifecycle"], &[], false);
    assert_eq!(done.status, 0, "{}", done.err);
    let done =
        call(&["check", "--require", "mapping.lifecycle", "--require", "first_touch"], &[], false);
    assert_eq!(done.status, 1);
    assert!(done.err.starts_with("memprov: first_touch is unavailable: "), "{}", done.err);
    let done = call(&["check", "--require", "residency.exact_rss"], &[], false);
    assert_eq!(done.status, 0);
    assert!(
        done.err.starts_with("memprov: warning: residency.exact_rss is degraded"),
        "{}",
        done.err
    );
}

#[test]
fn check_tells_whom_a_setting_names_and_nobody_is() {
    let sets = |values: &[&str]| {
        let sets = values.iter().flat_map(|value| ["--set", value]);
        call(&["check"].into_iter().chain(sets).collect::<Vec<_>>(), &[], false).err
    };
    let nobody = "finds no process now\n";
    let faults = sets(&["access.faults=*,comm=no such one"]);
    assert_eq!(faults, format!("memprov: warning: access.faults: comm=no such one {nobody}"));
    let active = sets(&["damon.mode=active", "damon.allow=unit=no.service"]);
    assert_eq!(active, format!("memprov: warning: damon.allow: unit=no.service {nobody}"));
    assert!(!sets(&["damon.allow=unit=no.service"]).contains(nobody), "nobody is watched anyway");
}

#[test]
fn a_reader_that_has_seen_enough_hears_no_complaint() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut err = Vec::new();
    let mut io = Io {
        out: &mut Closed,
        err: &mut err,
        terminal: Terminal { interactive: false, color: false },
        log: &|_| {},
    };
    let args = ["memprov", "replay", "t"].map(OsString::from);
    assert_ne!(dispatch(args, &[], &Notes::default(), &mut io), 0);
    assert!(err.is_empty());
}

#[test]
fn a_support_code_is_explained_and_anything_else_is_wrong_usage() {
    let done = call(&["explain", "10oh2k9"], &[], false);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.out.starts_with("mapping.lifecycle       unavailable\n"), "{}", done.out);
    assert_eq!(done.out.lines().count(), 15);
    let done = call(&["explain", "10oh2"], &[], false);
    assert_eq!((done.status, &*done.out), (64, ""));
    assert!(done.err.contains("6 digits follow the version, and 2 of them"), "{}", done.err);
    let done = call(&["explain", "zebra"], &[], false);
    assert_eq!(
        (done.status, &*done.err),
        (64, "memprov: \"zebra\" is no support code: a code of this version begins with 1\n")
    );
}

#[test]
fn files_of_tls_are_looked_at_where_tls_is_spoken() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let pair = || rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (own, other) = (pair(), pair());
    let (cert, key) =
        (file("c.pem", &own.cert.pem()), file("k.pem", &own.signing_key.serialize_pem()));
    let foreign = file("f.pem", &other.signing_key.serialize_pem());
    let (text, none) = (file("t.pem", "none"), dir.path().join("n.pem").display().to_string());
    let check = |settings: &[(&str, &str)]| {
        let settings =
            settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
        let settings: Vec<String> = settings.collect();
        let args = ["config", "--check"].into_iter().chain(settings.iter().map(String::as_str));
        let done = call(&args.collect::<Vec<_>>(), &[], false);
        (done.status, done.err)
    };
    let tls = ("export.endpoint", "https://h:4317");
    let (status, said) =
        check(&[tls, ("export.ca", &cert), ("export.cert", &cert), ("export.key", &key)]);
    assert_eq!((status, &*said), (0, ""));
    for (settings, named, path) in [
        (&[tls, ("export.ca", &none)][..], "export.ca", &none),
        (&[tls, ("export.ca", &text)], "export.ca", &text),
        (
            &[tls, ("export.ca", &cert), ("export.cert", &none), ("export.key", &key)],
            "export.cert",
            &none,
        ),
        (
            &[tls, ("export.ca", &cert), ("export.cert", &cert), ("export.key", &text)],
            "export.key",
            &text,
        ),
        (
            &[tls, ("export.ca", &cert), ("export.cert", &cert), ("export.key", &foreign)],
            "export.cert",
            &cert,
        ),
        (
            &[tls, ("export.ca", &cert), ("export.exemplar_logs", "true"), ("logs.ca", &none)],
            "logs.ca",
            &none,
        ),
    ] {
        let (status, said) = check(settings);
        assert_eq!((status, said.lines().count()), (64, 1), "{settings:?}: {said}");
        assert!(said.contains(named) && said.contains(path.as_str()), "{settings:?}: {said}");
    }
    // Neither without TLS nor where nothing is sent does anybody read them.
    for settings in [
        &[("export.endpoint", "http://h:4317"), ("export.ca", &*none)][..],
        &[("export.ca", &none)],
        &[tls, ("export.ca", &cert), ("logs.ca", &none)],
    ] {
        assert_eq!(check(settings), (0, String::new()), "{settings:?}");
    }
}
