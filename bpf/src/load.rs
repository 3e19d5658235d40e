//! Opening, loading and attaching the programs of one mechanism.

use std::cell::RefCell;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::btf::types::{Func, FuncProto, Typedef};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{
    Btf, ErrorKind, Link, MapCore as _, MapFlags, OpenObject, PrintLevel, ReferencesType as _,
};

use memprov_ledger::touch::Sample;

use crate::error::LoadError;
use crate::options::{Mechanism, Options, Scope};
use crate::record;
use crate::skeleton::{LifecycleSkel, LifecycleSkelBuilder, OpenLifecycleSkel, types};
use crate::status::{Capability, HookState, HookStatus};

/// Programs in the kernel.
pub(crate) struct Loaded {
    /// Dropped in this order: detached, unloaded, and then the memory that the skeleton borrows.
    links: Vec<Link>,
    /// The attached programs.
    pub(crate) programs: Vec<Program>,
    pub(crate) skel: LifecycleSkel<'static>,
    _object: Box<MaybeUninit<OpenObject>>,
}

/// An attached program.
pub(crate) struct Program {
    pub(crate) role: Role,
    /// What it shares with the program at the other end of the same calls.
    pub(crate) place: String,
    pub(crate) fd: OwnedFd,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Calls, by one mechanism.
    Call(Mechanism),
    /// Calls by the i386 ABI that have programs of their own.
    CompatCall,
    Process,
    Fault,
    Count,
}

/// A program's role by where it attaches; `src/bpf/lifecycle.bpf.c` lists them.
fn role(name: &str, section: &str) -> Option<Role> {
    let (kind, place) = section.split_once('/')?;
    match (kind, place) {
        ("fentry" | "fexit", place) if place.starts_with("__ia32_") => Some(Role::CompatCall),
        ("fentry" | "fexit", _) => Some(Role::Call(Mechanism::Fentry)),
        ("tp", _) => Some(Role::Call(Mechanism::Tp)),
        ("tp_btf", "sys_enter" | "sys_exit") if name == "count_any" => Some(Role::Count),
        ("tp_btf", "sys_enter" | "sys_exit") => Some(Role::Call(Mechanism::TpBtf)),
        ("tp_btf", "page_fault_user" | "page_fault_kernel") => Some(Role::Fault),
        ("tp_btf", _) => Some(Role::Process),
        _ => None,
    }
}

thread_local! {
    /// The end of what libbpf logged while this thread loaded.
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// How much of it is kept: a verifier's verdict is in its last lines.
const LOG_BYTES: usize = 1024;

/// Keeps libbpf's warnings for errors, instead of having it write to standard error.
pub(crate) fn keep_log() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
        LOG.with_borrow_mut(|log| {
            log.push_str(&message);
            let cut = log.ceil_char_boundary(log.len().saturating_sub(LOG_BYTES));
            log.drain(..cut);
        });
    })));
}

/// Wraps an error of libbpf with what was attempted. The verifier's refusals are EACCES too, but come with its log.
pub(crate) fn failed(step: String, source: libbpf_rs::Error) -> LoadError {
    let log = LOG.take().trim().to_owned();
    let verifier = log.contains("PROG LOAD LOG");
    if source.kind() == ErrorKind::PermissionDenied && !verifier {
        return LoadError::Permission { step, source };
    }
    LoadError::Step { step, log, source }
}

/// What a program of a section attaches to.
fn place(section: &str) -> &str {
    section.split_once('/').map_or("", |(_, place)| place)
}

/// Probability × 2^32.
pub(crate) fn bound(probability: f64) -> u64 {
    Sample { seed: 0, probability }.bound()
}

