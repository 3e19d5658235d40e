//! Real servers under memprov: what it says of them adds up to what the kernel says, to the byte where they stand
//! still, and within its own skew where they don't.
#![forbid(unsafe_code)]

mod server;

use std::time::{Duration, Instant, SystemTime};

use memprov_tests::agent::Agent;
use memprov_tests::physical::Rss;
use memprov_tests::report::{Evidence, Process, Report};
use memprov_tests::truth::{End, Workload};
use memprov_tests::{host, physical, score};
use server::{Kind, Server};

/// Starts a server under the daemon's eyes: it waits in its shell until it is watched.
fn watched(kind: Kind) -> Option<(Server, Agent)> {
    let mut server = started(kind)?;
    let agent = Agent::watching(server.pid()).expect("memprov starts");
    agent.fresh(server.pid(), &[], SystemTime::now()).expect("memprov watches");
    server.go();
    Some((server, agent))
}

fn started(kind: Kind) -> Option<Server> {
    let server = match host::no_live_tests() {
        Some(why) => Err(why.to_owned()),
        None => Server::wait(kind),
    };
    server.inspect_err(|why| host::skip(&format!("servers {kind:?}"), why)).ok()
}

/// A report about a server whose processes all stand still.
fn frozen(server: &Server, agent: &Agent) -> (Report, Rss) {
    let pids = server.freeze();
    let before = physical::rss(pids.iter().copied());
    let report = agent
        .fresh(server.pid(), &pids, SystemTime::now())
        .expect("a report about a server that stands still");
    let after = physical::rss(report.processes.iter().map(|process| process.pid));
    (report, physical::around(&before, after))
}

fn megabytes(bytes: i64) -> i64 {
    bytes >> 20
}

/// The laws of books that stand still, against smaps_rollup.
fn balanced((report, kernel): &(Report, Rss)) -> Vec<String> {
    let mut wrong = Vec::new();
    for process in &report.processes {
        score::books(process, false, Some(kernel), &mut wrong);
        let anonymous =
            physical::rollup(process.pid, "Anonymous").and_then(|n| i64::try_from(n).ok());
        let book = process.books.get("anon").map(|b| (b.control.lo, b.control.hi));
        if !book.zip(anonymous).is_some_and(|((lo, hi), n)| lo <= n && n <= hi) {
            wrong.push(format!(
                "anon of {}: {book:?}, smaps_rollup's Anonymous is {anonymous:?}",
                process.pid
            ));
        }
    }
    wrong
}

/// What the data of a program's own libraries may come to: below it nothing is said of call sites.
const SMALL: i64 = 8 << 20;

/// At least four fifths of the anonymous bytes of a process that isn't small are at a call site or in an arena.
fn explained(process: &Process) -> Option<String> {
    let anon = process.books.get("anon").map_or(0, |b| b.control.hi);
    let told = i64::try_from(process.resident_of(&["mapping", "arena"])).unwrap_or(i64::MAX);
    (anon > SMALL && told < anon / 5 * 4).then(|| {
        let mut rows: Vec<_> =
            process.owners.iter().map(|r| (r.kind.as_str(), r.name.as_str())).collect();
        rows.truncate(8);
        format!(
            "{}: {told} of {anon} anonymous bytes at call sites and arenas; largest rows {rows:?}",
            process.pid
        )
    })
}

