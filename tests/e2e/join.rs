//! An application's own metrics, by OpenTelemetry's SDK, beside what memprov says of its container.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use memprov_tests::host;

use crate::container::Container;
use crate::programs::root;
use crate::scene::Scene;
use crate::service::until;
use crate::stack::Store;

/// Python with the SDK, in an environment below the target directory.
fn python() -> Result<PathBuf, String> {
    let wanted = root().join("tests/e2e/requirements.txt");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-python");
    let python = environment.join("bin/python");
    let run = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr))),
        Err(e) => Err(format!("{command:?}: {e}")),
    };
    if !python.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--requirement"];
    run(Command::new(&python).args(pip).arg(wanted))?;
    Ok(python)
}

/// The application, ended with the test.
struct Application(Child);

impl Application {
    fn start(python: &Path, endpoint: &str, container: &Container) -> Self {
        let mut child = Command::new(python)
            .arg(root().join("tests/e2e/application.py"))
            .args([endpoint, &container.id])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let mut said = String::new();
        let from = child.stdout.take().expect("a pipe");
        BufReader::new(from).read_line(&mut said).expect("the application is read");
        assert_eq!(said, "ready\n");
        Self(child)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        drop(killed);
    }
}

#[test]
fn an_applications_own_metrics_join_with_those_about_its_container() {
    let ready = python().and_then(|python| Ok((python, Container::make()?)));
    let (python, container) = match ready {
        Ok(ready) => ready,
        Err(why) => return host::skip("e2e join", &why),
    };
    let set = Scene::set_in("join", "cut_and_cover", Store::Prometheus, Some(&container));
    let Some((scene, first)) = set else { return };
    let _application = Application::start(&python, &scene.stack.endpoint(), &container);
    scene.agrees(&first);
    let resident = "sum by (container_id) (memprov_memory_resident_bytes{container_id!=\"\"})";
    let resident_value =
        until("memprov speaks of the container", || scene.stack.api.value(resident));
    for (query, expected) in [
        // What the application counts, of what memprov measures.
        (
            format!("{resident} / on (container_id) sum by (container_id) (shop_cache_entries)"),
            resident_value / 1000.0,
        ),
        // What the application says of itself, beside it.
        (
            format!(
                "{resident} * on (container_id) group_left (service_version) max by (container_id, \
                 service_version) (target_info{{service_version!=\"\"}})"
            ),
            resident_value,
        ),
        // The application's own join still finds one target_info, its own.
        (
            "shop_orders_total * on (job, instance) group_left (service_version) target_info"
                .to_owned(),
            7.0,
        ),
        // And memprov's own finds its host's name.
        (
            "count(sum by (job, instance) (memprov_memory_control_bytes{memprov_book=\"process\"}) \
             * on (job, instance) group_left (host_name) target_info{host_name!=\"\"})"
                .to_owned(),
            1.0,
        ),
    ] {
        let found = until(&query, || scene.stack.api.value(&query));
        assert_eq!(found, expected, "{query}");
        let labels = scene.stack.api.query(&query).expect("a query");
        if query.contains("service_version)") {
            assert_eq!(labels[0].labels["service_version"], "4.2", "{query}");
        }
    }
    scene.agrees(&first);
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}
