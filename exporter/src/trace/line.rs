//! Lines: what they hold, and their text.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use memprov_ledger::evidence::{Change, Evidence, EvidenceClass, StackRef};
use memprov_ledger::identity::{Extent, ModuleId, StackId, StartTicks};
use memprov_ledger::stack::{Module, Stack};
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use serde::{Deserialize, Serialize};

use super::{Problem, SCHEMA};
use crate::report::{Host, Identity};

/// No ledger mints as many ids: behind those of a trace there is room for its reader's own.
const MINTED: u64 = 1 << 62;

/// The first line: what holds for the whole trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the program that recorded it.
    pub version: String,
    /// How its times map to wall time.
    pub clock: Clock,
    /// Since when lifecycle events are seen.
    pub watching_since: MonoTime,
    /// The same instant in ticks since boot: a process that began later is younger than the watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watching_ticks: Option<StartTicks>,
    /// The host it was recorded on.
    pub host: Host,
    /// Whose evidence it holds.
    pub scope: Scope,
    /// How pages are sampled for first touch.
    #[serde(default)]
    pub sample: Sample,
    /// Who the host is, for the resources of OTLP.
    #[serde(default)]
    pub identity: Identity,
    /// The kernel's id of the boot that its times are of (`/proc/sys/kernel/random/boot_id`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// What the recorder could see, by capability.
    #[serde(default)]
    pub support: Vec<Support>,
    /// Names are hashes and addresses are moved: see [`super::Redactor`].
    #[serde(default)]
    pub redacted: bool,
}

/// The one place where monotonic and wall time meet, so that a replay shows the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Wall time at [`MonoTime`] 0, in nanoseconds since 1970; 0: not known. Decimal text, because it is beyond 2^53.
    #[serde(with = "decimal")]
    pub wall_at_zero: i64,
}

impl Clock {
    /// Whether wall time is known. Else instants are those of a clock of its own, as if that had begun in 1970.
    #[must_use]
    pub fn known(self) -> bool {
        self.wall_at_zero != 0
    }
}

/// Whose evidence a trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// All processes of the host.
    pub all: bool,
    /// Else these and their descendants.
    #[serde(default)]
    pub pids: Vec<u32>,
}

/// How the recorder served one capability: a row of `memprov check`, without its advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Support {
    /// The capability.
    pub id: String,
    /// `available`, `degraded` or `unavailable`.
    pub state: String,
    /// What serves it; `None` when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<String>,
    /// How sure its evidence is; `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<EvidenceClass>,
}

/// What follows the header.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An entry of the module table. It comes before the first stack or name that uses it.
    Module {
        /// Its id in this trace.
        id: ModuleId,
        /// What it is.
        module: Module,
    },
    /// An entry of the stack table. It comes before the first evidence that uses it.
    Stack {
        /// Its id in this trace.
        id: StackId,
        /// What it is.
        stack: Arc<Stack>,
    },
    /// What a function is called.
    Name {
        /// The module it lies in.
        module: ModuleId,
        /// Its start, as in [`memprov_ledger::stack::Frame::function`].
        function: u64,
        /// Its name; `None` where the module was searched and has none.
        name: Option<String>,
    },
    /// No later line names a stack or module below these ids: what is not in use by then can be forgotten.
    Forget {
        /// The first stack that stays.
        stacks: StackId,
        /// The first module that stays.
        modules: ModuleId,
    },
    /// Evidence.
    Evidence(Evidence),
    /// Time has come so far without evidence: all that ended before is told.
    Watermark {
        /// The instant.
        when: MonoTime,
    },
    /// The trace is whole.
    End {
        /// The instant as of which it ends.
        when: MonoTime,
    },
}

/// A line as it is written: its kind first.
#[derive(Serialize)]
struct Tagged<T> {
    kind: &'static str,
    #[serde(flatten)]
    body: T,
}

/// What an entry of a table has beside its content.
#[derive(Serialize, Deserialize)]
struct Numbered<I> {
    id: I,
}

#[derive(Serialize)]
struct Entry<'a, I, T> {
    #[serde(flatten)]
    number: Numbered<I>,
    #[serde(flatten)]
    entry: &'a T,
}

#[derive(Serialize, Deserialize)]
struct Name {
    module: ModuleId,
    #[serde(with = "memprov_ledger::identity::hex")]
    function: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Forget {
    stacks: StackId,
    modules: ModuleId,
}

#[derive(Serialize, Deserialize)]
struct Instant {
    when: MonoTime,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl Header {
    /// Of this build, and of a host and a watch of which nothing else is known.
    #[must_use]
    pub fn new(clock: Clock, watching_since: MonoTime) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock,
            watching_since,
            watching_ticks: None,
            host: Host::default(),
            scope: Scope::default(),
            sample: Sample::default(),
            identity: Identity::default(),
            boot_id: None,
            support: Vec::new(),
            redacted: false,
        }
    }