/// What the other tests rest on, without memprov: a frozen server neither gains nor loses a byte by itself.
#[test]
fn a_frozen_server_stands_still() {
    for kind in [Kind::Redis, Kind::Python, Kind::Nginx, Kind::Go] {
        let mut server = match Server::wait(kind) {
            Ok(server) => server,
            Err(why) => {
                host::skip(&format!("servers {kind:?}"), &why);
                continue;
            }
        };
        server.go();
        server.load().expect("the server takes load");
        let pids = server.freeze();
        let rss = || pids.iter().map(|pid| physical::rollup(*pid, "Rss")).collect::<Vec<_>>();
        // The kernel may reclaim pages of its files meanwhile, but not without end.
        let mut before = rss();
        let mut seen = vec![before.clone()];
        let still = (0..5).any(|_| {
            std::thread::sleep(Duration::from_millis(300));
            seen.push(rss());
            std::mem::replace(&mut before, seen[seen.len() - 1].clone()) == before
        });
        assert!(still, "{kind:?}: {seen:?}");
        assert!(
            before.iter().all(|rss| rss.is_some_and(|rss| rss > 1 << 20)),
            "{kind:?}: {before:?}"
        );
        // The zero page is a frame too, and not resident.
        let there = physical::distinct(&pids);
        let sum = before.iter().flatten().sum::<u64>();
        assert!(
            there.is_none_or(|there| there > 0 && there <= sum + 4096),
            "{kind:?}: {there:?} of {sum}"
        );
    }
}

fn a_frozen_server_balances(kind: Kind) {
    let Some((server, agent)) = watched(kind) else { return };
    server.load().expect("the server takes load");
    let seen = frozen(&server, &agent);
    let mut wrong = balanced(&seen);
    let report = &seen.0;
    wrong.extend(report.processes.iter().filter_map(explained));
    let anon = |p: &Process| p.books.get("anon").map_or(0, |b| b.control.hi);
    if !report.processes.iter().any(|p| anon(p) > SMALL) {
        wrong.push("the load was too small to tell anything".to_owned());
    }
    drop(server);
    wrong.extend(agent.stop().err());
    assert!(wrong.is_empty(), "{kind:?}:\n  {}", wrong.join("\n  "));
}

#[test]
fn redis_balances_to_the_byte_when_it_stands_still() {
    a_frozen_server_balances(Kind::Redis);
}

#[test]
fn python_balances_to_the_byte_when_it_stands_still() {
    a_frozen_server_balances(Kind::Python);
}

#[test]
fn nginx_balances_to_the_byte_when_it_stands_still() {
    a_frozen_server_balances(Kind::Nginx);
}

#[test]
fn a_go_server_balances_to_the_byte_when_it_stands_still() {
    a_frozen_server_balances(Kind::Go);
}

fn a_busy_server_balances(kind: Kind) {
    let Some((server, agent)) = watched(kind) else { return };
    let mut wrong = Vec::new();
    let mut reports = 0;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| (0..4).try_for_each(|_| server.load()));
        let until = Instant::now() + Duration::from_secs(60);
        while !load.is_finished() && Instant::now() < until {
            match agent.report(server.pid()) {
                Ok(Some(report)) => {
                    reports += 1;
                    report.processes.iter().for_each(|p| score::books(p, true, None, &mut wrong));
                }
                Ok(None) => {}
                Err(why) => wrong.push(why),
            }
        }
        wrong.extend(load.join().expect("the load doesn't panic").err());
    });
    drop(server);
    wrong.extend(agent.stop().err());
    assert!(reports > 0, "{kind:?}: no report while it worked");
    assert!(wrong.is_empty(), "{kind:?}, {reports} reports:\n  {}", wrong.join("\n  "));
}

#[test]
fn redis_balances_with_its_skew_while_it_works() {
    a_busy_server_balances(Kind::Redis);
}

#[test]
fn a_go_server_balances_with_its_skew_while_it_works() {
    a_busy_server_balances(Kind::Go);
}

/// Resident bytes of a process at call sites and in arenas, and whether any of those that predate the watch is exact.
fn attributed(report: &Report, pid: u32) -> (u64, Vec<String>) {
    let process = report.process(pid).expect("the server is reported");
    let told =
        process.owners.iter().filter(|row| ["mapping", "arena"].contains(&row.kind.as_str()));
    let exact = told
        .filter(|row| {
            row.resident.as_ref().is_some_and(|bytes| bytes.evidence == Some(Evidence::Exact))
        })
        .map(|row| row.name.clone());
    (process.resident_of(&["mapping", "arena"]), exact.collect())
}

