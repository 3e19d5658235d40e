use serde_json::{Value, json};

use super::{Unseen, bounds, phase};
use crate::report::Report;
use crate::truth::Phase;

fn truth() -> Phase {
    serde_json::from_value(json!({"phase": "p", "owners": [
        {"about": "owner", "pid": 7, "site": "site_a", "reserved": 8192, "resident": 4096},
        {"about": "owner", "pid": 7, "site": "site_gone", "reserved": 0, "resident": 0},
        {"about": "shared", "name": "pool", "resident": 4096, "sharers": 2},
        {"about": "joint", "pid": 7, "kind": "shmem", "resident": 4096},
        {"about": "kind", "pid": 7, "kind": "stack", "resident": 4000, "resident_hi": 5000},
    ]}))
    .unwrap()
}

fn good() -> Value {
    let exact = |n: u64| json!({"bytes": n, "evidence": "exact"});
    let book = |owned: u64, joint: u64| {
        json!({"control": {"lo": owned + joint, "hi": owned + joint}, "owned": owned, "joint": joint,
               "unattributed": 0, "skew": 0, "drift": 0, "at_rest": true})
    };
    json!({"schema": "memprov.report/1", "source": "replay", "shared": [
            {"id": "2", "kind": "shm", "name": "the pool", "stack": [], "resident": exact(4096), "sharers": 2}],
        "processes": [{"pid": 7, "space": "s", "space_pids": [7], "as_of": "2026-01-01T00:00:00Z",
            "books": {"anon": book(8192, 0), "shmem": book(0, 4096)},
            "owners": [
                {"id": "1", "kind": "mapping", "name": "site_a", "stack": [{"function": "mmap"}, {"function": "site_a(int)"}],
                 "reserved": exact(8192), "resident": exact(4096)},
                {"id": "3", "kind": "stack", "name": "stack", "reserved": exact(8192), "resident": exact(4096)}]}]})
}

fn judge(report: &Value) -> Vec<String> {
    judge_of(&truth(), report)
}

fn judge_of(truth: &Phase, report: &Value) -> Vec<String> {
    let report = Report::parse(report.to_string().as_bytes()).unwrap();
    phase(truth, &report, &Unseen::new(), None)
}

#[test]
fn a_report_that_says_the_truth_has_nothing_wrong() {
    assert_eq!(judge(&good()), Vec::<String>::new());
}

/// One change of the good report, and a part of the sentence that it earns.
#[test]
fn every_departure_from_the_truth_is_found() {
    let owner = "/processes/0/owners/0";
    let changes = [
        (format!("{owner}/resident/bytes"), json!(8192), "site_a of 7 resident: 8192"),
        (format!("{owner}/resident/evidence"), json!("inferred"), "site_a of 7 resident: 4096"),
        (format!("{owner}/resident/bytes"), json!(null), "site_a of 7 resident: unknown"),
        (format!("{owner}/reserved/bytes"), json!(4096), "site_a of 7 reserved: 4096"),
        (format!("{owner}/stack/1/function"), json!("site_gone"), "site_gone of 7 resident: 4096"),
        (format!("{owner}/stack/1/function"), json!("site_other"), "site_other, which holds none"),
        (format!("{owner}/stack/1/function"), json!(null), "no such owner"),
        ("/processes/0/owners/1/resident/bytes".into(), json!(12_288), "rows of kind stack"),
        ("/processes/0/owners/1/kind".into(), json!("pool"), "rows of kind stack: 0"),
        (format!("{owner}/name"), json!("a pool"), "also owned by 7"),
        ("/processes/0/books/anon/owned".into(), json!(4096), "doesn't close"),
        ("/processes/0/books/anon/unattributed".into(), json!(-4096), "less than nothing"),
        ("/processes/0/books/anon/skew".into(), json!(4096), "at rest with a skew"),
        ("/processes/0/books/anon/control/hi".into(), json!(12_288), "at rest with a skew"),
        ("/processes/0/books/anon/at_rest".into(), json!(false), "not at rest"),
        ("/processes/0/books/shmem/joint".into(), json!(0), "joint shmem of 7: Some(0)"),
        ("/processes/0/pid".into(), json!(8), ""),
        ("/shared/0/resident/bytes".into(), json!(8192), "pool shared resident: 8192"),
        ("/shared/0/sharers".into(), json!(3), "3 sharers"),
        ("/shared/0/name".into(), json!("other"), "0 rows under shared"),
        (format!("{owner}/resident/evidence"), json!(null), "number without evidence"),
    ];
    for (place, value, sentence) in changes {
        let mut report = good();
        *report.pointer_mut(&place).unwrap() = value.clone();
        let wrong = judge(&report);
        if sentence.is_empty() {
            // A process is found by its space too.
            assert_eq!(wrong, Vec::<String>::new(), "{place}");
        } else {
            assert!(wrong.iter().any(|w| w.contains(sentence)), "{place} = {value}: {wrong:?}");
        }
    }
}