    pub(super) fn write(&self, to: &mut impl Write) -> serde_json::Result<()> {
        tagged(to, "header", self)
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, Problem> {
        let Kind { kind } = serde_json::from_slice(text).map_err(Problem::NoHeader)?;
        if kind != "header" {
            return Err(Problem::NoHeader(serde::de::Error::custom(
                "the first line is of another kind",
            )));
        }
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        let Schema { schema } = serde_json::from_slice(text).map_err(Problem::NoHeader)?;
        if schema != SCHEMA {
            return Err(Problem::Schema(schema));
        }
        let header: Self = serde_json::from_slice(text).map_err(Problem::NoHeader)?;
        if !(0.0..=1.0).contains(&header.sample.probability) {
            return Err(Problem::Unsound("a probability is not in [0, 1]"));
        }
        Ok(header)
    }
}

impl Line {
    /// Appends the line's text without its newline.
    pub(super) fn write(&self, to: &mut impl Write) -> serde_json::Result<()> {
        match self {
            Self::Module { id, module } => {
                tagged(to, "module", Entry { number: Numbered { id }, entry: module })
            }
            Self::Stack { id, stack } => {
                tagged(to, "stack", Entry { number: Numbered { id }, entry: stack })
            }
            Self::Name { module, function, name } => {
                let (module, function) = (*module, *function);
                tagged(to, "name", Name { module, function, name: name.clone() })
            }
            Self::Forget { stacks, modules } => {
                tagged(to, "forget", Forget { stacks: *stacks, modules: *modules })
            }
            Self::Evidence(Evidence::Lifecycle(e)) => tagged(to, "lifecycle", e),
            Self::Evidence(Evidence::Fault(e)) => tagged(to, "fault", e),
            Self::Evidence(Evidence::Access(e)) => tagged(to, "access", e),
            Self::Evidence(Evidence::Activity(e)) => tagged(to, "activity", e),
            Self::Evidence(Evidence::Frames(e)) => tagged(to, "frames", e),
            Self::Evidence(Evidence::Placed(e)) => tagged(to, "placed", e),
            Self::Evidence(Evidence::Residency(e)) => tagged(to, "residency", e),
            Self::Evidence(Evidence::Total(e)) => tagged(to, "total", e),
            Self::Evidence(Evidence::Recall(e)) => tagged(to, "recall", e),
            Self::Evidence(Evidence::Charge(e)) => tagged(to, "charge", e),
            Self::Evidence(Evidence::Gap(e)) => tagged(to, "gap", e),
            Self::Watermark { when } => tagged(to, "watermark", Instant { when: *when }),
            Self::End { when } => tagged(to, "end", Instant { when: *when }),
        }
    }

    /// The line that `text` holds; `None` for a kind that this build does not know.
    ///
    /// The text is read once for its kind and once for its content: serde's tagged enums would keep a whole scan as a
    /// tree of values in between, many times its size.
    pub(super) fn parse(text: &[u8]) -> Result<Option<Self>, Problem> {
        let Kind { kind } = part(text)?;
        let line = match &*kind {
            "module" => Self::Module { id: number(text)?, module: part(text)? },
            "stack" => Self::Stack { id: number(text)?, stack: part(text)? },
            "name" => {
                let Name { module, function, name } = part(text)?;
                Self::Name { module, function, name }
            }
            "forget" => {
                let Forget { stacks, modules } = part(text)?;
                Self::Forget { stacks, modules }
            }
            "lifecycle" => Self::Evidence(Evidence::Lifecycle(part(text)?)),
            "fault" => Self::Evidence(Evidence::Fault(part(text)?)),
            "access" => Self::Evidence(Evidence::Access(part(text)?)),
            "activity" => Self::Evidence(Evidence::Activity(part(text)?)),
            "frames" => Self::Evidence(Evidence::Frames(part(text)?)),
            "placed" => Self::Evidence(Evidence::Placed(part(text)?)),
            "residency" => Self::Evidence(Evidence::Residency(part(text)?)),
            "total" => Self::Evidence(Evidence::Total(part(text)?)),
            "recall" => Self::Evidence(Evidence::Recall(part(text)?)),
            "charge" => Self::Evidence(Evidence::Charge(part(text)?)),
            "gap" => Self::Evidence(Evidence::Gap(part(text)?)),
            "watermark" => {
                let Instant { when } = part(text)?;
                Self::Watermark { when }
            }
            "end" => {
                let Instant { when } = part(text)?;
                Self::End { when }
            }
            "header" => return Err(Problem::Unsound("a second header")),
            _ => return Ok(None),
        };
        line.check()?;
        Ok(Some(line))
    }