#[test]
fn a_restart_under_load_keeps_what_was_attributed_as_inferred() {
    let Some((server, mut agent)) = watched(Kind::Redis) else { return };
    server.load().expect("the server takes load");
    let before = agent.fresh(server.pid(), &[], SystemTime::now()).expect("a report");
    let (before, _) = attributed(&before, server.pid());
    let report = std::thread::scope(|scope| {
        let load = scope.spawn(|| server.load());
        agent.again().expect("memprov starts again");
        let report = agent.fresh(server.pid(), &[], SystemTime::now()).expect("a report");
        load.join().expect("the load doesn't panic").expect("the server takes load");
        report
    });
    let (after, exact) = attributed(&report, server.pid());
    assert!(before > 8 << 20, "the load was too small to tell anything: {before}");
    assert!(after >= before / 100 * 95, "{after} of {before} bytes are attributed");
    // Redis' arena is older than the restart, and nobody saw what happened meanwhile.
    assert_eq!(exact, Vec::<String>::new());
    drop(server);
    agent.stop().expect("memprov ends well");
}

#[test]
fn what_was_there_before_memprov_is_shown_as_preexisting() {
    let Some(mut server) = started(Kind::Python) else { return };
    server.go();
    server.load().expect("the server takes load");
    let agent = Agent::watching(server.pid()).expect("memprov starts");
    let seen = frozen(&server, &agent);
    let mut wrong = balanced(&seen);
    let report = &seen.0;
    let process = report.process(server.pid()).expect("the server is reported");
    let before = process.resident_of(&["preexisting"]);
    if before == 0 {
        wrong.push("no byte is preexisting, and all of them are".to_owned());
    }
    if process.resident_of(&["mapping", "arena"]) > before {
        wrong.push("more bytes at call sites than preexisting: nobody saw those calls".to_owned());
    }
    drop(server);
    wrong.extend(agent.stop().err());
    assert!(wrong.is_empty(), "{}", wrong.join("\n  "));
}

#[test]
fn a_background_save_takes_nothing_from_the_parents_owners() {
    let Some((server, agent)) = watched(Kind::Redis) else { return };
    server.load().expect("the server takes load");
    let owned = |report: &Report, pid: u32| {
        report.process(pid).and_then(|p| p.books.get("anon")).map_or((0, 0), |b| (b.owned, b.joint))
    };
    let (before, _) = owned(&frozen(&server, &agent).0, server.pid());
    server.thaw();
    let child = server.redis_save_slowly().expect("redis saves in the background");
    let seen = frozen(&server, &agent);
    let mut wrong = balanced(&seen);
    let report = &seen.0;
    let (during, _) = owned(report, server.pid());
    let (childs, common) = owned(report, child);
    if during < before / 100 * 98 {
        wrong.push(format!(
            "the parent owned {} MiB before and {} during the save",
            megabytes(before),
            megabytes(during)
        ));
    }
    if childs > before / 10 || common < before / 10 * 8 {
        wrong.push(format!("of {before} bytes the child owns {childs} and has {common} in common"));
    }
    drop(server);
    wrong.extend(agent.stop().err());
    assert!(wrong.is_empty(), "{}", wrong.join("\n  "));
}

/// Mebibytes that the host can spare, as far as this test wants them.
fn pool_size() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find(|l| l.starts_with("MemAvailable:"))?
            .split_whitespace()
            .nth(1)?
            .to_owned();
        line.parse::<u64>().ok()
    });
    if available.is_some_and(|kib| kib > 6 << 20) { 1638 } else { 160 }
}

