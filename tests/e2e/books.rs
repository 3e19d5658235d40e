//! The queries that close the books, as docs/METRICS.md has them.

/// What a book's totals are, over the kinds of memory that Rss counts.
pub(crate) fn total(quantity: &str) -> String {
    format!(
        "memprov_memory_{quantity}_bytes{{memprov_book=\"process\",memprov_kind!~\"swap|hugetlb\"}}"
    )
}

/// What is left of owners + shared + unattributed + skew when the kernel's own total is taken away.
pub(crate) fn rest(by: &str) -> String {
    let sum = |metric: String| format!("sum by ({by}) ({metric})");
    let owned = sum("memprov_memory_resident_bytes".to_owned());
    let [joint, skew, control] = ["joint", "skew", "control"].map(|quantity| sum(total(quantity)));
    format!("({owned} + {joint} + {skew} - {control})")
}

/// 0 where the book is closed: the rest is nothing, or between the kernel's two readings while memory moves.
pub(crate) fn open(by: &str) -> String {
    let (rest, spread) = (rest(by), format!("sum by ({by}) ({})", total("control_spread")));
    format!("({rest} < bool 0) + ({rest} > bool {spread})")
}
