//! The memprov binary.

fn main() {}
