//! From a stack to who asked for the memory: a site, or the arena of an allocator. Pure: names come in as an argument.

use memprov_ledger::evidence::MapFlags;
use memprov_ledger::identity::ModuleId;
use memprov_ledger::pieces::is_size_class;
use memprov_ledger::stack::{Frame, Module, Stack, StackEnd};

use super::demangle::short;
use super::known::{Part, part};

/// Frames of a site's key.
const KEY_FRAMES: usize = 3;
const MIB: u64 = 1 << 20;

/// The name of the module that stands for the generated code of one process.
pub const GENERATED: &str = "[jit]";
/// Generated code that nothing names, in keys and for people.
const UNNAMED_CODE: &str = "[generated]";

/// What happened at the leaf of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `mmap`.
    Mmap {
        /// Bytes asked for, in whole pages.
        len: u64,
        /// How.
        flags: MapFlags,
    },
    /// `brk` grew the heap.
    Brk,
    /// `mremap` grew or moved a mapping.
    Mremap,
    /// `shmat`.
    Shmat,
    /// A page was touched.
    Fault,
}

/// How long a site's key stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stability {
    /// Made of names: over rebuilds, hosts and restarts.
    Content,
    /// Has functions without a name: for one build of those modules.
    Build,
}

/// A call site, by content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Up to three functions outside allocators and runtimes, leaf first: `module!function`, or `build-id+0xstart`
    /// where a function has no name.
    pub key: Vec<String>,
    /// The first of them, for people.
    pub name: String,
    /// The second, for people; empty when there is none.
    pub caller: String,
    /// How long the key stays the same.
    pub stability: Stability,
    /// The stack ended before its root, and the key would have more functions otherwise. A truncated site is another
    /// owner than a whole one with the same key.
    pub truncated: bool,
}

/// Whose doing something was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribution {
    /// That of a call site.
    Site(Site),
    /// An allocator or runtime, which divides the memory among objects of its own.
    Arena {
        /// `glibc`, `musl`, `jemalloc`, `tcmalloc`, `mimalloc`, `go`, `jvm`, `python`, `node`, …; `malloc` for one
        /// of unknown kind inside a program.
        allocator: &'static str,
        /// Who asked the allocator, where the stack shows it.
        site: Option<Site>,
    },
    /// The stack of a thread.
    Stack,
    /// The dynamic linker, at work on a program or library.
    Loader,
}

/// What is known of a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// This is its name, demangled.
    Known(&'a str),
    /// Nothing names it.
    Nameless,
    /// It was not looked up yet.
    Pending,
}

/// The functions whose names the attribution of a stack depends on, and that its view shows: module and start of the
/// function, or the address itself where no function is known.
pub fn needs(stack: &Stack) -> impl Iterator<Item = (ModuleId, u64)> + '_ {
    stack.frames.iter().filter_map(|f| Some((f.module?, place(f))))
}

/// The key of a frame's function within its module.
#[must_use]
pub fn place(frame: &Frame) -> u64 {
    frame.function.unwrap_or(frame.address)
}

/// Attributes what a stack did. `None` while a name that it depends on is pending: an answer never changes later.
pub fn attribute<'a>(
    stack: &Stack,
    call: Call,
    modules: impl Fn(ModuleId) -> Option<&'a Module>,
    names: impl Fn(ModuleId, u64) -> Name<'a>,
) -> Option<Attribution> {
    let mut frames = Vec::with_capacity(stack.frames.len());
    for frame in &stack.frames {
        let module = frame.module.and_then(&modules);
        let name = match frame.module {
            Some(id) => names(id, place(frame)),
            None => Name::Nameless,
        };
        let name = match name {
            Name::Known(name) => Some(name),
            Name::Nameless => None,
            Name::Pending => return None,
        };
        // Code of no module is somebody's generated code.
        let part = module.map_or(Part::App, |m| part(m, place(frame), name));
        frames.push(Seen { module, name, function: place(frame), part });
    }
    Some(judge(&frames, stack.end, call))
}

struct Seen<'a> {
    module: Option<&'a Module>,
    name: Option<&'a str>,
    function: u64,
    part: Part,
}