#[test]
fn eighteen_processes_never_own_more_than_there_is() {
    if let Some(why) = host::no_live_tests() {
        return host::skip("servers pool", why);
    }
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool");
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("groundtruth");
    host::compile_c(&sources, &program, &[]).expect("the workload compiles");
    let mut command = std::process::Command::new(&program);
    command.arg("pool").env("TRUTH_POOL_MIB", pool_size().to_string());
    let mut pool = Workload::start_with(&mut command).expect("the workload starts");
    pool.phase().expect("it is ready");
    let agent = Agent::watching(pool.pid()).expect("memprov starts");
    agent.fresh(pool.pid(), &[], SystemTime::now()).expect("memprov watches");
    pool.go();
    let truth = pool.phase().expect("it tells the truth").expect("a phase");
    let pids = physical::family(pool.pid());
    assert_eq!(pids.len(), 18);
    let before = physical::rss(pids.iter().copied());
    let report =
        agent.fresh(pool.pid(), &pids, SystemTime::now()).expect("a report about all of them");
    let rss = physical::around(&before, physical::rss(pids.iter().copied()));
    let mut wrong = score::phase(&truth, &report, &score::Unseen::new(), Some(&rss));
    let owned: i64 = report.processes.iter().map(|p| p.over_resident(|b| b.owned)).sum();
    let shared: u64 = report.shared.iter().filter_map(|row| row.resident.bytes).sum();
    let told = u64::try_from(owned).unwrap_or(0) + shared;
    match physical::distinct(&pids) {
        None => host::skip(
            "servers pool, physical bound",
            "page frame numbers are hidden (CAP_SYS_ADMIN)",
        ),
        Some(there) if told > there => {
            wrong.push(format!("{told} bytes are told, {there} are there"))
        }
        Some(there) if told < there / 10 * 9 => {
            wrong.push(format!("only {told} of {there} bytes are told"))
        }
        Some(_) => {}
    }
    wrong.extend(agent.stop().err());
    assert_eq!(pool.end(), End::Good);
    assert!(wrong.is_empty(), "{}", wrong.join("\n  "));
}

/// A program that maps a mebibyte from line 4 and waits for the end of its input.
const MAPPER: &str = "#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void *map_it(void)
{ void *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __asm__ volatile(\"\" ::: \"memory\"); return p; }
int main(void)
{ char c; while (read(0, &c, 1) == 1) { char *p = map_it(); p[0] = 1; } return 0; }
";

#[test]
fn a_source_line_is_told_where_debug_information_is() {
    if let Some(why) = host::no_live_tests() {
        return host::skip("servers lines", why);
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("mapper.c"), MAPPER).expect("the source is written");
    let program = dir.path().join("mapper");
    host::compile_c(dir.path(), &program, &["-g"]).expect("the program compiles");
    let mut mapper = std::process::Command::new(&program)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let agent = Agent::watching(mapper.id()).expect("memprov starts");
    agent.fresh(mapper.id(), &[], SystemTime::now()).expect("memprov watches");
    let mut input = mapper.stdin.take().expect("its input is a pipe");
    std::io::Write::write_all(&mut input, b"x").expect("the program reads");
    std::thread::sleep(Duration::from_millis(200));
    agent.fresh(mapper.id(), &[], SystemTime::now()).expect("memprov saw it");
    let flags = ["--output", "json", "--lines"];
    let told = agent.asked(mapper.id(), &flags).expect("a report").expect("of the program");
    drop(input);
    mapper.wait().expect("the program ends");
    let report: serde_json::Value = serde_json::from_slice(&told).expect("the report is JSON");
    let owners = report["processes"][0]["owners"].as_array().expect("owners");
    let frames = owners.iter().filter_map(|row| row["stack"].as_array()).flatten();
    let lines: Vec<_> = frames
        .filter(|frame| frame["function"] == "map_it")
        .filter_map(|frame| frame["line"].as_str())
        .collect();
    assert!(!lines.is_empty() && lines.iter().all(|l| l.ends_with("mapper.c:4")), "{lines:?}");
}
