//! What ids of stacks and modules mean, and what functions are called.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use memprov_ledger::identity::{ModuleId, StackId};
use memprov_ledger::stack::{Module, Stack, StackEnd};

use crate::report::FrameView;
use crate::symbols::{Attribution, Call, GENERATED, Name, attribute, needs, place};
use crate::trace::Line;

/// A function: its module and its start, or an address of it where its start is not known.
pub type Function = (ModuleId, u64);

/// Frames of all stacks together, 32 bytes each: two tables of an [`crate::symbols::Unwinder`]. A stack beyond them says
/// nothing.
const FRAMES: usize = 1 << 20;

/// Modules, stacks and names.
#[derive(Debug, Default)]
pub struct Tables {
    modules: HashMap<ModuleId, Module>,
    stacks: HashMap<StackId, Arc<Stack>>,
    names: HashMap<Function, Option<Arc<str>>>,
    wanted: HashSet<Function>,
    frames: usize,
}

impl Tables {
    /// A module, before its use.
    pub fn module(&mut self, id: ModuleId, module: Module) {
        self.modules.insert(id, module);
    }

    /// A stack, before its use. Returns the functions of it that have no name yet and were not asked for.
    pub fn stack(&mut self, id: StackId, stack: Arc<Stack>) -> Vec<Function> {
        let frames = self.frames.saturating_add(stack.frames.len());
        if frames > FRAMES {
            self.stacks.insert(id, Arc::new(Stack { frames: Vec::new(), end: StackEnd::Lost }));
            return Vec::new();
        }
        self.frames = frames;
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

    /// What must be told before evidence that names `stacks`, in an order that does not depend on chance. Names come before
    /// the stacks that need them: whoever takes them in has nothing to look up.
    #[must_use]
    pub fn told(&self, stacks: &BTreeSet<StackId>) -> Vec<Line> {
        let known: Vec<(StackId, &Arc<Stack>)> =
            stacks.iter().filter_map(|id| Some((*id, self.stacks.get(id)?))).collect();
        let functions: BTreeSet<Function> =
            known.iter().flat_map(|(_, stack)| needs(stack)).collect();
        let used: BTreeSet<ModuleId> = functions.iter().map(|(module, _)| *module).collect();
        let module =
            |id: ModuleId| Some(Line::Module { id, module: self.modules.get(&id)?.clone() });
        let stack =
            |(id, stack): (StackId, &Arc<Stack>)| Line::Stack { id, stack: Arc::clone(stack) };
        let name = |(module, function): Function| {
            let name = self.names.get(&(module, function))?.as_deref().map(str::to_owned);
            Some(Line::Name { module, function, name })
        };
        let modules = used.into_iter().filter_map(module);
        let stacks = known.into_iter().map(stack);
        modules.chain(functions.into_iter().filter_map(name)).chain(stacks).collect()
    }

    /// Forgets stacks below `stacks` that are not `live`, and the modules and names that only those need.
    pub fn forget(&mut self, stacks: StackId, modules: ModuleId, live: &HashSet<StackId>) {
        self.stacks.retain(|id, _| *id >= stacks || live.contains(id));
        self.frames = self.stacks.values().map(|stack| stack.frames.len()).sum();
        let functions: HashSet<Function> = self.stacks.values().flat_map(|s| needs(s)).collect();
        let used: HashSet<ModuleId> = functions.iter().map(|(module, _)| *module).collect();
        self.modules.retain(|id, _| *id >= modules || used.contains(id));
        self.names.retain(|function, _| functions.contains(function));
        self.wanted.retain(|function| functions.contains(function));
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

#[cfg(test)]
mod tests {
    use memprov_ledger::stack::{Frame, ModuleRole};

    use super::*;

    fn module(name: &str) -> Module {
        Module { name: name.to_owned(), build_id: None, role: ModuleRole::Code }
    }

    fn stack(module: u32, function: u64, frames: usize) -> Arc<Stack> {
        let module = Some(ModuleId(module));
        let frame = Frame { module, function: Some(function), address: function };
        Arc::new(Stack { frames: vec![frame; frames], end: StackEnd::Root })
    }

    #[test]
    fn what_is_in_use_or_new_stays_and_all_else_is_forgotten() {
        let mut tables = Tables::default();
        for n in 1..=4 {
            tables.module(ModuleId(n), module("m"));
            assert_eq!(tables.stack(StackId(n), stack(n, 16, 1)), [(ModuleId(n), 16)]);
            tables.name((ModuleId(n), 16), Some(format!("f{n}")));
        }
        tables.forget(StackId(3), ModuleId(4), &HashSet::from([StackId(1)]));
        let function = |tables: &Tables, n| tables.view(StackId(n)).first()?.function.clone();
        let left: Vec<_> = (1..=4).filter_map(|n| function(&tables, n)).collect();
        assert_eq!(left, ["f1", "f3", "f4"]);
        assert_eq!((tables.modules.len(), tables.names.len(), tables.frames), (3, 3, 3));
        // Told anew under another id, it is named anew.
        assert_eq!(tables.stack(StackId(5), stack(5, 16, 1)), [(ModuleId(5), 16)]);
    }

    #[test]
    fn who_takes_in_what_another_told_asks_for_no_name_that_was_told() {
        let mut one = Tables::default();
        for n in 1..=2 {
            one.module(ModuleId(n), module("m"));
            one.stack(StackId(n), stack(n, 16, 1));
        }
        one.name((ModuleId(1), 16), Some("f".to_owned()));
        let mut other = Tables::default();
        let mut asked = Vec::new();
        for line in one.told(&BTreeSet::from([StackId(1), StackId(2)])) {
            match line {
                Line::Module { id, module } => other.module(id, module),
                Line::Stack { id, stack } => asked.extend(other.stack(id, stack)),
                Line::Name { module, function, name } => other.name((module, function), name),
                line => panic!("{line:?} is no line of a table"),
            }
        }
        assert_eq!(asked, [(ModuleId(2), 16)]);
    }

    #[test]
    fn stacks_beyond_the_bound_say_nothing() {
        let mut tables = Tables::default();
        tables.module(ModuleId(1), module("m"));
        let big = stack(1, 16, FRAMES / 2);
        for n in 1..=3 {
            tables.stack(StackId(n), Arc::clone(&big));
        }
        assert_eq!(tables.view(StackId(2)).len(), FRAMES / 2);
        assert!(tables.view(StackId(3)).is_empty());
        tables.forget(StackId(3), ModuleId(1), &HashSet::new());
        tables.stack(StackId(4), big);
        assert_eq!(tables.view(StackId(4)).len(), FRAMES / 2);
    }
}
