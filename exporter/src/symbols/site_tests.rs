use memprov_ledger::evidence::MapFlags;
use memprov_ledger::identity::ModuleId;
use memprov_ledger::stack::{Frame, Module, ModuleRole, Stack, StackEnd};

use super::{Attribution, Call, Name, Site, Stability, attribute};

/// A stack of `module!function`, leaf first; a function `?` has no name, `…` a pending one.
fn of(frames: &[&str], end: StackEnd, call: Call) -> Option<Attribution> {
    let modules: Vec<Module> = frames
        .iter()
        .map(|f| {
            let name = f.split_once('!').unwrap().0;
            let role = match name {
                "go" => ModuleRole::Go,
                name => crate::symbols::elf::role_of_name(name),
            };
            Module { name: name.to_owned(), build_id: Some("b1".to_owned()), role }
        })
        .collect();
    let frame = |n: usize| Frame {
        module: Some(ModuleId(u32::try_from(n).unwrap())),
        function: Some(16 * n as u64),
        address: 16 * n as u64 + 5,
    };
    let stack = Stack { frames: (0..frames.len()).map(frame).collect(), end };
    let name = |id: ModuleId, _| match frames[id.0 as usize].split_once('!').unwrap().1 {
        "?" => Name::Nameless,
        "…" => Name::Pending,
        name => Name::Known(name),
    };
    attribute(&stack, call, |id| modules.get(id.0 as usize), name)
}

fn mmap(len: u64) -> Call {
    Call::Mmap { len, flags: MapFlags { anonymous: true, ..MapFlags::default() } }
}

fn root(frames: &[&str], call: Call) -> Attribution {
    of(frames, StackEnd::Root, call).unwrap()
}

/// `site NAME` or `arena ALLOCATOR`, with ` of SITE` where the stack shows who asked.
fn short(attribution: &Attribution) -> String {
    match attribution {
        Attribution::Site(site) => format!("site {}", site.name),
        Attribution::Arena { allocator, site: Some(site) } => {
            format!("arena {allocator} of {}", site.name)
        }
        Attribution::Arena { allocator, site: None } => format!("arena {allocator}"),
        Attribution::Stack => "stack".to_owned(),
        Attribution::Loader => "loader".to_owned(),
    }
}

#[test]
fn what_an_allocator_maps_is_its_arena_unless_it_is_one_large_object() {
    const ODD: u64 = 0x123000;
    let libc: &[&str] = &["libc.so.6!mmap", "libc.so.6!?", "libc.so.6!malloc", "app!f", "app!main"];
    let python = &["libc.so.6!mmap", "python3.11!_PyObject_Malloc", "python3.11!PyList_New"];
    let jemalloc = &["libc.so.6!mmap", "libjemalloc.so.2!?", "redis!zmalloc", "redis!createObject"];
    let cases: &[(&[&str], Call, &str)] = &[
        (libc, mmap(ODD), "site f"),
        (libc, mmap(64 << 20), "site f"),
        (libc, mmap(5 << 19), "site f"),
        (
            &["libc.so.6!brk", "libc.so.6!?", "libc.so.6!malloc", "app!f"],
            Call::Brk,
            "arena glibc of f",
        ),
        (&["libc.so.6!brk", "libc.so.6!sbrk", "app!f"], Call::Brk, "site f"),
        (&["libc.so.6!mremap", "libc.so.6!realloc", "app!f"], Call::Mremap, "site f"),
        (jemalloc, mmap(2 << 20), "arena jemalloc of createObject"),
        (jemalloc, mmap(3 << 20), "arena jemalloc of createObject"),
        (jemalloc, mmap(5 << 19), "arena jemalloc of createObject"),
        (jemalloc, mmap(7 << 19), "arena jemalloc of createObject"),
        (jemalloc, mmap(5 << 14), "arena jemalloc of createObject"),
        (jemalloc, mmap(9 << 14), "site createObject"),
        (jemalloc, mmap(ODD), "site createObject"),
        (python, mmap(1 << 20), "arena python of PyList_New"),
        (&["go!runtime.mmap", "go!runtime.sysReserveOS"], mmap(64 << 20), "arena go"),
        (
            &["libc.so.6!mmap", "libjvm.so!?", "libjvm.so!JVM_Start", "app!f"],
            mmap(ODD),
            "arena jvm of f",
        ),
        (
            &["ld-musl-x86_64.so.1!mmap", "ld-musl-x86_64.so.1!malloc", "app!f"],
            mmap(4096),
            "arena musl of f",
        ),
        (
            &[
                "libc.so.6!mmap",
                "libc.so.6!malloc",
                "libstdc++.so.6!operator new(unsigned long)",
                "app!T::f(int)",
            ],
            mmap(ODD),
            "site T::f",
        ),
        (
            &["app!mmap", "app!je_pages_map", "app!je_malloc", "app!f"],
            mmap(1 << 21),
            "arena jemalloc of f",
        ),
    ];
    for (frames, call, want) in cases {
        assert_eq!(short(&root(frames, *call)), *want, "{frames:?}");
    }
    let heap =
        MapFlags { anonymous: true, noreserve: true, inaccessible: true, ..MapFlags::default() };
    let heap = Call::Mmap { len: 128 << 20, flags: heap };
    assert_eq!(short(&root(libc, heap)), "arena glibc of f");
}

