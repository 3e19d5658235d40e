//! Whom something that costs its targets may be done to.

use serde::{Deserialize, Serialize};

use super::Term;

/// Processes by what finds them: terms, separated by commas. Empty: nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Allow(pub Vec<Term>);

impl TryFrom<String> for Allow {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let terms: Option<Vec<Term>> =
            text.split(',').map(|term| Term::parse(term.trim())).collect();
        let allowed = "allowed: *, or container=ID (or its begin), unit=NAME, comm=NAME of 15 bytes at \
                       most, separated by commas; empty for nobody";
        terms.map(Self).ok_or_else(|| allowed.to_owned())
    }
}

impl From<Allow> for String {
    fn from(Allow(terms): Allow) -> Self {
        terms.iter().map(Term::text).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::Allow;

    #[test]
    fn terms_are_written_as_they_are_read_and_nothing_finds_nobody() {
        for text in ["", "*", "comm=redis,unit=a.service,container=c0ffee"] {
            assert_eq!(String::from(Allow::try_from(text.to_owned()).unwrap()), text);
        }
        let allow = |text: &str| Allow::try_from(text.to_owned());
        assert!(!allow("").unwrap().0.iter().any(|term| term.holds("redis", None, None)));
        let redis = allow("comm=redis").unwrap();
        assert!(redis.0[0].holds("redis", None, None) && !redis.0[0].holds("redis2", None, None));
        for text in ["redis", "pid=7", "comm=", ",", "comm=a-name-of-16-byte"] {
            assert!(allow(text).unwrap_err().contains("comm=NAME"), "{text}");
        }
    }
}
