//! Real programs, stopped in a known place, unwound, named and attributed.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use memprov_ledger::evidence::{Change, Lifecycle, MapFlags};
use memprov_ledger::identity::{Extent, StartTicks, Tgid};
use memprov_ledger::stack::{ModuleRole, StackEnd};
use memprov_ledger::time::{MonoTime, Span};

use super::cfi::{Cfi, Scratch};
use super::elf::{Elf, Image};
use super::names::symbols;
use super::source::vdso;
use super::testbed::{Bench, World};
use super::{
    Attribution, Call, Limits, RawUserStack, Site, Stability, Table, UnwindError, Unwinder, lines,
};

const MMAP: &str = "9";
const BRK: &str = "12";
const LEN: &str = "0x123000";
const ANONYMOUS: MapFlags = MapFlags {
    fixed: false,
    anonymous: true,
    shared: false,
    stack: false,
    grows_down: false,
    noreserve: false,
    hugetlb: false,
    exec: false,
    inaccessible: false,
    offset: 0,
};
const OBJECT: Call = Call::Mmap { len: 0x123000, flags: ANONYMOUS };

fn c_program(flags: &[&str]) -> Option<Bench> {
    let bench = Bench::new(&[])?;
    let all = [&["-O2", "-fomit-frame-pointer"], flags].concat();
    bench.build("gcc", &all, "program.c", "program");
    Some(bench)
}

fn site(attribution: &Attribution) -> &Site {
    match attribution {
        Attribution::Site(site) | Attribution::Arena { site: Some(site), .. } => site,
        other => panic!("no site: {other:?}"),
    }
}

#[test]
fn the_direct_caller_of_the_frameless_mmap_is_found() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert_eq!(chain[..3], ["mmap", "direct", "main"], "{chain:?}");
    assert_eq!((chain.last(), stack.end), (Some(&"_start"), StackEnd::Root));
    let attribution = world.attribute(&stack, OBJECT);
    let Attribution::Site(site) = attribution else { panic!("{attribution:?}") };
    assert_eq!(site.key[..2], ["program!direct", "program!main"]);
    assert_eq!((&*site.name, &*site.caller), ("direct", "main"));
    assert_eq!((site.stability, site.truncated), (Stability::Content, false));
}

#[test]
fn a_stack_is_interned_once_and_told_once() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let first = world.unwinder.unwind(&stopped.raw()).unwrap();
    let again = world.unwinder.unwind(&stopped.raw()).unwrap();
    assert_eq!((first.id, again.new.len()), (again.id, 0));
    let other = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let other = world.unwinder.unwind(&other.raw()).unwrap();
    assert_eq!(other.id, first.id, "another process of the program has the same stack");
    let (stacks, modules) = world.unwinder.forget_tables();
    let anew = world.unwinder.unwind(&stopped.raw()).unwrap();
    assert!(first.id < stacks && anew.id >= stacks && anew.new.len() == first.new.len());
    let told = |table: &Table| match table {
        Table::Module(id, _) => *id >= modules,
        Table::Stack(id, _) => *id == anew.id,
    };
    assert!(anew.new.iter().all(told));
}

#[test]
fn a_stripped_program_has_the_same_functions_without_names() {
    let Some(bench) = c_program(&[]) else { return };
    std::fs::copy(bench.path("program"), bench.path("bare")).unwrap();
    assert!(Command::new("strip").arg(bench.path("bare")).status().unwrap().success());
    let starts = |world: &mut World, program: &str| {
        let stopped = bench.stop([MMAP, LEN], 8192, &[program, "direct"]);
        let stack = world.unwind(&stopped.raw());
        let starts: Vec<_> = stack.frames.iter().map(|f| f.function).collect();
        (stack, starts)
    };
    let mut world = World::new();
    let (full, with) = starts(&mut world, "program");
    let (bare, without) = starts(&mut world, "bare");
    assert_eq!(with, without);
    assert!(with.iter().all(Option::is_some));
    assert_eq!(world.chain(&bare)[..3], ["mmap", "?", "?"], "no nearest name is guessed");
    let build = world.modules[&bare.frames[1].module.unwrap()].build_id.clone().unwrap();
    assert_eq!(Some(&build), world.modules[&full.frames[1].module.unwrap()].build_id.as_ref());
    let attribution = world.attribute(&bare, OBJECT);
    let site = site(&attribution);
    assert_eq!(site.key[0], format!("{build}+{:#x}", without[1].unwrap()));
    assert_eq!(site.stability, Stability::Build);
}

