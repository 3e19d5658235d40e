//! What is known of functions by their names: allocators, runtimes, and wrappers that are never a site.
//!
//! A pattern that ends in `*` is a prefix. Names are demangled; C++ patterns are written without arguments.

use memprov_ledger::stack::{Module, ModuleRole};

/// What a frame is to attribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The user's code: may be a site.
    App,
    /// Never a site: C library, runtime library, wrapper.
    Skip,
    /// The way into an allocator or its inside. What it maps is its arena.
    Allocator(&'static str),
    /// The C library makes the stack of a new thread.
    ThreadStart,
    /// The dynamic linker maps a library.
    Linker,
}

/// Functions that hand out objects, exported under these names by every C library and C allocator.
const ALLOCATION: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "free",
    "malloc_trim",
    "cfree",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_free",
    "__libc_freeres",
];

/// Functions inside the GNU C library that a static or unstripped program shows.
const GLIBC: &[&str] = &[
    "sysmalloc*",
    "_int_malloc*",
    "_int_realloc*",
    "_int_memalign*",
    "_int_free*",
    "new_heap",
    "alloc_new_heap",
    "arena_get2*",
    "heap_trim*",
    "systrim*",
    "mremap_chunk",
    "tcache_init*",
    "ptmalloc_init*",
    "__default_morecore",
    "__glibc_morecore",
    "grow_heap*",
    "_mid_memalign*",
    "malloc_hook_ini",
    "malloc_consolidate*",
];

/// The C library's ways into the kernel, where it is linked statically.
const SYSCALLS: &[&str] = &[
    "mmap",
    "mmap64",
    "__mmap",
    "__mmap64",
    "brk",
    "__brk",
    "sbrk",
    "__sbrk",
    "mremap",
    "__mremap",
    "shmat",
    "__shmat",
    "syscall",
    "munmap",
    "__munmap",
    "madvise",
    "__madvise",
];

/// Allocators that may be linked into a program, by the names of their functions.
const ALLOCATORS: &[(&str, &[&str])] = &[
    (
        "jemalloc",
        &[
            "je_*",
            "_rjem_*",
            "jemalloc*",
            "os_pages_map*",
            "pages_map*",
            "extent_alloc_mmap*",
            "extent_grow_retained*",
            "ehooks_default_alloc*",
            "base_block_alloc*",
            "arena_extent_*",
            "pa_alloc*",
            "pac_alloc*",
            "ecache_alloc*",
            "large_palloc*",
        ],
    ),
    (
        "tcmalloc",
        &[
            "tcmalloc::*",
            "TCMalloc_*",
            "tc_malloc*",
            "tc_calloc",
            "tc_realloc",
            "tc_new*",
            "tc_memalign",
            "tc_posix_memalign",
            "MmapSysAllocator::*",
            "SbrkSysAllocator::*",
        ],
    ),
    ("mimalloc", &["mi_*", "_mi_*", "unix_mmap*"]),
    (
        "python",
        &[
            "_PyObject_Arena*",
            "_PyMem_Arena*",
            "new_arena",
            "allocate_from_new_pool",
            "_PyObject_Malloc*",
            "_PyObject_Calloc*",
            "_PyObject_Realloc*",
            "pymalloc_alloc*",
            "PyObject_Malloc",
            "PyObject_Calloc",
            "PyObject_Realloc",
        ],
    ),
    ("ggc", &["ggc_*"]),
    ("node", &["v8::*", "cppgc::*"]),
];

