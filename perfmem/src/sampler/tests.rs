//! What a sampler does when CPUs come and lists cannot be read: with the events of this kernel, below roots of our own.

use std::fs;
use std::path::Path;

use memprov_ledger::evidence::{Evidence, Gap, Population, Stream};
use memprov_ledger::identity::Tgid;

use super::cpu::Whose;
use super::period::Period;
use super::sampled::{Event, Sampled};
use super::{LOOK, Ran, SampleError, Sampler};
use crate::clock::now;
use crate::pmu::MemEvent;
use crate::words::{DescriptionError, Words};

/// A root where these CPUs are online.
fn root(online: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    bring(root.path(), online);
    root
}

fn bring(root: &Path, online: &str) {
    let cpus = root.join("sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    fs::write(cpus.join("online"), online).unwrap();
}

/// A sampler there, where two CPUs can be had and sampled.
fn sampler(root: &Path) -> Option<Sampler> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: one CPU");
        return None;
    }
    match Sampler::open(root, 0, 7) {
        Ok(sampler) => Some(sampler),
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn faults(number: u64) -> Sampled {
    Sampled::new("faults", Words::software(number), Period::Fixed(1 << 20), Population::Faults)
}

/// Has this thread take so many nanoseconds of one CPU.
fn spin(cpu: usize, nanos: i64) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus).unwrap();
    let taken = || {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        clock.tv_sec * 1_000_000_000 + clock.tv_nsec
    };
    let end = taken() + nanos;
    while taken() < end {
        std::hint::spin_loop();
    }
}

/// Gaps of a look at what changed.
fn look(sampler: &mut Sampler) -> usize {
    let mut out = Vec::new();
    sampler.look_around(now().after(LOOK), &mut out);
    let gap = |e: &&Evidence| {
        matches!(e, Evidence::Gap(Gap { stream: Stream::Accesses, lost: 0, whose: None, .. }))
    };
    out.iter().filter(gap).count()
}

fn open_on(sampler: &Sampler, cpu: u32) -> Option<usize> {
    let all = |cpu: &super::Cpu| {
        cpu.events.values().filter(|open| matches!(open.whose, Whose::All(_))).count()
    };
    sampler.cpus.get(&cpu).map(all)
}

#[test]
fn a_cpu_that_came_is_tried_until_all_events_open_there_and_is_a_gap_meanwhile() {
    let root = root("0");
    let Some(mut sampler) = sampler(root.path()) else { return };
    sampler.sample(faults(5)).unwrap();
    sampler.sample(faults(6)).unwrap();
    // As where somebody else has the counter: no kernel has a software event of this number.
    let good = std::mem::replace(&mut sampler.state.all[1].event, faults(9999));
    bring(root.path(), "0-1");
    assert_eq!((look(&mut sampler), open_on(&sampler, 1)), (1, None));
    assert_eq!((look(&mut sampler), open_on(&sampler, 1)), (1, None));
    sampler.state.all[1].event = good;
    assert_eq!((look(&mut sampler), open_on(&sampler, 1)), (1, Some(2)));
    assert_eq!((look(&mut sampler), open_on(&sampler, 0)), (0, Some(2)));
    bring(root.path(), "0");
    assert_eq!((look(&mut sampler), open_on(&sampler, 1)), (1, None));
}

#[test]
fn while_the_list_of_cpus_cannot_be_read_the_gap_of_one_that_came_grows() {
    let root = root("0");
    let Some(mut sampler) = sampler(root.path()) else { return };
    let last = now();
    let mut out = Vec::new();
    sampler.look_around(last, &mut out);
    fs::remove_file(root.path().join("sys/devices/system/cpu/online")).unwrap();
    sampler.look_around(last.after(LOOK), &mut out);
    sampler.look_around(last.after(2 * LOOK), &mut out);
    assert_eq!(out, []);
    bring(root.path(), "0-1");
    sampler.look_around(last.after(3 * LOOK), &mut out);
    assert!(matches!(&out[..], [Evidence::Gap(gap)] if gap.when.begin == last), "{last:?} {out:?}");
}

#[test]
fn a_process_is_forgotten_when_it_is_gone_and_not_when_its_threads_cannot_be_listed() {
    let root = root("0");
    let Some(mut sampler) = sampler(root.path()) else { return };
    let own = Tgid(std::process::id());
    let process = root.path().join(format!("proc/{}", own.0));
    let task = process.join("task");
    fs::create_dir_all(task.join(rustix::thread::gettid().to_string())).unwrap();
    sampler.watch(own, &[faults(5)].into()).unwrap();
    fs::rename(&task, process.join("hidden")).unwrap();
    fs::write(&task, "no directory").unwrap();
    look(&mut sampler);
    assert_eq!(sampler.watched().collect::<Vec<_>>(), [own]);
    fs::remove_file(&task).unwrap();
    look(&mut sampler);
    assert_eq!(sampler.watched().count(), 0);
    assert!(sampler.ids().next().is_none());
}

