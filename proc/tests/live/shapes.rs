//! Shapes of memory, made by a child for itself.

use std::ffi::CString;
use std::io::Write;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

fn map(len: usize, flags: i32, fd: i32) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at.cast()
}

fn anon(pages: usize) -> *mut u8 {
    map(pages * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

fn write(at: *mut u8, from: usize, pages: usize) {
    for page in from..from + pages {
        // SAFETY: inside a mapping that the caller made and keeps for ever.
        unsafe { at.add(page * PAGE).write_volatile(1) };
    }
}

fn look(at: *mut u8, from: usize, pages: usize) {
    for page in from..from + pages {
        // SAFETY: as in `write`.
        unsafe { at.add(page * PAGE).read_volatile() };
    }
}

fn advise(at: *mut u8, from: usize, pages: usize, advice: i32) -> bool {
    // SAFETY: inside a mapping of ours that nothing else uses.
    unsafe { libc::madvise(at.add(from * PAGE).cast(), pages * PAGE, advice) == 0 }
}

fn cannot(why: &str) -> ! {
    println!("cannot: {why}: {}", std::io::Error::last_os_error());
    std::process::abort();
}

fn memfd(name: &[u8], flags: u32, len: usize) -> i32 {
    let name = CString::new(name).unwrap();
    // SAFETY: a valid name; the descriptor is ours.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    // SAFETY: a descriptor that was just made.
    if fd < 0 || unsafe { libc::ftruncate(fd, libc::off_t::try_from(len).unwrap()) } != 0 {
        cannot("memfd");
    }
    fd
}

fn segment(len: usize, flags: i32) -> *mut u8 {
    // SAFETY: a new private segment, removed as soon as it is attached.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, len, 0o600 | flags);
        if id < 0 {
            cannot("SysV segment");
        }
        let at = libc::shmat(id, std::ptr::null(), 0);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        assert_ne!(at.addr(), usize::MAX);
        at.cast()
    }
}

fn file(pages: usize) -> i32 {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&vec![7u8; pages * PAGE]).unwrap();
    std::os::fd::IntoRawFd::into_raw_fd(file)
}

/// A mapping that begins at a huge page's boundary.
fn huge(pages: usize) -> *mut u8 {
    let at = anon(pages * HUGE / PAGE + HUGE / PAGE);
    let at = at.map_addr(|addr| addr.next_multiple_of(HUGE));
    if !advise(at, 0, pages * HUGE / PAGE, libc::MADV_HUGEPAGE) {
        cannot("huge pages");
    }
    at
}

fn make(shape: &str) {
    let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
    match shape {
        "anonymous" => {
            write(anon(100), 10, 37);
            write(anon(1 << 20), 1 << 19, 3);
        }
        "zero page" => {
            let at = anon(100);
            look(at, 0, 50);
            write(at, 20, 5);
        }
        "huge" => {
            let at = huge(4);
            write(at, 0, 1);
            look(at, HUGE / PAGE, 1);
            // Split: a part of a huge page goes.
            write(at, 2 * HUGE / PAGE, 1);
            advise(at, 2 * HUGE / PAGE + 7, 3, libc::MADV_DONTNEED);
        }
        "shared anonymous" => {
            let at = map(100 * PAGE, shared | libc::MAP_ANONYMOUS, -1);
            write(at, 0, 40);
            look(at, 60, 5);
        }
        "memfd" => {
            let fd = memfd(b"a\nb\xff", 0, 100 * PAGE);
            write(map(100 * PAGE, shared, fd), 0, 40);
            // Pages 50 to 52 are written privately, 60 to 64 read.
            let at = map(100 * PAGE, private, fd);
            write(at, 50, 3);
            look(at, 60, 5);
            look(at, 0, 5);
        }
        "segment" => write(segment(100 * PAGE, 0), 0, 33),
        "posix shared memory" => {
            let name = CString::new(format!("/memprov-test-{}", std::process::id())).unwrap();
            // SAFETY: a valid name, of this process alone, removed at once.
            let fd = unsafe {
                let fd = libc::shm_open(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
                libc::shm_unlink(name.as_ptr());
                fd
            };
            // SAFETY: a descriptor that was just made.
            if fd < 0 || unsafe { libc::ftruncate(fd, 50 * 4096) } != 0 {
                cannot("/dev/shm");
            }
            write(map(50 * PAGE, shared, fd), 0, 17);
        }
        "file" => {
            let fd = file(64);
            let at = map(64 * PAGE, private, fd);
            write(at, 0, 10);
            look(at, 10, 20);
            look(map(64 * PAGE, shared, fd), 0, 64);
        }
        "zero device" => {
            // SAFETY: a valid path.
            let fd = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDWR) };
            let at = map(64 * PAGE, private, fd);
            write(at, 0, 10);
            look(at, 10, 10);
            write(map(64 * PAGE, shared, fd), 0, 12);
        }
        "guard" => {
            let at = anon(64);
            write(at, 0, 64);
            // MADV_GUARD_INSTALL, Linux 6.13.
            if !advise(at, 10, 20, 102) {
                cannot("guard regions");
            }
        }
        "hugetlb" => {
            let huge = private | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
            let fd = memfd(b"huge", libc::MFD_HUGETLB, 2 * HUGE);
            write(map(2 * HUGE, huge, -1), 0, 1);
            write(map(2 * HUGE, shared | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB, -1), 0, 1);
            write(map(2 * HUGE, shared, fd), 0, 1);
            write(map(2 * HUGE, private, fd), 0, 1);
            write(segment(2 * HUGE, libc::SHM_HUGETLB), 0, 1);
            write(anon(10), 0, 10);
        }
        "swap" => {
            let at = anon(512);
            write(at, 0, 512);
            if !advise(at, 0, 300, libc::MADV_PAGEOUT) {
                cannot("page out");
            }
            look(at, 0, 10);
        }
        "forked" => {
            let at = anon(200);
            write(at, 0, 100);
            let big = huge(1);
            write(big, 0, 1);
            // SAFETY: the child does nothing but write to its memory, and waits.
            if unsafe { libc::fork() } == 0 {
                write(at, 0, 30);
                loop {
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        "leaderless" | "plain" => write(anon(64), 0, 64),
        "threads" => {
            for _ in 0..8 {
                std::thread::spawn(|| {
                    write(anon(64), 0, 5);
                    loop {
                        std::thread::park();
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        other => panic!("no such shape: {other}"),
    }
}

/// Not a test: what a child of the tests runs.
#[test]
#[ignore = "it is run by other tests, in a process of its own"]
fn one_shape() {
    let Ok(shape) = std::env::var("MEMPROV_SHAPE") else { return };
    make(&shape);
    println!("ready");
    std::io::stdout().flush().unwrap();
    if shape == "leaderless" {
        // SAFETY: ends the main thread alone, which waits for this one and holds nothing.
        unsafe { end_leader() };
    }
    loop {
        // SAFETY: a signal to ourselves.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

extern "C" fn leave(_: i32) {
    // SAFETY: `exit` of one thread is async-signal-safe: it is a plain system call.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Makes the main thread end itself, and waits until it has.
///
/// # Safety
/// The main thread must hold nothing that others wait for.
unsafe fn end_leader() {
    let pid = i32::try_from(std::process::id()).unwrap();
    // SAFETY: the handler makes one system call; the signal goes to the main thread.
    unsafe {
        libc::signal(libc::SIGUSR1, (leave as extern "C" fn(i32)) as libc::sighandler_t);
        libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGUSR1);
    }
    while !std::fs::read("/proc/self/stat").unwrap().windows(3).any(|w| w == b") Z") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