/// Functions that only pass an allocation on.
const WRAPPERS: &[&str] = &[
    // C++ and Rust language runtimes.
    "operator new*",
    "__gnu_cxx::*",
    "std::*",
    "__rust_alloc*",
    "__rustc::__rust_alloc*",
    "__rust_realloc",
    "__rdl_alloc*",
    "__rdl_realloc",
    "__rg_alloc*",
    "__rg_realloc",
    "alloc::*",
    "core::*",
    "<alloc::*",
    "<std::*",
    "<core::*",
    "hashbrown::*",
    "<hashbrown::*",
    "rust_begin_unwind",
    // redis
    "zmalloc*",
    "zcalloc*",
    "zrealloc*",
    "ztrymalloc*",
    "ztrycalloc*",
    "ztryrealloc*",
    "zstrdup*",
    "extend_to_usable*",
    // SQLite
    "sqlite3Malloc*",
    "sqlite3DbMalloc*",
    "sqlite3DbRealloc*",
    "sqlite3Realloc*",
    "sqlite3_malloc*",
    "sqlite3_realloc*",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "sqlite3PageMalloc",
    "dbMallocRawFinish",
    "mallocWithAlarm",
    // CPython
    "PyMem_*",
    "_PyMem_*",
    "PyObject_GC_New*",
    "_PyObject_GC_*",
    "_PyObject_New*",
    "PyObject_Init*",
    "PyType_GenericAlloc",
    "_PyType_Alloc*",
    "gc_alloc",
    "_PyObject_GC_Alloc",
    // GLib, nginx, Apache, OpenSSL, GNU programs
    "g_malloc*",
    "g_realloc*",
    "g_try_malloc*",
    "g_slice_alloc*",
    "ngx_alloc",
    "ngx_calloc",
    "ngx_memalign",
    "ngx_palloc*",
    "ngx_pcalloc*",
    "ngx_pnalloc*",
    "ngx_create_pool",
    "apr_palloc*",
    "apr_pool_create*",
    "allocator_alloc",
    "CRYPTO_malloc*",
    "CRYPTO_zalloc*",
    "CRYPTO_realloc*",
    "xmalloc*",
    "xcalloc*",
    "xrealloc*",
    "xzalloc*",
    "xstrdup*",
    "xnmalloc*",
    "x2nrealloc*",
    "_obstack_*",
    "obstack_*",
    "rpl_malloc",
    "rpl_realloc",
    "safe_malloc*",
    // PostgreSQL
    "palloc*",
    "repalloc*",
    "AllocSetAlloc*",
    "AllocSetContextCreate*",
    "MemoryContextAlloc*",
];

/// Go packages that are the way into the kernel.
const GO_SYSCALLS: &[&str] = &[
    "syscall.*",
    "internal/runtime/syscall*",
    "runtime/internal/syscall*",
    "golang.org/x/sys/unix.*",
    "internal/syscall/*",
];

/// Go's runtime.
const GO_RUNTIME: &[&str] = &["runtime.*"];

/// The Java virtual machine's file.
const JVM: &str = "libjvm.so";

/// C++ allocation by the system's own types.
const OPERATORS: &[&str] = &["operator new(unsigned long)", "operator new[](unsigned long)"];

/// Wrappers of files without symbols: build id in hex, function starts as ELF virtual addresses.
///
/// A row is what `readelf -n` and `readelf --debug-dump=frames` say of the file, with its package beside it.
const UNNAMED_WRAPPERS: &[(&str, &[u64])] = &[];

fn matches(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => *pattern == name,
    })
}

/// Whether attribution knows a function or a file by this name, and the name tells nothing else: arguments and type
/// parameters may be the user's (`std::vector<Customer>::push_back`).
#[must_use]
pub fn known_name(name: &str) -> bool {
    let lists = [ALLOCATION, GLIBC, SYSCALLS, WRAPPERS, GO_SYSCALLS, GO_RUNTIME];
    let lists = lists.into_iter().chain(ALLOCATORS.iter().map(|(_, names)| *names));
    let plain = !name.contains(['<', '(', '[', ' ']);
    name == JVM
        || OPERATORS.contains(&name)
        || plain && lists.into_iter().any(|names| matches(names, name))
}

/// What a frame is, from its module and the name of its function.
pub(crate) fn part(module: &Module, function: u64, name: Option<&str>) -> Part {
    let name = name.unwrap_or("");
    match module.role {
        ModuleRole::Libc if matches(ALLOCATION, name) || matches(GLIBC, name) => {
            Part::Allocator(if module.name.contains("musl") { "musl" } else { "glibc" })
        }
        ModuleRole::Libc if name == "pthread_create" || name == "__pthread_create_2_1" => {
            Part::ThreadStart
        }
        ModuleRole::Libc if is_linker(module) => Part::Linker,
        ModuleRole::Libc | ModuleRole::Runtime => Part::Skip,
        ModuleRole::Jemalloc => Part::Allocator("jemalloc"),
        ModuleRole::Tcmalloc => Part::Allocator("tcmalloc"),
        ModuleRole::Mimalloc => Part::Allocator("mimalloc"),
        ModuleRole::Go if matches(GO_SYSCALLS, name) => Part::Skip,
        ModuleRole::Go if matches(GO_RUNTIME, name) => Part::Allocator("go"),
        ModuleRole::Go | ModuleRole::Code => part_of_code(module, function, name),
    }
}