#[test]
fn an_arena_belongs_to_no_site_though_one_called() {
    let mut report = good();
    report["processes"][0]["owners"][0]["kind"] = json!("arena");
    let wrong = judge(&report);
    assert!(wrong.iter().any(|w| w.contains("site_a of 7 resident: no such owner")), "{wrong:?}");
    report["processes"][0]["owners"][0]["stack"] = json!([{"function": "site_other"}]);
    assert!(!judge(&report).iter().any(|w| w.contains("site_other")));
}

#[test]
fn bounds_do_only_where_the_truth_says_so_and_only_narrow_ones() {
    let mut truth = truth();
    truth.owners[0].inferred = true;
    truth.owners[0].resident = 1 << 20;
    let judge = |lo: u64, hi: u64| {
        let mut report = good();
        report["processes"][0]["owners"][0]["resident"] =
            json!({"bytes": 4096, "evidence": "inferred", "lo": lo, "hi": hi});
        let report = Report::parse(report.to_string().as_bytes()).unwrap();
        phase(&truth, &report, &Unseen::new(), None)
    };
    assert!(judge(1_000_000, 1_090_000).is_empty());
    assert!(!judge(900_000, 1_090_000).is_empty(), "too wide");
    assert!(!judge(1_050_000, 1_090_000).is_empty(), "beside the truth");
}

#[test]
fn what_comes_and_goes_has_no_more_than_it_can() {
    let mut truth = truth();
    truth.owners[0].reserved = Some(0);
    truth.owners[0].reserved_hi = Some(8192);
    let judge = |reserved: u64, resident: u64| {
        let mut report = good();
        let row = &mut report["processes"][0]["owners"][0];
        row["reserved"]["bytes"] = json!(reserved);
        row["resident"]["bytes"] = json!(resident);
        judge_of(&truth, &report)
    };
    assert_eq!(judge(4096, 4096), Vec::<String>::new());
    assert!(judge(12_288, 4096).iter().any(|w| w.contains("8192 at most")));
    assert!(judge(4096, 8192).iter().any(|w| w.contains("site_a of 7 resident: 8192")));
}

#[test]
fn a_site_mapped_before_anybody_watched_needs_no_name() {
    let mut report = good();
    report["processes"][0]["owners"][0]["stack"] = json!([]);
    report["processes"][0]["owners"][0]["kind"] = json!("preexisting");
    let report = Report::parse(report.to_string().as_bytes()).unwrap();
    assert!(!phase(&truth(), &report, &Unseen::new(), None).is_empty());
    let unseen = Unseen::from(["site_a".to_owned()]);
    assert_eq!(phase(&truth(), &report, &unseen, None), Vec::<String>::new());
}

#[test]
fn a_named_owner_outside_its_bounds_is_wrong_however_sure_it_is() {
    let truth: Phase = serde_json::from_value(json!({"phase": "p", "owners": [
        {"about": "owner", "pid": 7, "name": "cache", "resident": 4096}]}))
    .unwrap();
    let judge = |lo: u64, hi: u64| {
        let mut report = good();
        let told = json!({"bytes": lo, "evidence": "inferred", "lo": lo, "hi": hi});
        report["processes"][0]["owners"] = json!([{"id": "4", "kind": "named", "name": "[anon:cache]",
            "stack": [], "reserved": told, "resident": told}]);
        bounds(&truth, &Report::parse(report.to_string().as_bytes()).unwrap())
    };
    assert!(judge(0, 4096).is_empty() && judge(4096, 4096).is_empty());
    assert!(judge(0, 4095)[0].contains("cache of 7 resident"));
    assert_eq!(judge(4097, 5000).len(), 1);
}
