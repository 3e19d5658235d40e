//! A workload on the stage: what was true in each phase, what memprov said of it, and what the kernel said.

use std::collections::BTreeSet;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Agent;
use crate::physical::{self, Rss};
use crate::truth::{End, Phase, Workload};

/// One phase that somebody watched. It can be scored later and elsewhere.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Scene {
    /// What was true.
    pub truth: Phase,
    /// The document `memprov.report/1`.
    pub report: Value,
    /// The kernel's word on every process of that document.
    pub kernel: Rss,
}

/// All that was seen of a case.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Performance {
    /// The phases.
    pub scenes: Vec<Scene>,
    /// Sites mapped before anybody watched.
    pub unseen: BTreeSet<String>,
    /// What went wrong on the way.
    pub wrong: Vec<String>,
    /// How it ended.
    pub end: End,
}

/// A workload that stands in a phase, or has ended.
#[derive(Debug)]
pub struct Actor {
    workload: Workload,
    standing: Option<Phase>,
    scenes: Vec<Scene>,
    unseen: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Actor {
    /// Waits until a workload stands ready.
    pub fn enter(workload: Workload) -> Self {
        let (scenes, unseen, wrong) = (Vec::new(), BTreeSet::new(), Vec::new());
        let mut actor = Self { workload, standing: None, scenes, unseen, wrong };
        actor.hear();
        actor
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.workload.pid()
    }

    /// The phase in which it stands; `None` when it has ended.
    pub fn standing(&self) -> Option<&Phase> {
        self.standing.as_ref()
    }

    /// Lets it go on to the next phase.
    pub fn go(&mut self) {
        self.workload.go();
        self.hear();
    }

    /// Goes on while nobody watches.
    pub fn go_unseen(&mut self) {
        self.go();
        let owners = self.standing.iter().flat_map(|phase| &phase.owners);
        self.unseen.extend(owners.filter_map(|said| said.site.clone()));
    }

    fn hear(&mut self) {
        self.standing = self.workload.phase().unwrap_or_else(|why| {
            self.wrong.push(why);
            None
        });
    }

    /// Has the phase in which it stands reported. `false`: there was none, or no report of it.
    pub fn show(&mut self, agent: &Agent) -> bool {
        let Some(truth) = &self.standing else { return false };
        let before = physical::rss(truth.pids());
        match agent.fresh(self.workload.pid(), &truth.pids(), SystemTime::now()) {
            Ok(report) => {
                let after = physical::rss(report.processes.iter().map(|p| p.pid));
                let kernel = physical::around(&before, after);
                self.scenes.push(Scene { truth: truth.clone(), report: report.document, kernel });
                true
            }
            Err(why) => {
                self.wrong.push(format!("{}: {why}", truth.phase));
                false
            }
        }
    }

    /// Plays all that is left before `agent`. After a phase without a report the others would wait as long for nothing.
    pub fn play(&mut self, agent: &Agent) {
        while self.show(agent) {
            self.go();
        }
    }

    /// Lets it end where it stands.
    pub fn leave(self) -> Performance {
        let Self { workload, scenes, unseen, wrong, .. } = self;
        Performance { scenes, unseen, wrong, end: workload.end() }
    }
}