fn part_of_code(module: &Module, function: u64, name: &str) -> Part {
    if module.name == JVM {
        return Part::Allocator("jvm");
    }
    if matches(GLIBC, name) || matches(&["__libc_*"], name) && matches(ALLOCATION, name) {
        return Part::Allocator("glibc");
    }
    if let Some((allocator, _)) = ALLOCATORS.iter().find(|(_, names)| matches(names, name)) {
        return Part::Allocator(allocator);
    }
    let unnamed = || {
        let id = module.build_id.as_deref();
        UNNAMED_WRAPPERS.iter().any(|(of, starts)| id == Some(*of) && starts.contains(&function))
    };
    if matches(SYSCALLS, name) || matches(WRAPPERS, name) || unnamed() {
        return Part::Skip;
    }
    // A program's own malloc, or that of a C library linked into it.
    if matches(ALLOCATION, name) { Part::Allocator("malloc") } else { Part::App }
}

/// The GNU dynamic linker, which is a file of its own; musl's is the C library itself.
fn is_linker(module: &Module) -> bool {
    module.name.starts_with("ld") && !module.name.contains("musl")
}

#[cfg(test)]
mod tests {
    use memprov_ledger::stack::{Module, ModuleRole};

    use super::{Part, known_name, part};
    use crate::symbols::elf::role_of_name;

    #[test]
    fn libraries_are_told_by_their_file_names() {
        use ModuleRole::{Code, Jemalloc, Libc, Mimalloc, Runtime, Tcmalloc};
        let cases = [
            ("libc.so.6", Libc),
            ("libc-2.31.so", Libc),
            ("ld-linux-x86-64.so.2", Libc),
            ("ld-2.31.so", Libc),
            ("ld-musl-x86_64.so.1", Libc),
            ("libc.musl-x86_64.so.1", Libc),
            ("libpthread.so.0", Libc),
            ("libstdc++.so.6.0.30", Runtime),
            ("libgcc_s.so.1", Runtime),
            ("libjemalloc.so.2", Jemalloc),
            ("libtcmalloc_minimal.so.4", Tcmalloc),
            ("libmimalloc-secure.so.2", Mimalloc),
            ("libcrypto.so.3", Code),
            ("libcurl.so.4", Code),
            ("ldd", Code),
            ("libc", Code),
            ("redis-server", Code),
        ];
        for (name, role) in cases {
            assert_eq!(role_of_name(name), role, "{name}");
        }
    }

    #[test]
    fn an_allocator_inside_a_program_is_told_by_its_functions() {
        let module = |role| Module { name: "app".to_owned(), build_id: None, role };
        let code = |name| part(&module(ModuleRole::Code), 0, Some(name));
        assert_eq!(code("je_arena_boot"), Part::Allocator("jemalloc"));
        assert_eq!(code("_mi_os_alloc"), Part::Allocator("mimalloc"));
        assert_eq!(code("sysmalloc_mmap"), Part::Allocator("glibc"));
        assert_eq!(code("zmalloc_usable"), Part::Skip);
        assert_eq!(code("alloc::raw_vec::RawVec<T>::grow_one"), Part::Skip);
        assert_eq!(code("zone_of_mine"), Part::App);
        assert_eq!(part(&module(ModuleRole::Code), 0, None), Part::App);
        let go = |name| part(&module(ModuleRole::Go), 0, Some(name));
        assert_eq!(go("runtime.mmap"), Part::Allocator("go"));
        assert_eq!(go("internal/runtime/syscall.Syscall6"), Part::Skip);
        assert_eq!(go("main.site"), Part::App);
    }

    #[test]
    fn a_name_is_public_when_attribution_knows_it_and_it_holds_nothing_of_the_users() {
        for name in
            ["zmalloc_usable", "je_malloc", "sysmalloc_mmap", "runtime.mallocgc", "libjvm.so"]
        {
            assert!(known_name(name), "{name}");
        }
        assert!(known_name("operator new(unsigned long)"));
        for name in [
            "createObject",
            "main.site",
            "/srv/acme",
            "",
            "std::vector<Customer>::push_back(Customer const&)",
            "operator new(unsigned long, Customer&)",
            "<alloc::vec::Vec<customer::Row> as Clone>::clone",
        ] {
            assert!(!known_name(name), "{name}");
        }
    }
}
