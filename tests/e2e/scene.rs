//! A workload that knows the truth, memprov beside it, and everything up to a query.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use memprov_tests::agent::Agent;
use memprov_tests::host;
use memprov_tests::physical;
use memprov_tests::truth::{Phase, Workload};
use tempfile::TempDir;

use crate::books;
use crate::container::Container;
use crate::programs::truth;
use crate::promql::{Series, seconds};
use crate::service::until;
use crate::stack::{Stack, Store};

/// Bytes that a query may differ from the oracle by: none. What is exact stays exact on the way.
const TOLERANCE: f64 = 0.0;
/// The newest panes are still on their way.
const ON_THE_WAY: f64 = 3.0;

/// All of it.
pub(crate) struct Scene {
    pub(crate) stack: Stack,
    pub(crate) workload: Workload,
    pub(crate) memprov: Agent,
    pub(crate) store: Store,
    /// Unix seconds: the begin of what is looked at.
    pub(crate) since: f64,
    _files: TempDir,
}

/// Between what queries must give in a phase: twice the same, but of memory that comes and goes. Statements about one
/// owner in several processes add up.
fn expected(phase: &Phase) -> BTreeMap<String, [f64; 2]> {
    let mut expected: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for said in &phase.owners {
        // Owners of files and memfds go by their names, others by the function that mapped them.
        let owner = match (&said.name, &said.site) {
            (Some(name), _) => format!(".*{name}.*"),
            (None, Some(site)) => format!("{site}( .*)?"),
            (None, None) => continue,
        };
        let resident = Some([said.resident; 2]);
        let reserved = said.reserved.map(|least| [least, said.most_reserved()]);
        for (quantity, bounds) in [("resident", resident), ("reserved", reserved)] {
            let metric = format!("memprov_memory_{quantity}_bytes");
            let query = format!("sum({metric}{{memprov_owner_name=~\"{owner}\"}}) or vector(0)");
            if let Some([least, most]) = bounds {
                let sum = expected.entry(query).or_default();
                *sum = [sum[0] + exact(least), sum[1] + exact(most)];
            }
        }
    }
    expected
}

/// A whole number as a query has it.
pub(crate) fn exact(number: u64) -> f64 {
    let (high, low) = (number >> 32, number & u64::from(u32::MAX));
    let half = |half: u64| f64::from(u32::try_from(half).expect("32 bits"));
    assert!(high < 1 << 21, "{number} is beyond what a query can hold exactly");
    half(high) * 4_294_967_296.0 + half(low)
}

impl Scene {
    /// Sets it for one case of the ground truth, in its first phase; `None`, and the reason said, where it can't be.
    pub(crate) fn set(test: &str, case: &str, store: Store) -> Option<(Self, Phase)> {
        Self::set_in(test, case, store, None)
    }

    /// The same with the workload in a container.
    pub(crate) fn set_in(
        test: &str,
        case: &str,
        store: Store,
        container: Option<&Container>,
    ) -> Option<(Self, Phase)> {
        let why = match host::no_live_tests() {
            Some(why) => Err(why.to_owned()),
            None => Stack::start(store),
        };
        let stack = why.inspect_err(|why| host::skip(&format!("e2e {test}"), why)).ok()?;
        let files = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let mut workload =
            Workload::start(&truth(), case, files.path()).expect("the workload starts");
        let ready = workload.phase().expect("the workload is ready").expect("a phase");
        assert!(ready.owners.is_empty(), "{ready:?}");
        if let Some(container) = container {
            container.take(workload.pid());
        }
        let endpoint = format!("export.endpoint={}", stack.endpoint());
        let memprov = Agent::watching_with(workload.pid(), &[&endpoint, "export.detail=owners"])
            .expect("memprov starts");
        memprov.fresh(workload.pid(), &[], SystemTime::now()).expect("the hooks are attached");
        let since = seconds(SystemTime::now());
        let mut scene = Self { stack, workload, memprov, store, since, _files: files };
        let first = scene.next().expect("the case has a phase");
        Some((scene, first))
    }

    /// The next phase.
    pub(crate) fn next(&mut self) -> Option<Phase> {
        self.workload.go();
        self.workload.phase().expect("the oracle agrees with the kernel")
    }