fn judge(frames: &[Seen<'_>], end: StackEnd, call: Call) -> Attribution {
    let inside = frames.iter().take_while(|f| f.part != Part::App);
    let mut allocator = None;
    let mut thread = false;
    for frame in inside {
        match frame.part {
            // The innermost one made the call: `operator new` and an arena of Python both end in malloc.
            Part::Allocator(name) => allocator = allocator.or(Some(name)),
            Part::ThreadStart => thread = true,
            Part::App | Part::Skip | Part::Linker => {}
        }
    }
    let linker = frames.first().is_some_and(|f| f.part == Part::Linker);
    let site = site(frames, end);
    let arena = |site| match allocator {
        Some(allocator) => Attribution::Arena { allocator, site },
        None => Attribution::Site(site.unwrap_or_else(|| unknown(frames, end))),
    };
    match call {
        Call::Fault => match site {
            Some(site) => Attribution::Site(site),
            None => arena(None),
        },
        Call::Mmap { flags, .. } if flags.stack || thread => Attribution::Stack,
        Call::Mmap { .. } if linker && allocator.is_none() => Attribution::Loader,
        Call::Mmap { len, flags } => match (allocator, site) {
            (Some(allocator), Some(site)) if is_object(allocator, len, flags) => {
                Attribution::Site(site)
            }
            (_, site) => arena(site),
        },
        // glibc moves a single large object; the others grow what they own.
        Call::Mremap => match (allocator, site) {
            (Some("glibc"), Some(site)) => Attribution::Site(site),
            (_, site) => arena(site),
        },
        Call::Brk | Call::Shmat => arena(site),
    }
}

/// Whether an allocator mapped one large object, not memory to divide.
fn is_object(allocator: &str, len: u64, flags: MapFlags) -> bool {
    match allocator {
        // An arena's heap is reserved as 64 MiB or twice that, to find an aligned half.
        "glibc" => !(flags.inaccessible || flags.noreserve),
        "go" | "jvm" | "node" => false,
        _ => !flags.inaccessible && !len.is_multiple_of(MIB) && !is_size_class(len),
    }
}

fn site(frames: &[Seen<'_>], end: StackEnd) -> Option<Site> {
    let apps: Vec<&Seen<'_>> =
        frames.iter().filter(|f| f.part == Part::App).take(KEY_FRAMES).collect();
    (!apps.is_empty()).then(|| of(&apps, end))
}

/// The site of a stack without any code of the user: its first functions, whatever they are.
fn unknown(frames: &[Seen<'_>], end: StackEnd) -> Site {
    of(&frames.iter().take(KEY_FRAMES).collect::<Vec<_>>(), end)
}

fn of(frames: &[&Seen<'_>], end: StackEnd) -> Site {
    let named = frames.iter().all(|f| f.name.is_some());
    let people = |n: usize| frames.get(n).map_or(String::new(), |f| label(f));
    Site {
        key: frames.iter().map(|f| key(f)).collect(),
        name: if frames.is_empty() { "unknown".to_owned() } else { people(0) },
        caller: people(1),
        stability: if named { Stability::Content } else { Stability::Build },
        truncated: matches!(end, StackEnd::Cut | StackEnd::Lost) && frames.len() < KEY_FRAMES,
    }
}

fn key(frame: &Seen<'_>) -> String {
    match (frame.module, frame.name) {
        (Some(module), Some(name)) => format!("{}!{name}", without_version(&module.name)),
        // Its address is one of this process alone.
        (Some(module), None) if module.name == GENERATED => UNNAMED_CODE.to_owned(),
        (Some(module), None) => {
            let id = module.build_id.as_deref().unwrap_or(&module.name);
            format!("{id}+{:#x}", frame.function)
        }
        (None, _) => UNNAMED_CODE.to_owned(),
    }
}

fn label(frame: &Seen<'_>) -> String {
    match (frame.module, frame.name) {
        (_, Some(name)) => short(name).to_owned(),
        (Some(module), None) if module.name == GENERATED => UNNAMED_CODE.to_owned(),
        (Some(module), None) => format!("{}+{:#x}", module.name, frame.function),
        (None, _) => UNNAMED_CODE.to_owned(),
    }
}

/// A module's name without what changes from release to release: `libpython3.11.so.1.0` is `libpython`.
fn without_version(name: &str) -> &str {
    let stem = name.find(".so").filter(|at| *at > 0).and_then(|at| name.get(..at)).unwrap_or(name);
    let bare = stem.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'));
    if bare.is_empty() { stem } else { bare }
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
