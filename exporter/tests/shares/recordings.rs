//! Recorded values, in a process of our own: the recordings hold samples, but not the mappings that they fell into.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memprov_ledger::evidence::{Access, Served};

use crate::rig::{BEGIN, apply, fuser, load, row, told};

/// A recording, or `None` with the reason said.
fn recording(name: &str) -> Option<String> {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/perfdata").join(name);
    let found = std::fs::read_to_string(&path).ok();
    if found.is_none() {
        println!("skipped: no {}", path.display());
    }
    found
}

/// A line of a 4-node machine: `<second>: NODE <page> to <cpu> : <n>` (numatop).
fn transfers(text: &str) -> impl Iterator<Item = (u64, u32, u32, u64)> + '_ {
    text.lines().filter_map(|line| {
        let (second, rest) = line.split_once(": NODE ")?;
        let (from, rest) = rest.split_once(" to ")?;
        let (to, n) = rest.split_once(" : ")?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let node = |text: &str| text.trim().parse::<u32>().ok();
        Some((number(second)?, node(from)?, node(to)?, number(n)?))
    })
}

#[test]
fn the_matrix_of_parsec_has_a_remote_share_of_32_7_percent() {
    let Some(text) = recording("akshay-numatop/debugq.parsec-raytrace.txt") else { return };
    let mut fuser = fuser(&["raytrace"]);
    let (mut seconds, mut samples) = (BTreeMap::<u64, u64>::new(), 0);
    for (second, page, cpu, n) in transfers(&text) {
        for _ in 0..n {
            let nth = seconds.entry(second).or_default();
            *nth += 1;
            let at = BEGIN + second * 1_000_000_000 + *nth * 10_000;
            let (page_node, cpu_node) = (Some(page), Some(cpu));
            let sample = load(0, at, 252, Served::NotAvailable);
            apply(&mut fuser, Access { page_node, cpu_node, ..sample });
            samples += 1;
        }
    }
    assert_eq!(samples, 13_858);
    let told = told(&fuser);
    let placement = &row(&told, "raytrace").sums.methods["placement"];
    // What was sampled since the start; the window holds the last minutes of it only.
    let weights = &placement.count.weights;
    let (local, remote) = (weights["local"], weights["remote"]);
    assert_eq!((local, remote), (9_327, 4_531));
    let share = remote as f64 / (local + remote) as f64;
    println!("remote: {:.1} %", 100.0 * share);
    assert_eq!(format!("{:.1}", 100.0 * share), "32.7");
}

#[test]
fn shares_of_variables_of_lulesh_are_those_of_the_table() {
    let Some(samples) = recording("memaxes-lulesh/samples.csv") else { return };
    let Some(oracle) = recording("memaxes-lulesh/samples.oracle-per-variable.csv") else { return };
    let rows = |text: &str| -> Vec<Vec<String>> {
        let cells = |line: &str| line.split(',').map(str::to_owned).collect();
        text.lines().skip(1).map(cells).collect()
    };
    let oracle = rows(&oracle);
    let names: Vec<&str> = oracle.iter().map(|row| row[0].as_str()).collect();
    let mut fuser = fuser(&names);
    let samples = rows(&samples);
    let time = |row: &[String]| u64::from_str_radix(&row[3], 16).unwrap();
    let first = samples.iter().map(|row| time(row)).min().unwrap();
    let mut sorted: Vec<&Vec<String>> = samples.iter().collect();
    sorted.sort_by_key(|row| time(row));
    for sample in sorted {
        let number = names.iter().position(|name| *name == sample[0]).unwrap();
        let at = BEGIN + (time(sample) - first) / 10;
        let cpu_node = sample[8].parse().ok();
        // Sources 6 and 9 of the raw encoding are caches of the other socket (Sandy Bridge-EP); 0 is not told.
        let served = match sample[6].parse::<u64>().unwrap() & 15 {
            1 => Served::Level1,
            2 => Served::LineFillBuffer,
            3 => Served::Level2,
            4 => Served::Level3,
            6 | 9 => Served::RemoteCache { hops: None },
            _ => Served::NotAvailable,
        };
        let access = load(number, at, sample[5].parse().unwrap(), served);
        apply(&mut fuser, Access { cpu_node, ..access });
    }
    let told = told(&fuser);
    let total = &told.totals["loads"];
    assert_eq!((total.samples["attributed"], total.time()), (15_676, 1_022_618));
    for line in &oracle {
        let sums = &row(&told, &line[0]).sums;
        let number = |column: usize| line[column].parse::<f64>().unwrap();
        assert_eq!(sums.timed as f64, number(1), "{}", line[0]);
        assert_eq!(sums.time() as f64, number(3), "{}", line[0]);
        let share = sums.time() as f64 / total.time() as f64;
        assert!((share - number(4)).abs() < 1e-6, "{}: {share}", line[0]);
        assert_eq!(sums.latency.as_ref().unwrap().max, Some(number(6)), "{}", line[0]);
    }
}

#[test]
fn the_one_impossible_latency_is_flagged_and_in_no_sum() {
    let Some(text) = recording("akshay-numatop/debugq.parsec-raytrace.samples.csv") else { return };
    let mut fuser = fuser(&["raytrace"]);
    let (mut cycles, mut kernel, mut user) = (0u64, 0u64, 0u64);
    for (number, line) in text.lines().skip(1).enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let latency: u64 = cells[5].parse().unwrap();
        let at = BEGIN + cells[0].parse::<u64>().unwrap() * 1_000_000_000 + number as u64;
        let address = u64::from_str_radix(cells[6].trim_start_matches("0x"), 16).unwrap();
        let sample = load(0, at, latency, Served::NotAvailable);
        match address >> 63 {
            1 => {
                kernel += 1;
                apply(&mut fuser, Access { address: Some(address), ..sample });
            }
            _ => {
                user += 1;
                apply(&mut fuser, sample);
            }
        }
        cycles += if latency == 38_882_752 { 0 } else { latency };
    }
    let told = told(&fuser);
    let total = &told.totals["loads"];
    assert_eq!((kernel + user, total.samples["implausible"]), (14_798, 1));
    assert_eq!((total.samples["kernel"], total.samples["attributed"]), (kernel, user - 1));
    assert_eq!(total.time(), cycles);
    assert!(total.latency.as_ref().unwrap().max.unwrap() < 1_048_576.0);
}