impl Loaded {
    /// Opens the object, lets `configure` set it up, loads what `wanted` picks.
    fn open(
        configure: impl FnOnce(&mut OpenLifecycleSkel<'_>) -> libbpf_rs::Result<()>,
        wanted: impl Fn(Role, &str) -> bool,
        what: &str,
    ) -> Result<Self, LoadError> {
        let step = |doing: &str| format!("{doing} BPF programs ({what})");
        let mut object = Box::new(MaybeUninit::uninit());
        // SAFETY: the box keeps its address when moved, is never touched again except through the skeleton, and is
        // dropped after it (fields drop in order of declaration).
        let storage: &'static mut MaybeUninit<OpenObject> =
            unsafe { mem::transmute::<&mut MaybeUninit<OpenObject>, _>(&mut *object) };
        let mut open =
            LifecycleSkelBuilder::default().open(storage).map_err(|e| failed(step("open"), e))?;
        configure(&mut open).map_err(|e| failed(step("configure"), e))?;
        for mut program in open.open_object_mut().progs_mut() {
            let (name, section) = (program.name().to_string_lossy(), program.section());
            let section = section.to_string_lossy().into_owned();
            let load = role(&name, &section).is_some_and(|role| wanted(role, place(&section)));
            program.set_autoload(load);
        }
        let skel = open.load().map_err(|e| failed(step("load"), e))?;
        Ok(Self { links: Vec::new(), programs: Vec::new(), skel, _object: object })
    }

    /// Attaches what was loaded: processes first, so that no child is missed by a call's hook.
    fn attach(&mut self) -> Result<(), LoadError> {
        let object = self.skel.object();
        let mut programs: Vec<_> = object
            .progs_mut()
            .filter(|program| program.autoload())
            .filter_map(|program| {
                let (name, section) = (program.name().to_str()?, program.section().to_str()?);
                Some((role(name, section)?, section, program))
            })
            .collect();
        programs.sort_by_key(|(role, ..)| *role != Role::Process);
        for (role, section, program) in programs {
            let link =
                program.attach().map_err(|e| failed(format!("attach BPF program {section}"), e))?;
            self.links.push(link);
            let fd = program.as_fd().try_clone_to_owned();
            let step = "duplicate the descriptor of a BPF program";
            let fd = fd.map_err(|source| LoadError::Ring { step, source })?;
            let place = place(section).replace("sys_exit", "sys_enter");
            self.programs.push(Program { role, place, fd });
        }
        Ok(())
    }

    /// The counters that the programs share with us.
    pub(crate) fn counters(&self) -> Option<types::bss> {
        let value = self.skel.maps.bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        record::read(&value.ok().flatten()?)
    }
}

/// What the kernel's types say about the hooks.
pub(crate) struct Kernel {
    btf: Btf<'static>,
}

impl Kernel {
    pub(crate) fn read() -> Result<Self, LoadError> {
        let btf = Btf::from_vmlinux().map_err(|e| failed("read the kernel's BTF".to_owned(), e))?;
        Ok(Self { btf })
    }

    fn has_function(&self, name: &str) -> bool {
        self.btf.type_by_name::<Func<'_>>(name).is_some()
    }

    /// Tracing programs may keep data with a task since Linux 5.13, which brought this helper too.
    fn keeps_task_data(&self) -> bool {
        self.has_function("bpf_for_each_map_elem")
    }

    /// `sched_process_exit` has a third parameter (the first is BPF's own) since Linux 6.17.
    fn exit_tells_group(&self) -> bool {
        self.parameters("sched_process_exit").is_some_and(|number| number > 2)
    }

    /// How many parameters a tracepoint has, BPF's own with them; `None` when there is no such tracepoint.
    pub(crate) fn parameters(&self, tracepoint: &str) -> Option<usize> {
        let hook = self.btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}"))?;
        let proto = hook.referenced_type().next_type()?;
        FuncProto::try_from(proto).ok().map(|proto| proto.len())
    }
}

/// Loads and attaches the hooks with `mechanism`; appends what came of it to `status`.
pub(crate) fn load_with(
    mechanism: Mechanism,
    options: &Options,
    status: &mut Vec<HookStatus>,
) -> Result<Loaded, LoadError> {
    let attempt = try_load(mechanism, options);
    let mut note = |capability, state, reason: String| {
        status.push(HookStatus { capability, mechanism, state, reason });
    };
    match attempt {
        Ok((loaded, compat)) => {
            note(Capability::Mapping, HookState::Attached, String::new());
            match compat {
                Ok(()) => note(Capability::Compat, HookState::Attached, String::new()),
                Err(why) => note(Capability::Compat, HookState::Unsupported, why.to_owned()),
            }
            note(Capability::Process, HookState::Attached, String::new());
            match options.first_touch {
                Some(_) => note(Capability::FirstTouch, HookState::Attached, String::new()),
                None => {
                    let reason = "not asked for".to_owned();
                    note(Capability::FirstTouch, HookState::Unsupported, reason);
                }
            }
            Ok(loaded)
        }
        Err(error) => {
            let state = match &error {
                LoadError::Permission { .. } => HookState::Refused,
                LoadError::Option { .. } | LoadError::Step { .. } | LoadError::Ring { .. } => {
                    HookState::Unsupported
                }
            };
            note(Capability::Mapping, state, chain(&error));
            Err(error)
        }
    }
}

/// An error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

