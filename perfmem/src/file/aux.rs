//! Hardware traces inside a recording: those of Arm's SPE, in pieces between the records (`PERF_RECORD_AUXTRACE`).
//!
//! A trace tells the time of a timer, which `PERF_RECORD_TIME_CONV` turns into that of the records, and at most the thread.
//! The process comes from what records say of threads, or from which task ran on the CPU then. A piece can be older than
//! the round that it lies in: a recording with traces is put in order by time alone.

use std::collections::HashMap;
use std::io::BufRead;

use memprov_ledger::evidence::Access;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

use super::bytes::Bytes;
use super::{Held, Recording, SIZE};
use crate::evidence::{Kind, Place, operation};
use crate::record::{Body, ParseError, Record};
use crate::spe::{Broken, Operations};

/// `PERF_AUXTRACE_ARM_SPE` (`tools/perf/util/auxtrace.h`).
const ARM_SPE: u32 = 4;
/// Bytes of the first version of what perf says of SPE.
const FIRST: usize = 16;
/// Threads and CPUs that are known at most.
const THREADS: usize = 1 << 20;
const CPUS: usize = 1 << 13;

/// From a timer to nanoseconds of the records (`struct perf_record_time_conv`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    shift: u32,
    mult: u64,
    zero: u64,
    /// A counter of fewer bits: a value that it had, and its bits.
    short: Option<(u64, u64)>,
}

impl Conversion {
    pub(super) fn read(fields: &mut Bytes<'_>) -> Option<Self> {
        let (shift, mult, zero) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let shift = u32::try_from(shift).ok().filter(|shift| *shift < 64)?;
        let wide = fields.u64().zip(fields.u64());
        let capable = fields.take(2).is_some_and(|bytes| bytes.get(1) == Some(&1));
        Some(Self { shift, mult, zero, short: wide.filter(|_| capable) })
    }

    /// By the kernel's rule (`include/uapi/linux/perf_event.h`, `time_zero`).
    fn nanos(self, cycles: u64) -> u64 {
        let cycles = match self.short {
            Some((then, mask)) => then.wrapping_add(cycles.wrapping_sub(then) & mask),
            None => cycles,
        };
        let product = (u128::from(cycles) * u128::from(self.mult)) >> self.shift;
        #[expect(clippy::cast_possible_truncation, reason = "the kernel's clock wraps, too")]
        let product = product as u64;
        self.zero.wrapping_add(product)
    }
}

/// What is known of traces.
#[derive(Debug, Default)]
pub(super) struct Aux {
    /// The number of the PMU.
    pmu: u32,
    /// Main id registers by CPU.
    midrs: HashMap<u32, u64>,
    /// Processes by thread.
    threads: HashMap<u32, u32>,
    /// Process and thread that run on each CPU.
    running: HashMap<u32, (u32, u32)>,
    /// Time of the newest operation of each CPU.
    newest: HashMap<u32, MonoTime>,
}

impl Aux {
    /// Reads `PERF_RECORD_AUXTRACE_INFO`; `None`: the traces are of another kind.
    pub(super) fn read(fields: &mut Bytes<'_>) -> Option<Option<Self>> {
        let (kind, _reserved) = (fields.u32()?, fields.u32()?);
        if kind != ARM_SPE {
            return Some(None);
        }
        let mut aux = Self::default();
        if fields.0.len() <= FIRST {
            aux.pmu = u32::try_from(fields.u64()?).ok()?;
            return Some(Some(aux));
        }
        let (_version, words) = (fields.u64()?, fields.u64()?);
        let (pmu, _cpus) = (fields.u64()?, fields.u64()?);
        aux.pmu = u32::try_from(pmu).unwrap_or(u32::MAX);
        fields.take(usize::try_from(words.checked_sub(4)?.checked_mul(8)?).ok()?)?;
        while let (Some(_magic), Some(cpu), Some(count)) =
            (fields.u64(), fields.u64(), fields.u64())
        {
            let parameters = fields.take(usize::try_from(count.checked_mul(8)?).ok()?)?;
            let cpu = u32::try_from(cpu).ok().filter(|_| aux.midrs.len() < CPUS);
            if let Some((cpu, midr)) = cpu.zip(Bytes(parameters).u64()) {
                aux.midrs.insert(cpu, midr);
            }
        }
        Some(Some(aux))
    }

    /// Learns from a record which process a thread is of.
    pub(super) fn learn(&mut self, body: &Body<'_>) {
        let (pid, tid) = match body {
            Body::Comm { pid, tid, .. } => (*pid, *tid),
            Body::Fork(task) => (task.pid, task.tid),
            Body::Mmap2(mapping) => (mapping.pid, mapping.tid),
            _ => return,
        };
        if self.threads.len() < THREADS || self.threads.contains_key(&tid) {
            self.threads.insert(tid, pid);
        }
    }

