//! `docs/TRACE.md` says what the code does.

use std::collections::BTreeSet;
use std::path::Path;

use memprov::trace::{Form, Line, Reader};
use memprov_ledger::evidence::{Change, Evidence};

/// The lines of all examples, in order.
fn examples() -> String {
    let document = include_str!("../../../docs/TRACE.md");
    let blocks = document.split("```jsonl\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("it is closed").0).collect()
}

/// The name under which the document lists a line. Exhaustive, so that a new kind does not compile without one.
fn kind(line: &Line) -> &'static str {
    match line {
        Line::Module { .. } => "module",
        Line::Stack { .. } => "stack",
        Line::Name { .. } => "name of a function",
        Line::Forget { .. } => "forget",
        Line::Watermark { .. } => "watermark",
        Line::End { .. } => "end",
        Line::Evidence(Evidence::Fault(_)) => "fault",
        Line::Evidence(Evidence::Access(_)) => "access",
        Line::Evidence(Evidence::Activity(_)) => "activity",
        Line::Evidence(Evidence::Frames(_)) => "frames",
        Line::Evidence(Evidence::Placed(_)) => "placed",
        Line::Evidence(Evidence::Residency(_)) => "residency",
        Line::Evidence(Evidence::Total(_)) => "total",
        Line::Evidence(Evidence::Recall(_)) => "recall",
        Line::Evidence(Evidence::Charge(_)) => "charge",
        Line::Evidence(Evidence::Gap(_)) => "gap",
        Line::Evidence(Evidence::Lifecycle(e)) => match e.change {
            Change::Map { .. } => "map",
            Change::Unmap { .. } => "unmap",
            Change::Remap { .. } => "remap",
            Change::Brk { .. } => "brk",
            Change::Attach { .. } => "attach",
            Change::Detach { .. } => "detach",
            Change::Name { .. } => "name of a mapping",
            Change::Fork { .. } => "fork",
            Change::Exec => "exec",
            Change::Exit => "exit",
            Change::Vma { .. } => "vma",
            Change::Doubt { .. } => "doubt",
        },
    }
}

#[test]
fn the_examples_are_one_trace_with_every_kind_and_are_written_as_they_read() {
    let text = examples();
    let mut reader = Reader::new(text.as_bytes(), Path::new("docs/TRACE.md")).unwrap();
    let header = reader.header().clone();
    let lines: Vec<Line> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reader.unknown(), 0);
    let kinds: BTreeSet<_> = lines.iter().map(kind).collect();
    assert_eq!(kinds.len(), 28, "{kinds:?}");
    let written = String::from_utf8(super::write(Form::Plain, &header, &lines)).unwrap();
    for (written, example) in written.lines().zip(text.lines()) {
        assert_eq!(written, example);
    }
    assert_eq!(written.len(), text.len());
}

#[test]
fn the_examples_show_every_field_that_is_written() {
    fn fields(value: &serde_json::Value, into: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (name, value) in map {
                    into.insert(name.clone());
                    fields(value, into);
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| fields(v, into)),
            _ => {}
        }
    }
    let written = super::write(Form::Plain, &super::generate::header(), &super::sample(8000));
    let mut names = BTreeSet::new();
    for line in String::from_utf8(written).unwrap().lines() {
        fields(&serde_json::from_str(line).unwrap(), &mut names);
    }
    let mut shown = BTreeSet::new();
    for line in examples().lines() {
        fields(&serde_json::from_str(line).unwrap(), &mut shown);
    }
    assert_eq!(names, shown);
}
