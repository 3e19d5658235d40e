//! What can go wrong while loading and while polling.

use memprov_ledger::identity::Tgid;

/// Why the hooks could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option is out of range.
    #[error("option {name}: {problem}")]
    Option {
        /// The field of `Options`.
        name: &'static str,
        /// What it must be.
        problem: &'static str,
    },
    /// The kernel refused a step for want of a capability, or by policy.
    #[error("{step}")]
    Permission {
        /// What was attempted.
        step: String,
        /// What libbpf said.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A step failed.
    #[error("{step}{}{log}", if log.is_empty() { "" } else { ": " })]
    Step {
        /// What was attempted.
        step: String,
        /// The end of what libbpf and the kernel's verifier logged; empty when they logged nothing.
        log: String,
        /// What libbpf said.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A ring could not be mapped or waited for.
    #[error("{step}")]
    Ring {
        /// What was attempted.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// What can go wrong while the hooks are attached.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// A process could not be added to or removed from a table of the programs.
    #[error("set {table} of process {}", tgid.0)]
    Table {
        /// The table.
        table: &'static str,
        /// The process.
        tgid: Tgid,
        /// What libbpf said.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The wait for records failed.
    #[error("wait for BPF rings")]
    Wait(#[source] std::io::Error),
}
