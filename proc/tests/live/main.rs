//! Scans of real processes of this machine: stopped, every byte must be where the kernel says it is.
//!
//! The processes are this program again: it maps one of the [`shapes`], tells that it is ready, and stops itself.

#[cfg(test)]
mod child;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod totals;
