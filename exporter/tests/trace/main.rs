//! Laws of the trace format: what is written reads back, what is broken costs only itself.

mod document;
mod generate;
mod redaction;

use std::io::{BufReader, Cursor, Read, Write};
use std::path::Path;

use memprov::trace::{Form, Header, Line, MAX_LINE, Problem, Reader, TraceError, Writer};
use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::StackId;
use memprov_ledger::stack::{Stack, StackEnd};
use memprov_ledger::time::MonoTime;
use proptest::prelude::{ProptestConfig, proptest};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use proptest::{collection, prop_assert, prop_assert_eq};

const END: Line = Line::End { when: MonoTime(9) };

fn write(form: Form, header: &Header, lines: &[Line]) -> Vec<u8> {
    let mut writer =
        Writer::new(Vec::new(), form, Path::new("t"), header).expect("memory takes all");
    for line in lines {
        writer.write(line).expect("generated lines are sound");
    }
    writer.finish().expect("memory takes all")
}

/// Whole lines, then what was wrong.
fn read(bytes: &[u8]) -> Result<(Vec<Line>, Vec<TraceError>), TraceError> {
    let (mut lines, mut errors) = (Vec::new(), Vec::new());
    for line in Reader::new(bytes, Path::new("t"))? {
        match line {
            Ok(line) => lines.push(line),
            Err(e) => errors.push(e),
        }
    }
    Ok((lines, errors))
}

/// A trace in text, of a header and these lines.
fn text(lines: &[&str]) -> Vec<u8> {
    let mut bytes = write(Form::Plain, &generate::header(), &[]);
    for line in lines {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// The same arbitrary lines in every run.
fn sample(count: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = collection::vec(generate::line(generate::text()), count)
        .new_tree(&mut TestRunner::deterministic())
        .expect("nothing is filtered out")
        .current();
    lines.push(END);
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_trace_reads_back_as_it_was_written(
        mut lines in collection::vec(generate::line(generate::text()), 0..20)
    ) {
        lines.push(END);
        for form in [Form::Plain, Form::Zstd] {
            let bytes = write(form, &generate::header(), &lines);
            let reader = Reader::new(&*bytes, Path::new("t")).unwrap();
            prop_assert_eq!(reader.header(), &generate::header());
            let (again, errors) = read(&bytes).unwrap();
            prop_assert!(errors.is_empty(), "{errors:?}");
            prop_assert_eq!(&again, &lines);
            prop_assert_eq!(&write(form, &generate::header(), &again), &bytes);
        }
    }
}

#[test]
fn a_trace_that_is_cut_anywhere_gives_its_whole_lines_and_says_that_it_was_cut() {
    let lines = sample(12);
    for form in [Form::Plain, Form::Zstd] {
        let bytes = write(form, &generate::header(), &lines);
        // Without its last newline a plain trace is still whole.
        let whole = bytes.len() - usize::from(form == Form::Plain);
        for cut in 0..whole {
            let Ok((got, errors)) = read(&bytes[..cut]) else { continue };
            assert!(lines.starts_with(&got), "{cut}");
            // Of a zstd frame only the checksum may be missing.
            assert!(got.len() < lines.len() || form == Form::Zstd, "{cut}");
            assert_eq!(errors.len(), 1, "{cut}: {errors:?}");
            assert!(matches!(errors[0].problem, Problem::Truncated), "{cut}: {errors:?}");
        }
        assert!(read(&bytes[..whole]).unwrap().1.is_empty());
    }
}

#[test]
fn what_was_flushed_is_readable_though_the_recorder_never_finishes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["t.jsonl", "t.jsonl.zst"] {
        let path = dir.path().join(name);
        let mut writer = Writer::create(&path, &generate::header()).unwrap();
        let lines = sample(8);
        for line in &lines[..8] {
            writer.write(line).unwrap();
        }
        writer.flush().unwrap();
        let got: Vec<_> = Reader::open(&path).unwrap().collect();
        let (last, whole) = got.split_last().unwrap();
        assert!(whole.iter().map(|l| l.as_ref().unwrap()).eq(&lines[..8]));
        assert!(matches!(last, Err(TraceError { problem: Problem::Truncated, .. })), "{last:?}");
    }
}

#[test]
fn the_reader_tells_zstd_by_its_bytes_and_the_writer_by_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let (zst, plain) = (dir.path().join("t.zst"), dir.path().join("t"));
    Writer::create(&zst, &generate::header()).unwrap().finish().unwrap();
    assert!(!std::fs::read(&zst).unwrap().starts_with(b"{"));
    std::fs::rename(&zst, &plain).unwrap();
    assert_eq!(Reader::open(&plain).unwrap().header(), &generate::header());
}

