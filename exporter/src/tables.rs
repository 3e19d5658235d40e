//! What ids of stacks and modules mean, and what functions are called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memprov_ledger::identity::{ModuleId, StackId};
use memprov_ledger::stack::{Module, Stack};

use crate::report::FrameView;
use crate::symbols::{Attribution, Call, GENERATED, Name, attribute, needs, place};

/// A function: its module and its start, or an address of it where its start is not known.
pub type Function = (ModuleId, u64);

/// Modules, stacks and names.
#[derive(Debug, Default)]
pub struct Tables {
    modules: HashMap<ModuleId, Module>,
    stacks: HashMap<StackId, Arc<Stack>>,
    names: HashMap<Function, Option<Arc<str>>>,
    wanted: HashSet<Function>,
}

impl Tables {
    /// A module, before its use.
    pub fn module(&mut self, id: ModuleId, module: Module) {
        self.modules.insert(id, module);
    }

    /// A stack, before its use. Returns the functions of it that have no name yet and were not asked for.
    pub fn stack(&mut self, id: StackId, stack: Arc<Stack>) -> Vec<Function> {
        let mut missing = Vec::new();
        for function in needs(&stack) {
            if !self.names.contains_key(&function) && self.wanted.insert(function) {
                missing.push(function);
            }
        }
        self.stacks.insert(id, stack);
        missing
    }

    /// What a function is called; `None` when nothing names it.
    pub fn name(&mut self, function: Function, name: Option<String>) {
        self.wanted.remove(&function);
        self.names.insert(function, name.map(Arc::from));
    }

    /// Names that were asked for and are not there yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wanted.len()
    }

    fn name_of(&self, module: ModuleId, place: u64) -> Name<'_> {
        match self.names.get(&(module, place)) {
            None => Name::Pending,
            Some(None) => Name::Nameless,
            Some(Some(name)) => Name::Known(name),
        }
    }

    /// Whose doing it was; `None` while names of it are missing, or for an id that was never told.
    #[must_use]
    pub fn attribute(&self, id: StackId, call: Call) -> Option<Attribution> {
        let stack = self.stacks.get(&id)?;
        attribute(
            stack,
            call,
            |id| self.modules.get(&id),
            |module, place| self.name_of(module, place),
        )
    }

    /// A stack for people and scorers, leaf first.
    #[must_use]
    pub fn view(&self, id: StackId) -> Vec<FrameView> {
        let Some(stack) = self.stacks.get(&id) else { return Vec::new() };
        stack
            .frames
            .iter()
            .map(|frame| {
                let module = frame.module.and_then(|id| self.modules.get(&id));
                let name = frame.module.and_then(|id| self.names.get(&(id, place(frame))));
                FrameView {
                    function: name.and_then(|name| name.as_deref()).map(str::to_owned),
                    module: module.map(|m| m.name.clone()),
                    build_id: module.and_then(|m| m.build_id.clone()),
                    // An address of generated code means nothing outside its process, and stays in it.
                    offset: module
                        .map_or(0, |m| if m.name == GENERATED { 0 } else { frame.address }),
                    line: None,
                }
            })
            .collect()
    }
}
