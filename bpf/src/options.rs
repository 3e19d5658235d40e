//! What to watch, how, and how much memory to take for it.

use memprov_ledger::identity::Tgid;

/// Which processes are watched. Kernel threads never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process of the host but one: the agent itself.
    All {
        /// The process that is not watched.
        except: Tgid,
    },
    /// These processes, and whatever they fork from then on.
    Only(Vec<Tgid>),
}

/// How calls that change an address space are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Trampolines on the system calls' own functions: other calls of the host pay nothing.
    Fentry,
    /// BTF tracepoints at every system call's entry and exit: every call of the host pays for them.
    TpBtf,
    /// Perf tracepoints of the named calls: other calls pay about half as much, the named ones more; calls by the
    /// i386 ABI are not seen.
    Tp,
}

impl Mechanism {
    /// Its stable short name: `fentry`, `tp_btf`, `tp`.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::TpBtf => "tp_btf",
            Self::Tp => "tp",
        }
    }
}

/// Probabilities with which a reservation in a ring is treated as failed. For tests of loss; all 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inject {
    /// Of lifecycle records.
    pub lifecycle: f64,
    /// Of stacks of lifecycle records.
    pub stacks: f64,
    /// Of faults.
    pub faults: f64,
}

/// How to load the hooks.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which processes are watched.
    pub scope: Scope,
    /// The mechanism to use; `None` picks the cheapest that works here.
    pub mechanism: Option<Mechanism>,
    /// Bytes of the ring of lifecycle records: a power of two, at least a page.
    pub lifecycle_ring: u32,
    /// Bytes of the ring of stacks and faults: a power of two, at least 64 KiB.
    pub stack_ring: u32,
    /// Fraction of pages whose faults are reported; `None` loads no fault hook.
    pub first_touch: Option<f64>,
    /// Seed of the hash that decides which pages these are.
    pub seed: u32,
    /// Loss to pretend.
    pub inject: Inject,
}

impl Options {
    /// Watches `scope` with the cheapest mechanism, a ring of 4 MiB for records and one of 16 MiB for stacks, and no
    /// fault hook.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            mechanism: None,
            lifecycle_ring: 4 << 20,
            stack_ring: 16 << 20,
            first_touch: None,
            seed: 0,
            inject: Inject::default(),
        }
    }
}