#[test]
fn a_broken_line_costs_only_itself_and_is_reported_with_its_number() {
    let gap = r#"{"kind":"gap","when":{"begin":1,"end":2},"stream":"scans","lost":0}"#;
    let end = r#"{"kind":"end","when":9}"#;
    for broken in [
        "",
        "{",
        "null",
        "[]",
        r#"{"kind":7}"#,
        r#"{"when":9}"#,
        r#"{"kind":"gap"}"#,
        "\u{feff}{}",
        r#"{"kind":"gap","when":{"begin":2,"end":1},"stream":"scans","lost":0}"#,
        r#"{"kind":"gap","when":{"begin":-1,"end":1},"stream":"scans","lost":0}"#,
        r#"{"kind":"gap","when":{"begin":0,"end":1},"stream":"scans","lost":18446744073709551616}"#,
        r#"{"kind":"gap","when":{"begin":0,"end":1},"stream":"tears","lost":1}"#,
        r#"{"kind":"lifecycle","when":{"begin":0,"end":1},"tgid":1,"change":{"unmap":{"extent":"2-1"}}}"#,
        r#"{"kind":"lifecycle","when":{"begin":0,"end":1},"tgid":1,"change":{"unmap":{"extent":"+1-2"}}}"#,
        r#"{"kind":"lifecycle","when":{"begin":0,"end":1},"tgid":1,"change":{"unmap":{"extent":"1"}}}"#,
        r#"{"kind":"fault","when":{"begin":0,"end":1},"tgid":1,"address":"0","probability":0.0,"stack":"none"}"#,
        r#"{"kind":"fault","when":{"begin":0,"end":1},"tgid":1,"address":"0","probability":1.5,"stack":"none"}"#,
        r#"{"kind":"fault","when":{"begin":0,"end":1},"tgid":1,"address":"0","probability":1e999,"stack":"none"}"#,
        r#"{"kind":"fault","when":{"begin":0,"end":1},"tgid":1,"address":"0","probability":0.5,"stack":{"known":0}}"#,
        r#"{"kind":"stack","id":0,"frames":[],"end":"root"}"#,
        r#"{"kind":"header","schema":"memprov.trace/1"}"#,
    ] {
        let (lines, errors) = read(&text(&[gap, broken, gap, end])).unwrap();
        assert_eq!(lines.len(), 3, "{broken}");
        assert_eq!(errors.len(), 1, "{broken}");
        assert_eq!(errors[0].line, 3, "{broken}");
    }
}

#[test]
fn what_the_reader_would_refuse_the_writer_does_not_write() {
    let mut writer =
        Writer::new(Vec::new(), Form::Plain, Path::new("t"), &generate::header()).unwrap();
    let stack = std::sync::Arc::new(Stack { frames: Vec::new(), end: StackEnd::Root });
    let refused = writer.write(&Line::Stack { id: StackId(0), stack: stack.clone() });
    assert!(matches!(refused, Err(TraceError { line: 2, problem: Problem::Unsound(_), .. })));
    writer.write(&Line::Stack { id: StackId(1), stack }).unwrap();
    writer.write(&END).unwrap();
    let (lines, errors) = read(&writer.finish().unwrap()).unwrap();
    assert_eq!((lines.len(), errors.len()), (2, 0));
}

#[test]
fn unknown_fields_are_ignored_and_unknown_kinds_counted() {
    let bytes = text(&[
        r#"{"kind":"weather","rain":[1,{"a":null}]}"#,
        r#"{"mood":{"kind":"gap"},"kind":"gap","stream":"scans","lost":3,"when":{"end":2,"x":0,"begin":1}}"#,
        r#"{"kind":"weather"}"#,
        r#"{"kind":"end","when":9}"#,
    ]);
    let mut reader = Reader::new(&*bytes, Path::new("t")).unwrap();
    let gap = reader.next().unwrap().unwrap();
    assert!(matches!(gap, Line::Evidence(Evidence::Gap(g)) if g.lost == 3));
    assert_eq!(reader.next().unwrap().unwrap(), END);
    assert!(reader.next().is_none());
    assert_eq!(reader.unknown(), 2);
}