    /// Waits until the store says of a phase what the oracle says, and goes on saying it for some panes.
    pub(crate) fn agrees(&self, phase: &Phase) {
        // A pane from before the end of what led to the phase may look like it, and the next one not.
        let begun = SystemTime::now();
        let told = self.memprov.fresh(self.workload.pid(), &[], begun);
        told.expect("memprov has read the phase");
        let read = seconds(SystemTime::now());
        until(&format!("PromQL equals the oracle in {:?}", phase.phase), || {
            let pane = self.stack.api.value("max(timestamp(memprov_build_info))")?;
            if pane < read {
                return Err(format!("the newest pane is of {pane}, it was read until {read}"));
            }
            self.compare(phase)
        });
        for _ in 0..3 {
            sleep(Duration::from_secs(1));
            self.compare(phase).expect("PromQL goes on equalling the oracle");
        }
    }

    fn compare(&self, phase: &Phase) -> Result<(), String> {
        let wrong: Vec<_> = expected(phase)
            .into_iter()
            .filter_map(|(query, [least, most])| match self.stack.api.value(&query) {
                Ok(found) if (least - TOLERANCE..=most + TOLERANCE).contains(&found) => None,
                Ok(found) => Some(format!("{query} is {found}, not {least} to {most}")),
                Err(why) => Some(why),
            })
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// Waits until the sum of all books is what the kernel says of these processes, which stand still.
    pub(crate) fn agrees_with_the_kernel(&self, pids: &[u32]) {
        until("the control total is the kernel's", || {
            let query = format!("sum({})", books::total("control"));
            let total = self.stack.api.value(&query)?;
            let kernel: Option<u64> = pids.iter().map(|pid| physical::rollup(*pid, "Rss")).sum();
            let kernel = kernel.ok_or("a process has gone")?;
            (total == exact(kernel)).then_some(()).ok_or(format!("{total}, not {kernel}"))
        });
    }

    /// Fails unless every book is closed at each second since the begin.
    pub(crate) fn books_are_closed(&self) {
        let until = seconds(SystemTime::now()) - ON_THE_WAY;
        let by = match self.store {
            Store::Prometheus => "job, instance",
            Store::VictoriaMetrics => "service_instance_id",
        };
        let found = self.stack.api.range(&books::open(by), self.since, until).expect("a query");
        let wrong: Vec<_> = found
            .iter()
            .flat_map(|Series { labels, samples }| {
                let open = samples.iter().filter(|(_, value)| *value != 0.0);
                open.map(move |(at, _)| format!("{labels:?} at {at}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{} open books: {}", wrong.len(), self.explain(&wrong));
        assert!(found.iter().any(|series| series.samples.len() > 1), "no book at all: {found:?}");
    }

    fn explain(&self, wrong: &[String]) -> String {
        let amounts = ["resident", "joint", "skew", "control", "control_spread"].map(|quantity| {
            let query = format!("sum by (job, instance) (memprov_memory_{quantity}_bytes)");
            format!("{quantity}: {:?}", self.stack.api.query(&query))
        });
        let shown = wrong.get(..wrong.len().min(5)).unwrap_or_default();
        format!("{}\nnow {}", shown.join("\n"), amounts.join("\n    "))
    }

    /// Fails when anything was refused, sent twice or out of order on the way, or is not as the registry has it.
    pub(crate) fn nothing_was_refused_or_repeated(&self) {
        self.keeps_to_the_registry();
        assert_eq!(self.stack.complaints(), Vec::<String>::new(), "{}", self.stack.store.tail());
        let witness = self.stack.witness();
        assert!(!witness.points.is_empty(), "nothing came");
        assert_eq!(witness.repeated(), Vec::<String>::new());
        assert_eq!(witness.disordered(), Vec::<String>::new());
        self.no_request_was_refused();
    }

    /// Fails when memprov's own client gave a request up, in any of its runs.
    pub(crate) fn no_request_was_refused(&self) {
        let witness = self.stack.witness();
        let refused = witness.counted("memprov.export.requests", "refused");
        assert!(!refused.is_empty(), "memprov does not say what became of its requests");
        assert!(refused.iter().all(|count| *count == 0), "requests were refused: {refused:?}");
    }

    /// Fails when a request that came through is not as the registry has it.
    pub(crate) fn keeps_to_the_registry(&self) {
        let kept = self.stack.kept().unwrap_or_else(|why| panic!("{why}"));
        assert!(kept.names.contains("memprov.memory.resident"), "{kept:?}");
    }
}