#[test]
fn a_mapping_made_directly_is_its_callers_whatever_its_length() {
    for len in [4096, 1 << 20, 64 << 20, 0x123000] {
        let attribution = root(&["libc.so.6!mmap", "app!f", "app!main"], mmap(len));
        assert_eq!(short(&attribution), "site f");
        let attribution = root(&["go!syscall.mmap", "go!main.f", "go!runtime.main"], mmap(len));
        assert_eq!(short(&attribution), "site main.f");
    }
}

#[test]
fn thread_stacks_and_the_dynamic_linker_are_nobodys_site() {
    let flags = MapFlags { anonymous: true, stack: true, ..MapFlags::default() };
    let thread = ["libc.so.6!mmap", "libc.so.6!pthread_create", "app!f"];
    assert_eq!(root(&thread, Call::Mmap { len: 8 << 20, flags }), Attribution::Stack);
    assert_eq!(root(&thread, mmap(8 << 20)), Attribution::Stack);
    let linker = ["ld-linux-x86-64.so.2!?", "ld-linux-x86-64.so.2!?", "libc.so.6!dlopen", "app!f"];
    assert_eq!(root(&linker, mmap(4096)), Attribution::Loader);
}

#[test]
fn first_touch_is_the_first_code_outside_allocators_and_libraries() {
    let touch = ["libc.so.6!memset", "libc.so.6!calloc", "redis!zcalloc", "redis!dictResize"];
    assert_eq!(short(&root(&touch, Call::Fault)), "site dictResize");
    assert_eq!(short(&root(&["go!runtime.mallocgc", "go!main.f"], Call::Fault)), "site main.f");
    assert_eq!(
        short(&root(&["go!runtime.gcDrain", "go!runtime.bgscavenge"], Call::Fault)),
        "arena go"
    );
}

#[test]
fn a_key_is_made_of_content_or_of_builds_and_says_which() {
    let call = mmap(4096);
    let Attribution::Site(site) = root(&["libc.so.6!mmap", "libfoo-1.2.so.3!f(int)", "a!g"], call)
    else {
        panic!()
    };
    let want = Site {
        key: vec!["libfoo!f(int)".to_owned(), "a!g".to_owned()],
        name: "f".to_owned(),
        caller: "g".to_owned(),
        stability: Stability::Content,
        truncated: false,
    };
    assert_eq!(site, want);
    let Attribution::Site(site) = root(&["libc.so.6!mmap", "a!?", "a!g", "a!h", "a!i"], call)
    else {
        panic!()
    };
    assert_eq!((&*site.key[0], site.key.len(), &*site.name), ("b1+0x10", 3, "a+0x10"));
    assert_eq!(site.stability, Stability::Build);
}

#[test]
fn a_stack_that_ends_early_is_another_site_only_where_its_key_is_short() {
    let site = |frames: &[&str], end| match of(frames, end, mmap(4096)).unwrap() {
        Attribution::Site(site) => site,
        other => panic!("{other:?}"),
    };
    let two = ["libc.so.6!mmap", "a!f", "a!g"];
    assert!(site(&two, StackEnd::Cut).truncated && site(&two, StackEnd::Lost).truncated);
    assert!(!site(&two, StackEnd::Root).truncated && !site(&two, StackEnd::Switch).truncated);
    let three = ["libc.so.6!mmap", "a!f", "a!g", "a!h"];
    assert_eq!(site(&three, StackEnd::Cut), site(&three, StackEnd::Root));
}

#[test]
fn nothing_is_said_while_a_name_is_pending() {
    assert_eq!(of(&["libc.so.6!mmap", "a!f", "a!…"], StackEnd::Root, mmap(4096)), None);
}

#[test]
fn a_stack_without_frames_is_an_unknown_site() {
    let Some(Attribution::Site(site)) = of(&[], StackEnd::Lost, mmap(4096)) else { panic!() };
    assert_eq!((&*site.name, site.key.len(), site.truncated), ("unknown", 0, true));
}