#[test]
fn a_large_object_is_its_callers_and_a_heap_is_the_allocators() {
    let Some(bench) = c_program(&[]) else { return };
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "large"]);
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert!(chain.contains(&"malloc") && chain.contains(&"large"), "{chain:?}");
    let attribution = world.attribute(&stack, OBJECT);
    assert!(matches!(attribution, Attribution::Site(_)));
    assert_eq!(site(&attribution).name, "large");

    let stopped = bench.stop([BRK, "0"], 8192, &["program", "small"]);
    let stack = world.unwind(&stopped.raw());
    let attribution = world.attribute(&stack, Call::Brk);
    assert!(matches!(attribution, Attribution::Arena { allocator: "glibc", .. }));
    assert_eq!(site(&attribution).name, "small");

    let stopped = bench.stop([MMAP, "0x8000000"], 8192, &["program", "thread-small"]);
    let stack = world.unwind(&stopped.raw());
    assert_eq!(stack.end, StackEnd::Root, "{:?}", world.chain(&stack));
    let flags = MapFlags { noreserve: true, inaccessible: true, ..ANONYMOUS };
    let attribution = world.attribute(&stack, Call::Mmap { len: 0x8000000, flags });
    assert!(matches!(attribution, Attribution::Arena { allocator: "glibc", .. }));
    assert_eq!(site(&attribution).name, "small");
}

#[test]
fn wrappers_are_skipped_and_stay_in_the_stack() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "wrapped"]);
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    assert!(world.chain(&stack).contains(&"xmalloc"));
    assert_eq!(site(&world.attribute(&stack, OBJECT)).name, "wrapped");
    assert_eq!(site(&world.attribute(&stack, Call::Fault)).name, "wrapped");
}

#[test]
fn a_signal_handler_is_called_by_what_it_interrupted() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 16384, &["program", "signalled"]);
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    let at = |name: &str| chain.iter().position(|n| *n == name);
    assert!(at("handler").is_some() && at("handler") < at("raise"), "{chain:?}");
    assert!(at("raise") < at("signalled") && at("signalled") < at("main"), "{chain:?}");
    assert_eq!(stack.end, StackEnd::Root);
}

#[test]
fn a_deep_stack_is_cut_where_the_copy_ends_or_after_128_frames() {
    let Some(bench) = c_program(&[]) else { return };
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 1 << 17, &["program", "deep", "500"]);
    let whole = world.unwind(&stopped.raw());
    assert_eq!((whole.frames.len(), whole.end), (128, StackEnd::Cut));
    let stopped = bench.stop([MMAP, LEN], 1024, &["program", "deep", "500"]);
    let part = world.unwind(&stopped.raw());
    assert_eq!(part.end, StackEnd::Cut);
    assert!((4..128).contains(&part.frames.len()));
    assert!(!site(&world.attribute(&part, OBJECT)).truncated, "its three functions are there");
    let short = world.unwind(&RawUserStack { bytes: &stopped.bytes[..16], ..stopped.raw() });
    assert!(site(&world.attribute(&short, OBJECT)).truncated);
}

#[test]
fn a_static_program_is_unwound_and_its_allocator_is_known_by_name() {
    let Some(bench) = c_program(&["-static"]) else { return };
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "large"]);
    let stack = world.unwind(&stopped.raw());
    assert_eq!(stack.end, StackEnd::Root, "{:?}", world.chain(&stack));
    assert_eq!(site(&world.attribute(&stack, OBJECT)).name, "large");
    let stopped = bench.stop([MMAP, "0x8000000"], 8192, &["program", "thread-small"]);
    let stack = world.unwind(&stopped.raw());
    let flags = MapFlags { noreserve: true, inaccessible: true, ..ANONYMOUS };
    let attribution = world.attribute(&stack, Call::Mmap { len: 0x8000000, flags });
    assert!(
        matches!(attribution, Attribution::Arena { allocator: "glibc", .. }),
        "{attribution:?}"
    );
}

#[test]
fn generated_code_is_passed_by_frame_pointers_and_named_by_its_perf_map() {
    let Some(bench) = c_program(&[]) else { return };
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "generated"]);
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert_eq!(chain[..4], ["mmap", "direct", "?", "generated"], "{chain:?}");
    assert_eq!((stack.frames[2].module, stack.frames[2].address), (None, 0));
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "generated-named"]);
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert_eq!(chain[..4], ["mmap", "direct", "LApp;::compiled", "generated"], "{chain:?}");
}

