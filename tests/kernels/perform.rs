//! Plays cases inside a guest and writes down what was true, what memprov said and what the kernel said. Nothing is
//! scored here.
//!
//! usage: perform early|late|recorded PROGRAMS FILES OUT CASE…
//!
//! All cases stand on the stage at once and play one after the other before one memprov: its start is what takes most of
//! the time of a slow machine. Each leaves `OUT/CASE.json`, a [`Performance`]; recorded ones stand in their last phase that
//! holds anything when the recording ends, and leave their last report as `OUT/CASE.otlp.json`, too.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use memprov_tests::agent::Agent;
use memprov_tests::play::Actor;
use memprov_tests::truth::Workload;
use serde::Serialize;

/// A message for the console of the guest.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [way, programs, files, out, cases @ ..] = args.as_slice() else {
        eprintln!("usage: perform early|late|recorded PROGRAMS FILES OUT CASE...");
        return ExitCode::from(64);
    };
    let stage = Stage { programs: programs.into(), files: files.into(), out: out.into() };
    match stage.perform(way, cases) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("perform {way}: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Stage {
    /// Where the workload is: `truth`, and `truth-fixed` for the case whose break is to lie below 4 GiB.
    programs: PathBuf,
    /// Where cases make their files.
    files: PathBuf,
    out: PathBuf,
}

impl Stage {
    fn perform(&self, way: &str, cases: &[String]) -> Result<(), Failure> {
        fs::create_dir_all(&self.out)?;
        match way {
            "early" => self.watched(cases, |_| {}),
            "late" => self.watched(cases, Actor::go_unseen),
            "recorded" => self.recorded(cases),
            _ => Err(format!("there is no way called {way}").into()),
        }
    }

    fn enter(&self, case: &str) -> Result<Actor, Failure> {
        let files = self.files.join(case);
        fs::create_dir_all(&files)?;
        let program = if case == "compat_break" { "truth-fixed" } else { "truth" };
        Ok(Actor::enter(Workload::start(&self.programs.join(program), case, &files)?))
    }

    fn enter_all(&self, cases: &[String]) -> Result<Vec<Actor>, Failure> {
        cases.iter().map(|case| self.enter(case)).collect()
    }

    fn watched(&self, cases: &[String], before: impl Fn(&mut Actor)) -> Result<(), Failure> {
        let mut actors = self.enter_all(cases)?;
        actors.iter_mut().for_each(before);
        let agent = Agent::watching_all(&pids(&actors))?;
        for (case, mut actor) in cases.iter().zip(actors) {
            actor.play(&agent);
            self.write(&format!("{case}.json"), &actor.leave())?;
        }
        Ok(agent.stop()?)
    }

    fn recorded(&self, cases: &[String]) -> Result<(), Failure> {
        let lengths: Vec<usize> = cases
            .iter()
            .map(|case| Ok(length(self.enter(case)?)))
            .collect::<Result<_, Failure>>()?;
        let mut actors = self.enter_all(cases)?;
        let agent = Agent::recording(&pids(&actors), &self.out.join("trace.jsonl.zst"))?;
        for (actor, length) in actors.iter_mut().zip(lengths) {
            for _ in 1..length {
                if !actor.show(&agent) {
                    break;
                }
                actor.go();
            }
        }
        // Now that all stand where they will be when the recording ends: what the trace has to give again.
        for (case, actor) in cases.iter().zip(&mut actors) {
            let sent = agent.asked(actor.pid(), &["--output", "otlp-json"])?;
            if let Some(sent) = sent.filter(|_| actor.show(&agent)) {
                fs::write(self.out.join(format!("{case}.otlp.json")), sent)?;
            }
        }
        agent.stop()?;
        for (case, actor) in cases.iter().zip(actors) {
            self.write(&format!("{case}.json"), &actor.leave())?;
        }
        Ok(())
    }

    fn write(&self, name: &str, what: &impl Serialize) -> Result<(), Failure> {
        let path: &Path = &self.out.join(name);
        Ok(fs::write(path, serde_json::to_vec(what)?)?)
    }
}

fn pids(actors: &[Actor]) -> Vec<u32> {
    actors.iter().map(Actor::pid).collect()
}

/// How many phases a case has up to the last one in which anybody holds anything.
fn length(mut actor: Actor) -> usize {
    let (mut length, mut passed) = (0, 0);
    while let Some(phase) = actor.standing() {
        passed += 1;
        if phase.holds_anything() {
            length = passed;
        }
        actor.go();
    }
    length
}