#[test]
fn an_event_of_one_kind_of_core_is_opened_on_the_cpus_that_have_it() {
    let root = root("0-1");
    let pmu = root.path().join("sys/bus/event_source/devices/cpu_atom");
    for (name, text) in [("type", "1"), ("format/event", "config:0-7"), ("cpus", "1\n")] {
        let path = pmu.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir_all(pmu.join("events")).unwrap();
    fs::write(pmu.join("events/mem-stores"), "event=5").unwrap();
    let event = MemEvent { device: "cpu_atom".to_owned(), event: Some("mem-stores") };
    let described = || Sampled::memory(root.path(), &event, 1);
    let stores = described().unwrap();
    assert_eq!(stores.cpus, Some([1].into()));
    fs::write(pmu.join("cpus"), "\n").unwrap();
    let offline = described().unwrap();
    assert_eq!(offline.trial().unwrap_err().raw_os_error(), Some(crate::errno::ENODEV));
    fs::write(pmu.join("cpus"), "some").unwrap();
    assert!(matches!(described(), Err(DescriptionError::Text { .. })));
    let Some(mut sampler) = sampler(root.path()) else { return };
    // What stands for it is in software, where nothing is precise.
    let stores = Sampled { cpus: stores.cpus, ..faults(5) };
    stores.trial().unwrap();
    sampler.sample(stores).unwrap();
    assert_eq!((open_on(&sampler, 0), open_on(&sampler, 1)), (Some(0), Some(1)));
    let nowhere = Sampled { cpus: offline.cpus, ..faults(5) };
    assert!(matches!(sampler.sample(nowhere), Err(SampleError::Nowhere { .. })));
}

#[test]
fn times_of_a_thread_say_on_which_cpu_it_was_and_times_of_a_cpu_that_an_event_ran() {
    let root = root("0-1");
    let Some(mut sampler) = sampler(root.path()) else { return };
    sampler.sample(faults(5)).unwrap();
    let measured = std::thread::spawn(|| {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let mut events = [0, 1].map(|cpu| {
            let mut event = faults(5).open(cpu, Some(thread), 1 << 20).unwrap();
            event.enable().unwrap();
            event
        });
        spin(1, 20_000_000);
        events.each_mut().map(|event| event.ran().unwrap())
    });
    let [elsewhere, here] = measured.join().unwrap();
    println!("on another CPU {elsewhere:?}, on its own {here:?}");
    assert!(here.running >= 15_000_000, "{here:?}");
    // It was enabled for all of it, and could not run: no turns of anybody.
    assert!(elsewhere.running < here.running / 2, "{elsewhere:?} {here:?}");
    let mut out = Vec::new();
    sampler.time(&mut out);
    let (name, ran) = sampler.ran().next().unwrap();
    assert_eq!((name, ran.took_turns(), out.len()), ("faults", false, 0));
    assert!(ran.enabled >= 2 * 20_000_000, "two CPUs: {ran:?}");
    // As if it had run for a part of the time that comes.
    for open in sampler.cpus.values_mut().flat_map(|cpu| cpu.events.values_mut()) {
        open.ran.enabled = 0;
    }
    sampler.time(&mut out);
    assert!(sampler.ran().next().is_some_and(|(_, ran)| ran.took_turns()));
    assert!(matches!(&out[..], [Evidence::Gap(Gap { lost: 0, whose: None, .. })]), "{out:?}");
}

/// Hardware breakpoints are given away for good: one more than there are is refused, and none of them waits for its turn.
#[test]
fn breakpoints_take_no_turns() {
    // Arm can have 16, x86 has four.
    static WORDS: [u64; 17] = [0; 17];
    let root = root("0-1");
    if sampler(root.path()).is_none() {
        return;
    }
    let measured = std::thread::spawn(|| {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        // Their times go on where the thread is, which is there from here on.
        spin(1, 0);
        let (mut opened, mut refused) = (Vec::new(), Vec::new());
        for word in &WORDS {
            let words = Words::breakpoint(std::ptr::from_ref(word).addr() as u64, 8);
            let event = Sampled { words, ..faults(5) };
            match event.open(1, Some(thread), 1) {
                Ok(mut event) => {
                    event.enable().unwrap();
                    opened.push(event);
                }
                Err(error) => refused.push(error.raw_os_error()),
            }
        }
        let before: Vec<_> = opened.iter_mut().map(|event| event.ran().unwrap()).collect();
        spin(1, 20_000_000);
        let since = |(event, before): (&mut Event, Ran)| event.ran().unwrap().since(before);
        let ran: Vec<_> = opened.iter_mut().zip(before).map(since).collect();
        (ran, refused)
    });
    let (ran, refused) = measured.join().unwrap();
    println!("{} opened: {ran:?}; {} refused", ran.len(), refused.len());
    assert!(refused.iter().all(|errno| *errno == Some(crate::errno::ENOSPC)), "{refused:?}");
    assert_eq!(ran.is_empty(), refused.len() == WORDS.len());
    assert!(ran.is_empty() || !refused.is_empty(), "no machine has so many: {ran:?}");
    assert!(ran.iter().all(|ran| ran.running > 0 && !ran.took_turns()), "{ran:?}");
}