#[test]
fn cpp_and_rust_functions_have_their_full_names() {
    let Some(bench) = Bench::new(&["g++", "rustc"]) else { return };
    bench.build("g++", &["-O2"], "program.cc", "cpp");
    bench.build("rustc", &["-O"], "program.rs", "rust");
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 8192, &["cpp"]);
    let stack = world.unwind(&stopped.raw());
    let attribution = world.attribute(&stack, OBJECT);
    assert_eq!(site(&attribution).key[0], "cpp!cache::Pool::grow(unsigned long)");
    assert_eq!(site(&attribution).name, "cache::Pool::grow");
    let stopped = bench.stop([MMAP, LEN], 8192, &["rust"]);
    let stack = world.unwind(&stopped.raw());
    let attribution = world.attribute(&stack, OBJECT);
    let chain = world.chain(&stack);
    assert_eq!(site(&attribution).name, "program::store::Table::reserve", "{chain:?}");
    assert_eq!(site(&attribution).caller, "program::load", "{chain:?}");
    assert_eq!(stack.end, StackEnd::Root);
}

#[test]
fn go_is_unwound_by_its_own_tables_stripped_or_not() {
    let Some(bench) = Bench::new(&["go"]) else { return };
    bench.build("go", &[], "program.go", "full");
    bench.build("go", &["-ldflags=-s -w"], "program.go", "bare");
    bench.build("go", &["-buildmode=pie"], "program.go", "pie");
    for program in ["full", "bare", "pie"] {
        let mut world = World::new();
        let stopped = bench.stop([MMAP, LEN], 8192, &[program]);
        let stack = world.unwind(&stopped.raw());
        let chain = world.chain(&stack);
        assert!(chain.contains(&"syscall.mmap") && chain.contains(&"main.direct"), "{chain:?}");
        assert_eq!((chain.last(), stack.end), (Some(&"runtime.goexit"), StackEnd::Root));
        assert_eq!(world.modules[&stack.frames[0].module.unwrap()].role, ModuleRole::Go);
        let attribution = world.attribute(&stack, OBJECT);
        assert!(matches!(attribution, Attribution::Site(_)), "{attribution:?}");
        assert_eq!(site(&attribution).name, "main.direct");
        assert_eq!(site(&attribution).caller, "main.main");
    }
}

#[test]
fn what_gos_runtime_maps_is_gos_and_ends_at_the_switch_of_stacks() {
    let Some(bench) = Bench::new(&["go"]) else { return };
    bench.build("go", &[], "program.go", "program");
    let mut world = World::new();
    let stopped = bench.stop([MMAP, "0x8000000"], 8192, &["program", "grow"]);
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert_eq!(stack.end, StackEnd::Switch, "{chain:?}");
    let attribution = world.attribute(&stack, Call::Mmap { len: 0x8000000, flags: ANONYMOUS });
    assert_eq!(attribution, Attribution::Arena { allocator: "go", site: None }, "{chain:?}");
}

#[test]
fn debians_stripped_programs_are_named_by_what_they_export() {
    let Some(bench) = Bench::new(&[]) else { return };
    let python = Path::new("/usr/bin/python3.11");
    if !python.exists() {
        eprintln!("skipped: no /usr/bin/python3.11");
        return;
    }
    std::os::unix::fs::symlink(python, bench.path("python")).unwrap();
    let script = "import mmap; mmap.mmap(-1, 0x123000)";
    let stopped = bench.stop([MMAP, LEN], 32768, &["python", "-S", "-E", "-c", script]);
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert!(chain.contains(&"_PyEval_EvalFrameDefault"), "{chain:?}");
    assert_eq!((chain.last(), stack.end), (Some(&"_start"), StackEnd::Root), "{chain:?}");
    let attribution = world.attribute(&stack, OBJECT);
    assert!(matches!(attribution, Attribution::Site(_)), "{attribution:?}");
}