    /// The CPU and the task that goes on there, where a record tells it.
    pub(super) fn switch(record: &Record<'_>) -> Option<(u32, (u32, u32))> {
        let begins = matches!(record.body, Body::Switch { out: false });
        record.trailer.cpu.zip(record.trailer.task).filter(|_| begins)
    }

    /// A task goes on; events come in order of their time.
    pub(super) fn runs(&mut self, cpu: u32, task: (u32, u32)) {
        if self.running.len() < CPUS || self.running.contains_key(&cpu) {
            self.running.insert(cpu, task);
        }
    }

    /// Whose an access is, as far as that is known.
    pub(super) fn attribute(&self, access: &mut Access) {
        let running = access.cpu.and_then(|cpu| self.running.get(&cpu));
        let task = match (access.tid, running) {
            (Some(tid), _) => self.threads.get(&tid).map(|pid| (*pid, tid)),
            (None, running) => running.copied(),
        };
        if let Some((pid, tid)) = task {
            (access.tgid, access.tid) = (Some(Tgid(pid)).filter(|_| pid != u32::MAX), Some(tid));
        }
    }
}

impl<R: BufRead> Recording<R> {
    /// A piece of a trace. Returns what is in order now.
    pub(super) fn trace(&mut self, offset: u64) -> Vec<(MonoTime, Held)> {
        let record = std::mem::take(&mut self.record);
        let mut out = Vec::new();
        let mut fields = Bytes(record.get(super::stream::HEAD..).unwrap_or_default());
        if self.piece(&mut fields, offset, &mut out).is_none() {
            let (size, left) = (record.len(), fields.0.len());
            self.broken(offset, ParseError::Size { offset: 0, size, left });
        }
        self.record = record;
        out
    }

    fn piece(
        &mut self,
        fields: &mut Bytes<'_>,
        offset: u64,
        out: &mut Vec<(MonoTime, Held)>,
    ) -> Option<()> {
        let (size, begin, _reference) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (_index, tid, cpu, _reserved) =
            (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let known = |number: u32| Some(number).filter(|number| *number != u32::MAX);
        let cpu = known(cpu);
        let aux = self.aux.as_ref()?;
        let midr = cpu.and_then(|cpu| aux.midrs.get(&cpu).copied()).or(self.about.midr());
        let source = self.events.iter().find(|event| event.attribute.pmu == aux.pmu);
        let kind = source.map_or(Kind::default(), |event| event.kind);
        // perf's clock is not the one that the timer is turned into where another was asked for.
        let clock = self.conversion.filter(|_| self.about.clock.is_none());
        let newest = cpu.and_then(|cpu| aux.newest.get(&cpu).copied());
        // What has no time lies between operations that have one; before the first it can be of any time, whatever rounds
        // have ended.
        let mut since = newest.unwrap_or_default();
        let passed = (fields.0.len() as u64) < size;
        let mut missed = passed.then_some(0);
        for read in Operations::new(fields.0, begin) {
            self.tally.operations += 1;
            let sampled = match read {
                Ok(sampled) => sampled,
                Err(Broken { offset: at }) => {
                    self.broken(offset, ParseError::Trace { offset: at });
                    missed = Some(missed.unwrap_or(0) + 1);
                    continue;
                }
            };
            let when = sampled.time.zip(clock).map(|(time, clock)| MonoTime(clock.nanos(time)));
            let place = |when| Place { when, cpu, midr, nodes: &self.about.nodes };
            let told = operation(&sampled, kind, place(when.unwrap_or_default()));
            if let Some(when) = when {
                let lost = missed.take().map(|samples| Held::missed(since, samples));
                out.extend(lost.into_iter().flat_map(|lost| self.order.push(when, SIZE, lost)));
                since = when;
            }
            match (when, told) {
                (_, None) => {}
                (None, Some(_)) => {
                    self.tally.timeless += 1;
                    missed = Some(missed.unwrap_or(0) + 1);
                }
                (Some(when), Some(mut access)) => {
                    self.tally.accesses += 1;
                    access.tid = access.tid.or(known(tid));
                    out.extend(self.order.push(when, SIZE, Held::Operation(Box::new(access))));
                }
            }
        }
        if let Some(samples) = missed {
            let upto = self.order.here().end.max(since);
            out.extend(self.order.push(upto, SIZE, Held::missed(since, samples)));
        }
        if let (Some(cpu), Some(aux)) = (cpu, &mut self.aux)
            && (aux.newest.len() < CPUS || aux.newest.contains_key(&cpu))
        {
            aux.newest.insert(cpu, since);
        }
        Some(())
    }
}
