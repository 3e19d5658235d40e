//! Names as people write them, without what changes from build to build.

use std::fmt::{self, Write};

/// Longer names are cut: a mangled name of a few bytes may stand for megabytes.
const MAX_NAME: usize = 2048;

/// Suffixes of clones that compilers and linkers split off or specialise; a number may follow.
const CLONES: &[&str] = &[
    ".cold",
    ".part",
    ".isra",
    ".constprop",
    ".lto_priv",
    ".llvm",
    ".localalias",
    ".warm",
    ".hot",
    ".exit",
    ".split",
    ".unlikely",
    ".startup",
];

/// Demangles a Rust or C++ symbol; others stay as they are. Clone suffixes, symbol versions and Rust's hash are cut.
pub(crate) fn demangle(symbol: &str) -> String {
    let plain = without_clones(symbol.split('@').next().unwrap_or(symbol));
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        let mut text = Bounded(String::new());
        // Cut at the limit: the text so far is the answer.
        if write!(text, "{rust:#}").is_ok() || !text.0.is_empty() {
            return text.0;
        }
    }
    if plain.starts_with("_Z") && plain.len() <= MAX_NAME {
        let options = cpp_demangle::DemangleOptions::new()
            .recursion_limit(96)
            .hide_expression_literal_types();
        let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
        if let Ok(symbol) = cpp_demangle::Symbol::new_with_options(plain, &parse) {
            let mut text = Bounded(String::new());
            if symbol.structured_demangle(&mut text, &options).is_ok() {
                return text.0;
            }
        }
    }
    plain.to_owned()
}

/// A C++ or Rust name without its arguments, for people.
pub(crate) fn short(name: &str) -> &str {
    let (mut depth, bytes) = (0usize, name.as_bytes());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && bytes.get(at - 1) != Some(&b'-') => depth = depth.saturating_sub(1),
            // `(anonymous namespace)::f` and `operator()` go on; arguments end the name.
            b'(' if depth == 0 => {
                let (head, rest) = name.split_at(at);
                let goes_on = rest.starts_with("(anonymous namespace)")
                    || head.ends_with("operator")
                    // Go's methods: `main.(*Pool).grow`.
                    || head.ends_with('.');
                if !goes_on && !head.is_empty() {
                    return head;
                }
            }
            _ => {}
        }
    }
    name
}

fn without_clones(symbol: &str) -> &str {
    let first = CLONES.iter().filter_map(|clone| {
        let at = symbol.find(clone).filter(|at| *at > 0)?;
        let behind = symbol.as_bytes().get(at + clone.len());
        behind.is_none_or(|b| *b == b'.').then_some(at)
    });
    first.min().and_then(|at| symbol.get(..at)).unwrap_or(symbol)
}

/// Text that refuses to grow beyond [`MAX_NAME`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{demangle, short};

    #[test]
    fn what_changes_from_build_to_build_is_cut() {
        let cases = [
            ("site_arena", "site_arena"),
            ("grow.part.0", "grow"),
            ("grow.constprop.1.isra.0.cold", "grow"),
            ("grow.lto_priv.12", "grow"),
            ("a.coldness", "a.coldness"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE.llvm.123",
                "core::fmt::Write::write_fmt",
            ),
            ("_Znwm", "operator new(unsigned long)"),
            ("_ZN5Cache4growEm.part.0", "Cache::grow(unsigned long)"),
            ("_Zbroken", "_Zbroken"),
            (".cold", ".cold"),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn a_name_that_would_explode_stays_bounded() {
        let mut bomb = String::from("_Z1fI1AE");
        for n in 0..30 {
            bomb.push_str(&format!("St4pairIS{n}_S{n}_E"));
        }
        assert!(demangle(&bomb).len() <= 2048);
        assert!(demangle(&format!("_Z{}", "N1a".repeat(3000))).len() <= 10_000);
    }

    #[test]
    fn short_names_have_no_arguments() {
        let cases = [
            ("Cache::grow(unsigned long)", "Cache::grow"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("std::map<int, void (*)(int)>::at(int)", "std::map<int, void (*)(int)>::at"),
            ("A::operator()(int)", "A::operator()"),
            ("main.(*Pool).grow", "main.(*Pool).grow"),
            ("plain", "plain"),
        ];
        for (name, want) in cases {
            assert_eq!(short(name), want);
        }
    }
}
