//! Plays one case in one way, and fails with everything that was wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use memprov_tests::agent::{Agent, replayed};
use memprov_tests::host;
use memprov_tests::score::{self, Unseen};
use memprov_tests::truth::{End, Phase, Workload};
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

    fn start(&self, case: &str) -> Workload {
        let programs = programs();
        let program = if case == "compat_break" { &programs.fixed } else { &programs.usual };
        Workload::start(program, case, self.files.path()).expect("the workload starts")
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

fn next(workload: &mut Workload, wrong: &mut Vec<String>) -> Option<Phase> {
    workload.phase().unwrap_or_else(|e| {
        wrong.push(e);
        None
    })
}

/// A performance without an audience: all phases, what was wrong, and how it ended.
fn rehearse(stage: &Stage, case: &str) -> (Vec<Phase>, Vec<String>, End) {
    let mut workload = stage.start(case);
    let (mut phases, mut wrong) = (Vec::new(), Vec::new());
    while let Some(phase) = next(&mut workload, &mut wrong) {
        phases.push(phase);
        workload.go();
    }
    let end = workload.end();
    if end == End::Good && !phases.iter().any(holds_anything) {
        wrong.push("no phase holds anything: nothing is stated".to_owned());
    }
    (phases, wrong, end)
}

fn holds_anything(phase: &Phase) -> bool {
    phase.owners.iter().any(|said| said.resident > 0)
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
    let mut workload = stage.start(case);
    let (mut wrong, mut unseen) = (Vec::new(), Unseen::new());
    let mut truth = next(&mut workload, &mut wrong);
    if way == "late" {
        workload.go();
        truth = next(&mut workload, &mut wrong);
        unseen = truth.iter().flat_map(|t| &t.owners).filter_map(|s| s.site.clone()).collect();
    }
    if truth.is_some() {
        let agent = Agent::watching(workload.pid()).expect("memprov starts");
        while let Some(phase) = truth {
            match agent.fresh(workload.pid(), &pids(&phase), SystemTime::now()) {
                Ok(report) => {
                    wrong.extend(score::phase(&phase, &report, &unseen, true));
                    wrong.extend(agent.otlp(workload.pid()).err());
                }
                Err(why) => {
                    // The next phases would wait as long for nothing.
                    wrong.push(format!("{}: {why}", phase.phase));
                    break;
                }
            }
            workload.go();
            truth = next(&mut workload, &mut wrong);
        }
        wrong.extend(agent.stop().err());
    }
    verdict(way, case, wrong, workload.end());
}

/// Records are lost on purpose: what is told for sure is still true, and the books still close.
pub(crate) fn under_loss(case: &str, settings: &[&str]) {
    if not_here("loss", case) {
        return;
    }
    let stage = Stage::set(case);
    let mut workload = stage.start(case);
    let mut wrong = Vec::new();
    let mut truth = next(&mut workload, &mut wrong);
    let agent = Agent::watching_with(workload.pid(), settings).expect("memprov starts");
    while let Some(phase) = truth {
        match agent.fresh(workload.pid(), &[], SystemTime::now()) {
            Ok(report) => wrong.extend(score::honesty(&phase, &report)),
            Err(why) => {
                wrong.push(format!("{}: {why}", phase.phase));
                break;
            }
        }
        workload.go();
        truth = next(&mut workload, &mut wrong);
    }
    wrong.extend(agent.stop().err());
    verdict(&format!("with {settings:?}"), case, wrong, workload.end());
}

/// The processes that a phase speaks of.
fn pids(phase: &Phase) -> Vec<u32> {
    phase.owners.iter().filter_map(|s| s.pid).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Recording stops while the workload still stands in the last phase in which anybody holds anything: that is scored.
pub(crate) fn replay(case: &str) {
    if not_here("replay", case) {
        return;
    }
    let stage = Stage::set(case);
    let (phases, mut wrong, end) = rehearse(&stage, case);
    let Some(scored) = phases.iter().rposition(holds_anything) else {
        return verdict("replay", case, wrong, end);
    };
    let mut workload = stage.start(case);
    let trace = stage.files.path().join("trace.jsonl.zst");
    let mut truth = next(&mut workload, &mut wrong);
    let agent = Agent::recording(workload.pid(), &trace).expect("memprov starts");
    for number in 0..=scored {
        let Some(phase) = &truth else { break };
        // Waiting for a report makes sure that hooks are attached before the case goes on.
        if let Err(why) = agent.fresh(workload.pid(), &pids(phase), SystemTime::now()) {
            wrong.push(format!("{}: {why}", phase.phase));
            break;
        }
        if number < scored {
            workload.go();
            truth = next(&mut workload, &mut wrong);
        }
    }
    wrong.extend(agent.stop().err());
    if let Some(phase) = truth.filter(|_| wrong.is_empty()) {
        match replayed(&trace) {
            Ok(report) => wrong.extend(score::phase(&phase, &report, &Unseen::new(), false)),
            Err(why) => wrong.push(why),
        }
    }
    verdict("replay", case, wrong, workload.end());
}