    /// What the types promise and the text alone does not: the reader refuses what breaks it, and so does the writer.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let law = |holds: bool, law| if holds { Ok(()) } else { Err(Problem::Unsound(law)) };
        let module = |id: ModuleId| law(id.0 != 0, "module 0 does not exist");
        let stack = |id: StackId| law(id.0 != 0, "stack 0 does not exist");
        let called_by = |by: StackRef| match by {
            StackRef::Known(id) => stack(id),
            StackRef::Lost | StackRef::None => Ok(()),
        };
        let ordered = |e: Extent| law(e.start <= e.end, "an extent ends before it starts");
        match self {
            Self::Module { id, .. } | Self::Name { module: id, .. } => module(*id),
            Self::Stack { id, stack: frames } => {
                stack(*id)?;
                frames.frames.iter().filter_map(|f| f.module).try_for_each(module)
            }
            Self::Forget { .. } | Self::Watermark { .. } | Self::End { .. } => Ok(()),
            Self::Evidence(evidence) => {
                let Span { begin, end } = when(evidence);
                law(begin <= end, "a span ends before it begins")?;
                match evidence {
                    Evidence::Lifecycle(e) => match e.change {
                        Change::Map { extent, stack, .. } => {
                            ordered(extent).and_then(|()| called_by(stack))
                        }
                        Change::Remap { from, to, stack, .. } => {
                            ordered(from).and_then(|()| ordered(to)).and_then(|()| called_by(stack))
                        }
                        Change::Unmap { extent }
                        | Change::Name { extent, .. }
                        | Change::Vma { extent, .. }
                        | Change::Doubt { extent } => ordered(extent),
                        Change::Brk { stack, .. } | Change::Attach { stack, .. } => {
                            called_by(stack)
                        }
                        Change::Detach { .. }
                        | Change::Fork { .. }
                        | Change::Exec
                        | Change::Exit => Ok(()),
                    },
                    Evidence::Fault(e) => {
                        let p = e.probability;
                        law(p > 0.0 && p <= 1.0, "a probability is not in (0, 1]")?;
                        called_by(e.stack)
                    }
                    Evidence::Access(e) => law(e.address != Some(0), "an access to address 0"),
                    Evidence::Activity(e) => e.fault().map_or(Ok(()), |broken| law(false, broken)),
                    Evidence::Frames(e) => e.fault().map_or(Ok(()), |broken| law(false, broken)),
                    Evidence::Placed(e) => e.fault().map_or(Ok(()), |broken| law(false, broken)),
                    Evidence::Residency(e) => {
                        let mut maps = e.maps.iter().flat_map(|maps| maps.iter());
                        maps.try_for_each(|m| ordered(m.extent))
                    }
                    Evidence::Recall(e) => {
                        law(!e.tgids.is_empty(), "a space without a process")?;
                        let ids = [Some(e.space), Some(e.family), e.parent].into_iter().flatten();
                        let numbers = ids.map(|id| id.0).chain([e.newest.0]);
                        law(numbers.max() < Some(MINTED), "an id beyond 2^62")?;
                        e.pieces.iter().try_for_each(|known| {
                            law(
                                known.born.begin <= known.born.end,
                                "a span ends before it begins",
                            )?;
                            ordered(known.extent).and_then(|()| called_by(known.stack))
                        })
                    }
                    Evidence::Total(_) | Evidence::Charge(_) | Evidence::Gap(_) => Ok(()),
                }
            }
        }
    }
}

fn when(evidence: &Evidence) -> Span {
    match evidence {
        Evidence::Lifecycle(e) => e.when,
        Evidence::Fault(e) => e.when,
        Evidence::Access(e) => e.when,
        Evidence::Activity(e) => e.when,
        Evidence::Frames(e) => e.when,
        Evidence::Placed(e) => e.when,
        Evidence::Residency(e) => e.when,
        Evidence::Total(e) => e.when,
        Evidence::Recall(e) => e.when,
        Evidence::Charge(e) => e.when,
        Evidence::Gap(e) => e.when,
    }
}

fn tagged(to: &mut impl Write, kind: &'static str, body: impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(to, &Tagged { kind, body })
}

fn part<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(Problem::Json)
}

fn number<'a, I: Deserialize<'a>>(text: &'a [u8]) -> Result<I, Problem> {
    let Numbered { id } = part(text)?;
    Ok(id)
}

mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(n: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(n)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