#[test]
fn what_is_no_trace_is_refused_at_its_first_line() {
    let problem = |bytes: &[u8]| read(bytes).unwrap_err();
    assert!(matches!(problem(b"").problem, Problem::Truncated));
    assert!(matches!(problem(b"\x7fELF\n").problem, Problem::NoHeader(_)));
    assert!(matches!(problem(b"{\"kind\":\"end\",\"when\":9}\n").problem, Problem::NoHeader(_)));
    let other = b"{\"kind\":\"header\",\"schema\":\"memprov.trace/2\"}\n";
    assert!(matches!(problem(other).problem, Problem::Schema(s) if s == "memprov.trace/2"));
    let mut header = generate::header();
    header.sample.probability = 1.5;
    let unsound = problem(&write(Form::Plain, &header, &[])).problem;
    assert!(matches!(unsound, Problem::Unsound(_)), "{unsound:?}");
    assert!(matches!(problem(b"\x28\xb5\x2f\xfdrubbish").problem, Problem::Read(_)));
    let missing = Reader::open(Path::new("/nonexistent/t")).err().unwrap();
    assert_eq!(missing.to_string(), "trace /nonexistent/t, line 0");
}

#[test]
fn nothing_follows_the_end() {
    let end = r#"{"kind":"end","when":9}"#;
    let (lines, errors) = read(&text(&[end, end, end])).unwrap();
    assert_eq!(lines, [END]);
    assert!(matches!(&*errors, [TraceError { line: 3, problem: Problem::BehindEnd, .. }]));
}

#[test]
fn a_line_beyond_the_limit_is_skipped_and_the_next_one_read() {
    let long = std::io::repeat(b'x').take(MAX_LINE as u64 + 1);
    let start = Cursor::new(text(&[]));
    let input = start.chain(long).chain(Cursor::new(b"\n{\"kind\":\"end\",\"when\":9}\n"));
    let mut reader = Reader::new(BufReader::new(input), Path::new("t")).unwrap();
    let refused = reader.next().unwrap().unwrap_err();
    assert!(
        matches!(refused, TraceError { line: 2, problem: Problem::TooLong, .. }),
        "{refused:?}"
    );
    assert_eq!(reader.next().unwrap().unwrap(), END);
    assert!(reader.next().is_none());
}

#[test]
fn a_frame_that_grows_without_end_takes_one_line_of_memory() {
    let mut bomb = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    bomb.write_all(&text(&[])).unwrap();
    std::io::copy(&mut std::io::repeat(b' ').take(512 << 20), &mut bomb).unwrap();
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let mut reader = Reader::new(&*bomb, Path::new("t")).unwrap();
    assert!(matches!(reader.next().unwrap().unwrap_err().problem, Problem::TooLong));
    assert!(matches!(reader.next().unwrap().unwrap_err().problem, Problem::Truncated));
    assert!(reader.next().is_none());
}

#[test]
fn a_short_line_cannot_claim_more_pages_than_a_host_has() {
    let line = |pages: &str| {
        format!(
            r#"{{"kind":"residency","when":{{"begin":1,"end":2}},"tgid":1,"start":1,"comm":"","parent":1,"before":{{}},"maps":[],"pages":{pages},"after":{{}}}}"#
        )
    };
    let (lines, errors) = read(&text(&[&line("[[16,1048576,1]]")])).unwrap();
    assert_eq!((lines.len(), errors.len()), (1, 1));
    for pages in [
        "[[0,4294967297,1]]",
        "[[281474976710656,1,1]]",
        "[[0,1,64]]",
        "[[0,18446744073709551615,1]]",
    ] {
        let (lines, errors) = read(&text(&[&line(pages)])).unwrap();
        assert!(lines.is_empty(), "{pages}");
        assert!(matches!(errors[0].problem, Problem::Json(_)), "{pages}");
    }
}

#[test]
fn no_damage_to_a_trace_makes_the_reader_or_the_redactor_panic() {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as usize % below
    };
    let mut survived = 0;
    for form in [Form::Plain, Form::Zstd] {
        let good = write(form, &generate::header(), &sample(24));
        for _ in 0..2000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes[at] = b"0123456789-\"{}[],:"[random(18)],
                    2 => {
                        let end = (at + random(64)).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        let to = random(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let Ok((lines, _)) = read(&bytes) else { continue };
            let mut redactor = memprov::trace::Redactor::with_key([7; 16], |_| false);
            survived += lines.into_iter().map(|line| redactor.line(line)).count();
        }
    }
    assert!(survived > 10_000, "{survived}");
}