#[test]
fn a_deleted_program_is_still_unwound_and_named() {
    if std::fs::read_dir("/proc/self/map_files")
        .is_ok_and(|mut links| links.all(|l| l.is_ok_and(|l| File::open(l.path()).is_err())))
    {
        eprintln!("skipped: map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE");
        return;
    }
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    std::fs::remove_file(bench.path("program")).unwrap();
    std::fs::write(bench.path("program"), "another file").unwrap();
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    assert_eq!(world.chain(&stack)[..3], ["mmap", "direct", "main"]);
}

#[test]
fn a_process_that_is_gone_has_no_stack() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let (tgid, ip, sp, bp) = (stopped.tgid, stopped.ip, stopped.sp, stopped.bp);
    let bytes = stopped.bytes.clone();
    drop(stopped);
    let mut unwinder = Unwinder::new("/".into(), Limits::default(), Default::default());
    let raw = RawUserStack { tgid, when: MonoTime(1), ip, sp, bp, bytes: &bytes, complete: true };
    let error = unwinder.unwind(&raw).unwrap_err();
    assert!(matches!(error, UnwindError::Gone(gone) if gone == tgid), "{error:?}");
}

#[test]
fn a_stack_from_before_exec_is_not_read_with_the_new_programs_maps() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let at = |t, change| Lifecycle { when: Span::at(MonoTime(t)), tgid: stopped.tgid, change };
    world.unwinder.lifecycle(&at(1000, Change::Exec));
    let before = RawUserStack { when: MonoTime(999), ..stopped.raw() };
    assert!(matches!(world.unwinder.unwind(&before), Err(UnwindError::Gone(_))));
    assert_eq!(world.unwind(&stopped.raw()).end, StackEnd::Root);
}

#[test]
fn a_child_has_its_parents_code_until_it_execs() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let parent = world.unwinder.unwind(&stopped.raw()).unwrap().id;
    let child = Tgid(u32::MAX); // No process has this number: only what it inherits can be used.
    let at = |tgid, change| Lifecycle { when: Span::at(MonoTime(5)), tgid, change };
    let start = StartTicks(1);
    let fork = Change::Fork { child, child_start: start, shares: false };
    world.unwinder.lifecycle(&at(stopped.tgid, fork));
    let raw = RawUserStack { tgid: child, ..stopped.raw() };
    assert_eq!(world.unwinder.unwind(&raw).unwrap().id, parent);
    world.unwinder.lifecycle(&at(child, Change::Exec));
    assert!(matches!(world.unwinder.unwind(&raw), Err(UnwindError::Gone(_))));
}

#[test]
fn what_a_child_of_vfork_called_before_its_exec_is_its_parents_code() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let parent = world.unwinder.unwind(&stopped.raw()).unwrap().id;
    let child = Tgid(u32::MAX);
    let begin = stopped.raw().when;
    let at = |tgid, when, change| Lifecycle { when: Span::at(when), tgid, change };
    let fork = Change::Fork { child, child_start: StartTicks(1), shares: true };
    world.unwinder.lifecycle(&at(stopped.tgid, begin, fork));
    // Its records come before its stacks.
    world.unwinder.lifecycle(&at(child, MonoTime(begin.0 + 1), Change::Exec));
    let raw = RawUserStack { tgid: child, ..stopped.raw() };
    assert_eq!(world.unwinder.unwind(&raw).unwrap().id, parent);
    let later = RawUserStack { when: MonoTime(begin.0 + 1), ..raw };
    assert!(matches!(world.unwinder.unwind(&later), Err(UnwindError::Gone(_))));
}

#[test]
fn code_that_was_unmapped_is_not_used_until_it_is_read_again() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let first = world.unwinder.unwind(&stopped.raw()).unwrap().id;
    let extent = Extent::new(stopped.ip & !0xfff, 4096);
    let when = Span::at(MonoTime(u64::MAX / 2 - 1));
    let unmap = Lifecycle { when, tgid: stopped.tgid, change: Change::Unmap { extent } };
    world.unwinder.lifecycle(&unmap);
    // It is in fact still mapped: reading again finds it.
    assert_eq!(world.unwinder.unwind(&stopped.raw()).unwrap().id, first);
}