fn try_load(
    mechanism: Mechanism,
    options: &Options,
) -> Result<(Loaded, Result<(), &'static str>), LoadError> {
    let kernel = Kernel::read()?;
    let compat = match mechanism {
        Mechanism::TpBtf => Ok(()),
        Mechanism::Tp => Err("perf tracepoints of calls do not fire for i386 calls"),
        Mechanism::Fentry if kernel.has_function("__ia32_sys_munmap") => Ok(()),
        Mechanism::Fentry => Err("this kernel has no i386 calls"),
    };
    let wanted = |role: Role, place: &str| match role {
        Role::Call(of) => of == mechanism,
        Role::CompatCall => mechanism == Mechanism::Fentry && kernel.has_function(place),
        Role::Process => true,
        Role::Fault => options.first_touch.is_some(),
        Role::Count => false,
    };
    let mut loaded =
        Loaded::open(|open| configure(open, options, &kernel), wanted, mechanism.id())?;
    if let Scope::Only(tgids) = &options.scope {
        for tgid in tgids {
            let selected = &loaded.skel.maps.selected;
            selected
                .update(&tgid.0.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(|e| failed(format!("select process {}", tgid.0), e))?;
        }
    }
    loaded.attach()?;
    Ok((loaded, compat))
}

/// What is kept of threads is kept in one of two maps; the other one is not made.
fn choose_threads(open: &mut OpenLifecycleSkel<'_>, kernel: &Kernel) -> libbpf_rs::Result<()> {
    let task_data = kernel.keeps_task_data();
    open.maps.thread_data.set_autocreate(task_data)?;
    open.maps.threads.set_autocreate(!task_data)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.task_data = task_data.into();
    }
    Ok(())
}

fn configure(
    open: &mut OpenLifecycleSkel<'_>,
    options: &Options,
    kernel: &Kernel,
) -> libbpf_rs::Result<()> {
    choose_threads(open, kernel)?;
    open.maps.lifecycle.set_max_entries(options.lifecycle_ring)?;
    open.maps.stacks.set_max_entries(options.stack_ring)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        if let Scope::All { except } = options.scope {
            rodata.scope_all = 1;
            rodata.except_tgid = except.0;
        }
        rodata.hash_seed = options.seed;
        rodata.lifecycle_wake = u64::from(options.lifecycle_ring / 4);
        rodata.stacks_wake = u64::from(options.stack_ring / 4);
        rodata.inject_lifecycle = bound(options.inject.lifecycle);
        rodata.inject_stacks = bound(options.inject.stacks);
        rodata.inject_faults = bound(options.inject.faults);
        rodata.exit_tells_group = kernel.exit_tells_group().into();
    }
    if let Some(touch) = open.maps.data_touch_data.as_deref_mut() {
        touch.touch_default = bound(options.first_touch.unwrap_or(0.0));
        touch.touch_highest = touch.touch_default;
    }
    Ok(())
}

/// How long the host's calls are counted.
const COUNT: Duration = Duration::from_millis(200);

/// The host's system calls per second: all, and those that are watched.
pub(crate) fn measure_calls() -> Result<(u64, u64), LoadError> {
    let kernel = Kernel::read()?;
    let small = |open: &mut OpenLifecycleSkel<'_>| {
        choose_threads(open, &kernel)?;
        open.maps.lifecycle.set_max_entries(4096)?;
        open.maps.stacks.set_max_entries(4096)
    };
    let mut loaded = Loaded::open(small, |role, _| role == Role::Count, "counting calls")?;
    loaded.attach()?;
    std::thread::sleep(COUNT);
    let per_second = |count: u64| count * 1000 / u64::from(COUNT.subsec_millis());
    Ok(loaded
        .counters()
        .map_or((0, 0), |bss| (per_second(bss.counted_calls), per_second(bss.counted_watched))))
}

/// Whether perf tracepoints of the named calls are worth it: they miss i386 calls, so they must save 1 % of a CPU.
///
/// Measured on Linux 6.18 (KVM guest): BTF tracepoints cost every call of the host 117 ns, perf tracepoints of the
/// named calls cost every call 60 ns, and a named call another 1,000.
pub(crate) fn prefers_tp(calls: u64, watched: u64) -> bool {
    let tp_btf = calls.saturating_mul(117);
    let tp = calls.saturating_mul(60).saturating_add(watched.saturating_mul(1000));
    tp_btf.saturating_sub(tp) > 10_000_000
}

#[cfg(test)]
mod tests {
    use super::{bound, prefers_tp};

    #[test]
    fn an_idle_host_keeps_the_mechanism_that_sees_every_abi() {
        assert!(!prefers_tp(0, 0));
        assert!(!prefers_tp(100_000, 0));
        assert!(prefers_tp(1_000_000, 1_000));
        assert!(!prefers_tp(1_000_000, 100_000));
        assert!(!prefers_tp(u64::MAX, u64::MAX));
    }

    #[test]
    fn a_bound_is_a_probability_of_two_to_the_32() {
        assert_eq!(bound(0.0), 0);
        assert_eq!(bound(0.5), 1 << 31);
        assert_eq!(bound(1.0), 1 << 32);
        assert_eq!(bound(f64::NAN), 0);
        assert_eq!(bound(7.0), 1 << 32);
    }
}
