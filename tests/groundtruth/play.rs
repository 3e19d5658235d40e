//! Plays one case in one way, and fails with everything that was wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use memprov_tests::agent::{Agent, replayed};
use memprov_tests::play::{Actor, Performance};
use memprov_tests::score::{self, Unseen};
use memprov_tests::truth::{End, Phase, Workload};
use memprov_tests::{host, physical};
use tempfile::TempDir;

use crate::swap::Swap;

/// The workload, built twice: as distributions build, and at fixed addresses, where its break is below 4 GiB.
struct Programs {
    usual: PathBuf,
    fixed: PathBuf,
}

fn programs() -> &'static Programs {
    static BUILT: OnceLock<Programs> = OnceLock::new();
    BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("groundtruth");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let build = |name: &str, flags: &[&str]| {
            let program = out.join(name);
            host::compile_c(&sources, &program, flags).expect("the workload compiles");
            program
        };
        Programs { usual: build("truth", &[]), fixed: build("truth-fixed", &["-no-pie"]) }
    })
}

/// The cases that the workload has.
pub(crate) fn listed() -> Vec<String> {
    let listed = Command::new(&programs().usual)
        .arg("--list")
        .output()
        .expect("the workload lists its cases");
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

/// What a case needs while it runs: a place for its files, and swap where it is about swap.
struct Stage {
    files: TempDir,
    _swap: Option<Swap>,
}

impl Stage {
    fn set(case: &str) -> Self {
        // Below the target directory: on disk, where a temporary directory may be memory.
        let files = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for files");
        let swap = (case == "paged_out")
            .then(Swap::on)
            .and_then(|swap| swap.inspect_err(|why| eprintln!("no swap of our own: {why}")).ok());
        Self { files, _swap: swap }
    }

    fn enter(&self, case: &str) -> Actor {
        let programs = programs();
        let program = if case == "compat_break" { &programs.fixed } else { &programs.usual };
        Actor::enter(Workload::start(program, case, self.files.path()).expect("it starts"))
    }
}

/// Fails with all that was wrong; a case that the host can't play is a skip.
fn verdict(way: &str, case: &str, mut wrong: Vec<String>, end: End) {
    match end {
        End::Good => {}
        End::Cannot(why) => return host::skip(&format!("groundtruth {way} {case}"), &why),
        End::Bad(what) => wrong.push(format!("the workload ended badly: {what}")),
    }
    assert!(wrong.is_empty(), "{case}, {way}:\n  {}", wrong.join("\n  "));
}

/// A performance without an audience: all phases, what was wrong, and how it ended.
fn rehearse(stage: &Stage, case: &str) -> (Vec<Phase>, Vec<String>, End) {
    let mut actor = stage.enter(case);
    let mut phases = Vec::new();
    while let Some(phase) = actor.standing() {
        phases.push(phase.clone());
        actor.go();
    }
    let Performance { mut wrong, end, .. } = actor.leave();
    if end == End::Good && !phases.iter().any(Phase::holds_anything) {
        wrong.push("no phase holds anything: nothing is stated".to_owned());
    }
    (phases, wrong, end)
}

/// Nobody watches: the workload compares its own words with the kernel's.
pub(crate) fn oracle(case: &str) {
    let (_, wrong, end) = rehearse(&Stage::set(case), case);
    verdict("oracle", case, wrong, end);
}

pub(crate) fn early(case: &str) {
    live("early", case);
}

pub(crate) fn late(case: &str) {
    live("late", case);
}

fn not_here(way: &str, case: &str) -> bool {
    let why = host::no_live_tests();
    if let Some(why) = why {
        host::skip(&format!("groundtruth {way} {case}"), why);
    }
    why.is_some()
}

fn live(way: &str, case: &str) {
    if not_here(way, case) {
        return;
    }
    let stage = Stage::set(case);
    let mut actor = stage.enter(case);
    if way == "late" {
        actor.go_unseen();
    }
    let mut wrong = Vec::new();
    if actor.standing().is_some() {
        let agent = Agent::watching(actor.pid()).expect("memprov starts");
        // After a phase without a report the next ones would wait as long for nothing.
        while actor.show(&agent) {
            wrong.extend(agent.otlp(actor.pid()).err());
            actor.go();
        }
        wrong.extend(agent.stop().err());
    }
    let played = actor.leave();
    wrong.extend(score::performance(&played));
    verdict(way, case, wrong, played.end);
}

/// Side-band tells less: nothing of that is told for sure, and books and bounds still hold.
pub(crate) fn sideband(case: &str) {
    under_loss(case, &["hooks.mechanism=sideband"]);
}

/// Records are lost on purpose: what is told for sure is still true, and the books still close.
pub(crate) fn under_loss(case: &str, settings: &[&str]) {
    if not_here("loss", case) {
        return;
    }
    let stage = Stage::set(case);
    let mut actor = stage.enter(case);
    let mut wrong = Vec::new();
    let agent = Agent::watching_with(actor.pid(), settings).expect("memprov starts");
    while let Some(phase) = actor.standing() {
        let before = physical::rss(phase.pids());
        match agent.fresh(actor.pid(), &[], SystemTime::now()) {
            Ok(report) => {
                let after = physical::rss(report.processes.iter().map(|p| p.pid));
                let kernel = physical::around(&before, after);
                wrong.extend(score::honesty(phase, &report, &kernel));
                wrong.extend(score::bounds(phase, &report));
            }
            Err(why) => {
                wrong.push(format!("{}: {why}", phase.phase));
                break;
            }
        }
        actor.go();
    }
    wrong.extend(agent.stop().err());
    let played = actor.leave();
    wrong.extend(played.wrong);
    verdict(&format!("with {settings:?}"), case, wrong, played.end);
}

/// Recording stops while the workload still stands in the last phase in which anybody holds anything: that is scored.
pub(crate) fn replay(case: &str) {
    if not_here("replay", case) {
        return;
    }
    let stage = Stage::set(case);
    let (phases, mut wrong, end) = rehearse(&stage, case);
    let Some(scored) = phases.iter().rposition(Phase::holds_anything) else {
        return verdict("replay", case, wrong, end);
    };
    let mut actor = stage.enter(case);
    let trace = stage.files.path().join("trace.jsonl.zst");
    let agent = Agent::recording(&[actor.pid()], &trace).expect("memprov starts");
    // Waiting for a report makes sure that hooks are attached before the case goes on.
    for _ in 0..scored {
        if !actor.show(&agent) {
            break;
        }
        actor.go();
    }
    actor.show(&agent);
    wrong.extend(agent.stop().err());
    let truth = actor.standing().cloned();
    let played = actor.leave();
    wrong.extend(played.wrong);
    if let Some(phase) = truth.filter(|_| wrong.is_empty()) {
        match replayed(&trace) {
            Ok(report) => wrong.extend(score::phase(&phase, &report, &Unseen::new(), None)),
            Err(why) => wrong.push(why),
        }
    }
    verdict("replay", case, wrong, played.end);
}