#[test]
fn a_stack_from_before_its_code_was_unmapped_is_unwound_by_what_was_there() {
    let Some(bench) = c_program(&[]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let first = world.unwinder.unwind(&stopped.raw()).unwrap().id;
    let (bytes, raw) = (stopped.bytes.clone(), stopped.raw());
    let raw = RawUserStack { bytes: &bytes, ..raw };
    let (tgid, ip) = (stopped.tgid, stopped.ip);
    // Nothing can be read again.
    drop(stopped);
    for page in [0, 4096] {
        let extent = Extent::new((ip & !0xfff) + page, 4096);
        let when = Span::at(MonoTime(raw.when.0 + page));
        world.unwinder.lifecycle(&Lifecycle { when, tgid, change: Change::Unmap { extent } });
    }
    assert_eq!(world.unwinder.unwind(&raw).unwrap().id, first);
    let later = RawUserStack { when: MonoTime(raw.when.0 + 1), ..raw };
    assert_ne!(world.unwinder.unwind(&later).unwrap().id, first);
}

#[test]
fn a_full_table_is_an_error_and_known_stacks_are_still_known() {
    let Some(bench) = c_program(&[]) else { return };
    let limits = Limits { stacks: 1, ..Limits::default() };
    let mut unwinder = Unwinder::new("/".into(), limits, Default::default());
    let one = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let two = bench.stop([MMAP, LEN], 8192, &["program", "large"]);
    let id = unwinder.unwind(&one.raw()).unwrap().id;
    assert!(matches!(unwinder.unwind(&two.raw()), Err(UnwindError::Full)));
    assert_eq!(unwinder.unwind(&one.raw()).unwrap().id, id);
}

#[test]
fn unwind_information_that_was_dropped_is_read_again() {
    let Some(bench) = c_program(&["-static"]) else { return };
    std::fs::copy(bench.path("program"), bench.path("other")).unwrap();
    let file = File::open(bench.path("program")).unwrap();
    let elf = Elf::parse(Image::file(file).unwrap()).unwrap();
    let one = Cfi::read(&elf, 24 << 20).unwrap().unwrap().footprint();
    // Room for one of the two.
    let limits = Limits { unwind_bytes: one + one / 2, ..Limits::default() };
    let mut world = World::new();
    world.unwinder = Unwinder::new("/".into(), limits, Default::default());
    for program in ["program", "other", "program", "other"] {
        for way in ["direct", "large"] {
            let stopped = bench.stop([MMAP, LEN], 8192, &[program, way]);
            let stack = world.unwind(&stopped.raw());
            assert_eq!(stack.end, StackEnd::Root, "{way}: {:?}", world.chain(&stack));
        }
    }
}

#[test]
fn c_code_that_go_calls_ends_at_the_switch_of_stacks() {
    let Some(bench) = Bench::new(&["go"]) else { return };
    bench.build("go", &[], "cgo.go", "program");
    let mut world = World::new();
    let stopped = bench.stop([MMAP, LEN], 8192, &["program"]);
    let stack = world.unwind(&stopped.raw());
    let chain = world.chain(&stack);
    assert!(chain.contains(&"site_in_c"), "{chain:?}");
    assert_eq!((chain.last(), stack.end), (Some(&"runtime.asmcgocall"), StackEnd::Switch));
    assert_eq!(site(&world.attribute(&stack, OBJECT)).name, "site_in_c");
}

#[test]
fn the_vdso_is_a_module_like_others() {
    let elf = Elf::parse(vdso().unwrap()).unwrap();
    assert!(elf.layout.address_of_offset(0).is_some());
    let functions = Cfi::read(&elf, 1 << 20).unwrap().unwrap();
    let address = |name: &str| {
        let starts: Vec<u64> = (0..0x4000).collect();
        let names = symbols(&elf, &starts).unwrap();
        names.iter().position(|n| n.as_deref() == Some(name)).unwrap() as u64
    };
    let start = address("clock_gettime");
    let (function, _) = functions.rule(start + 8, &mut Scratch::new()).unwrap();
    assert_eq!(function, start);
}

#[test]
fn lines_come_from_debug_information() {
    let Some(bench) = c_program(&["-g"]) else { return };
    let stopped = bench.stop([MMAP, LEN], 8192, &["program", "direct"]);
    let mut world = World::new();
    let stack = world.unwind(&stopped.raw());
    let found = lines(&bench.path("program"), &[stack.frames[1].address, 1]).unwrap();
    let line = found[0].as_ref().unwrap();
    assert!(line.file.ends_with("program.c"), "{line:?}");
    let text = include_str!("testdata/program.c").lines().nth(line.line.unwrap() as usize - 1);
    assert!(text.unwrap().contains("mmap(0, LEN"), "{text:?}");
    assert_eq!(found[1], None);
}
