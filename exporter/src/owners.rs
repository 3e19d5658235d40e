//! Owners: content keys. From a claim of the ledger and the names of its stack to an owner that has the same id on
//! every host, after every restart.
//!
//! The key is kind + label (path template, name, arena) + site (up to three functions). A pid, an address, an inode
//! or a length is never in it.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;

use memprov_ledger::book::Claim;
use memprov_ledger::evidence::{Backing, EvidenceClass, MapFlags, StackRef};
use memprov_ledger::identity::{PAGE, StackId};
use memprov_ledger::pieces::Traits;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::symbols::{Attribution, Call, Site, Stability};
use crate::tables::Tables;

/// An owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What tells it from others; its hash is the id.
    pub key: String,
    /// A kind of `memprov.report/1`.
    pub kind: &'static str,
    /// For people.
    pub name: String,
    /// For people: who called the site; may be empty.
    pub caller: String,
    /// Whether the key survives a rebuild.
    pub stability: Stability,
    /// A stack to show.
    pub stack: Option<StackId>,
    /// The stack ended before its root.
    pub truncated: bool,
    /// How sure the call site is.
    pub class: EvidenceClass,
}

impl Owner {
    /// The [`content_id`] of the key.
    #[must_use]
    pub fn id(&self) -> String {
        content_id(&self.key)
    }

    /// What stands for `count` owners that are not told one by one.
    #[must_use]
    pub fn others(count: usize) -> Self {
        Self::nobody("other", format!("{count} other call sites"))
    }

    /// What is of no owner, but of a kind that is known.
    #[must_use]
    pub fn nobody(kind: &'static str, name: String) -> Self {
        Self {
            key: kind.to_owned(),
            kind,
            name,
            caller: String::new(),
            stability: Stability::Content,
            stack: None,
            truncated: false,
            class: EvidenceClass::Exact,
        }
    }
}

/// The id of a content key: its SipHash-2-4 with key 0, 128 bits, hex.
#[must_use]
pub fn content_id(key: &str) -> String {
    let mut hasher = SipHasher24::new();
    hasher.write(key.as_bytes());
    format!("{:032x}", hasher.finish128().as_u128())
}

/// What owners of one process are named by.
#[derive(Debug)]
pub struct Naming<'a> {
    /// Stacks and names.
    pub tables: &'a Tables,
    /// Paths that the process maps executable somewhere: programs and libraries.
    pub images: &'a BTreeSet<Arc<str>>,
}

impl Naming<'_> {
    /// The owner of what `claim` has.
    #[must_use]
    pub fn owner(&self, claim: &Claim) -> Owner {
        let traits = claim.traits;
        let (backing, path) = claim
            .origin
            .as_ref()
            .map_or((Backing::Anonymous, None), |o| (o.backing, o.path.as_deref()));
        let made = self.made(claim);
        match backing {
            Backing::Special => {
                self.finish("other", path.unwrap_or("[special]").to_owned(), &made, claim)
            }
            Backing::Shmem(_) | Backing::Hugetlb(_) if traits.has(Traits::SHARED) => {
                self.finish("shm", shm_label(path, traits), &made, claim)
            }
            Backing::Shmem(_) | Backing::File(_) => {
                let path = path.unwrap_or("file");
                let image = self.images.contains(path);
                // Hardly anybody but the loader maps what is mapped executable, if the call is not known.
                let by_system = matches!(made, Made::Loader | Made::Unseen | Made::Lost);
                if image && by_system {
                    let made = if matches!(made, Made::Lost) { &made } else { &Made::Loader };
                    self.finish("image", template(path), made, claim)
                } else {
                    self.finish("file", template(path), &made, claim)
                }
            }
            Backing::Anonymous | Backing::Hugetlb(_) => self.anonymous(path, &made, claim),
        }
    }

    fn anonymous(&self, path: Option<&str>, made: &Made, claim: &Claim) -> Owner {
        let predates = claim.traits.has(Traits::PREDATES);
        match (path, made) {
            (Some(path), _) if path.starts_with("[anon") => {
                self.finish("named", template(path), made, claim)
            }
            (Some(path), _) if path.starts_with("[stack") => {
                self.finish("stack", "main thread stack".to_owned(), made, claim)
            }
            (_, Made::Stack(_)) => self.finish("stack", "thread stack".to_owned(), made, claim),
            (Some(path), Made::Unseen | Made::Loader) if path.starts_with('/') => {
                self.finish("image", template(path), &Made::Loader, claim)
            }
            (_, Made::Loader) => self.finish("image", "dynamic loader".to_owned(), made, claim),
            (_, Made::Pending) => {
                self.finish("pending", "names not looked up yet".to_owned(), made, claim)
            }
            (_, Made::Lost) => self.unknown(claim),
            (_, Made::Arena(arena)) => self.finish("arena", format!("arena:{arena}"), made, claim),
            (_, Made::Site(site)) => {
                let shm = claim.traits.has(Traits::SHARED);
                let kind = if shm { "shm" } else { "mapping" };
                self.finish(kind, site.name.clone(), made, claim)
            }
            (Some("[heap]"), Made::Unseen) if predates => {
                self.finish("preexisting", "heap from before the watch".to_owned(), made, claim)
            }
            (Some(path), Made::Unseen) if path.starts_with('[') && path != "[heap]" => {
                self.finish("other", path.to_owned(), made, claim)
            }
            (_, Made::Unseen) if predates => {
                self.finish("preexisting", "mapped before the watch".to_owned(), made, claim)
            }
            (_, Made::Unseen) => self.unknown(claim),
        }
    }

    /// The owner of what was mapped during the watch by a call that was not seen, or not whole.
    fn unknown(&self, claim: &Claim) -> Owner {
        let label = "call site unknown".to_owned();
        self.finish("mapping", label, &Made::Lost, claim)
    }

    /// The owner of first touches by `stack`.
    #[must_use]
    pub fn toucher(&self, stack: StackRef) -> Owner {
        let claim = Claim { stack, origin: None, traits: Traits(0) };
        let made = self.attributed(stack, Call::Fault);
        match &made {
            Made::Site(site) => self.finish("mapping", site.name.clone(), &made, &claim),
            Made::Arena(arena) => self.finish("arena", format!("arena:{arena}"), &made, &claim),
            Made::Stack(_) => self.finish("stack", "thread stack".to_owned(), &made, &claim),
            Made::Loader => self.finish("image", "dynamic loader".to_owned(), &made, &claim),
            Made::Pending => {
                self.finish("pending", "names not looked up yet".to_owned(), &made, &claim)
            }
            Made::Lost | Made::Unseen => {
                self.finish("other", "stack lost".to_owned(), &Made::Lost, &claim)
            }
        }
    }

    fn made(&self, claim: &Claim) -> Made {
        let traits = claim.traits;
        if traits.has(Traits::UNSEEN) {
            return Made::Unseen;
        }
        match self.attributed(claim.stack, call(traits)) {
            Made::Lost if traits.has(Traits::STACK) => Made::Stack(None),
            Made::Site(site) if traits.has(Traits::STACK) => Made::Stack(Some(site)),
            made => made,
        }
    }

    fn attributed(&self, stack: StackRef, call: Call) -> Made {
        let StackRef::Known(id) = stack else { return Made::Lost };
        match self.tables.attribute(id, call) {
            None => Made::Pending,
            Some(Attribution::Site(site)) => Made::Site(site),
            Some(Attribution::Arena { allocator, .. }) => Made::Arena(allocator),
            Some(Attribution::Stack) => Made::Stack(None),
            Some(Attribution::Loader) => Made::Loader,
        }
    }

    fn finish(&self, kind: &'static str, label: String, made: &Made, claim: &Claim) -> Owner {
        let site = match made {
            Made::Site(site) | Made::Stack(Some(site)) => Some(site),
            _ => None,
        };
        let mut key = format!("{kind}\n{label}");
        for function in site.iter().flat_map(|s| s.key.iter()) {
            key.push('\n');
            key.push_str(function);
        }
        let truncated = site.is_some_and(|s| s.truncated);
        if truncated {
            key.push_str("\n(truncated)");
        }
        let caller = match site {
            Some(site) if label == site.name => site.caller.clone(),
            Some(site) => site.name.clone(),
            None => String::new(),
        };
        let stack = match (made, claim.stack) {
            (Made::Unseen | Made::Lost, _) => None,
            (_, StackRef::Known(id)) => Some(id),
            _ => None,
        };
        let lost = matches!(made, Made::Lost | Made::Pending);
        Owner {
            key,
            kind,
            name: label,
            caller,
            stability: site.map_or(Stability::Content, |s| s.stability),
            stack,
            truncated,
            class: if lost { EvidenceClass::Inferred } else { EvidenceClass::Exact },
        }
    }
}

/// Who made a mapping, as far as stacks and names tell.
enum Made {
    Site(Site),
    Arena(&'static str),
    Stack(Option<Site>),
    Loader,
    Pending,
    Lost,
    Unseen,
}

/// The call that made a mapping with these traits. Its length is one of the same class: the rules of attribution ask
/// only whether it is a class of sizes, whole MiB, or 64 MiB and more.
fn call(traits: Traits) -> Call {
    if traits.has(Traits::BRK) {
        return Call::Brk;
    }
    if traits.has(Traits::ATTACHED) {
        return Call::Shmat;
    }
    let large = if traits.has(Traits::HUGE_LENGTH) { 64u64 << 20 } else { 0 };
    let len = match (traits.has(Traits::SIZE_CLASS), traits.has(Traits::WHOLE_MIB)) {
        (true, true) => large.max(1 << 20),
        (true, false) => PAGE,
        (false, true) => large + (9 << 20),
        (false, false) => large + 9 * PAGE,
    };
    let flags = MapFlags {
        fixed: false,
        anonymous: traits.has(Traits::ANONYMOUS),
        shared: traits.has(Traits::SHARED),
        stack: traits.has(Traits::STACK),
        grows_down: traits.has(Traits::GROWS_DOWN),
        noreserve: traits.has(Traits::NORESERVE),
        hugetlb: traits.has(Traits::HUGETLB),
        exec: traits.has(Traits::EXEC),
        inaccessible: traits.has(Traits::INACCESSIBLE),
        offset: 0,
    };
    Call::Mmap { len, flags }
}

fn shm_label(path: Option<&str>, traits: Traits) -> String {
    let path = path.map_or("", |p| p.strip_suffix(" (deleted)").unwrap_or(p));
    match path {
        "" | "/dev/zero" => "shared anonymous memory".to_owned(),
        "/anon_hugepage" => "shared anonymous huge pages".to_owned(),
        _ if path.starts_with("/SYSV") || traits.has(Traits::ATTACHED) => {
            "SysV shared memory".to_owned()
        }
        _ => template(path),
    }
}

/// A path without what changes from run to run: ` (deleted)` cut; runs of digits, words of 8 or more hex digits, and
/// uuids become `*`, and so do random words below directories of temporary files. Directories of a machine architecture (`x86_64-linux-gnu`) stay.
#[must_use]
pub fn template(path: &str) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let volatile = ["/tmp/", "/var/tmp/", "/dev/shm/", "/run/"].iter().any(|d| path.starts_with(d));
    let parts: Vec<String> = path
        .split('/')
        .map(|part| match part {
            _ if part.ends_with("-linux-gnu") => part.to_owned(),
            _ => component(part, volatile),
        })
        .collect();
    parts.join("/")
}

/// Whether a word looks drawn by chance, as `mktemp` names do: letters change from small to capital more than once, or
/// digits stand among letters of both cases.
fn random(word: &str) -> bool {
    let bytes = word.as_bytes();
    let rises = bytes
        .windows(2)
        .filter(|w| matches!(w, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()))
        .count();
    let has = |of: fn(&u8) -> bool| bytes.iter().any(of);
    let mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    bytes.len() >= 6 && mixed && (rises > 1 || has(u8::is_ascii_digit))
}

/// `volatile`: below a directory of temporary files, where random words are names of one run.
fn component(part: &str, volatile: bool) -> String {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        if !c.is_ascii_alphanumeric() {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        let hex = word.len() >= 8
            && word.bytes().all(|b| b.is_ascii_hexdigit())
            && word.bytes().any(|b| b.is_ascii_digit());
        if hex || volatile && random(word) {
            out.push('*');
            continue;
        }
        let mut digits = false;
        for c in word.chars() {
            match (c.is_ascii_digit(), digits) {
                (true, false) => out.push('*'),
                (true, true) => {}
                (false, _) => out.push(c),
            }
            digits = c.is_ascii_digit();
        }
    }
    // A uuid is several such words.
    while out.contains("*-*") {
        out = out.replace("*-*", "*");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use memprov_ledger::book::Claim;
    use memprov_ledger::evidence::{Backing, EvidenceClass, StackRef};
    use memprov_ledger::identity::ObjectKey;
    use memprov_ledger::pieces::{Origin, Traits};

    use super::{Naming, template};
    use crate::tables::Tables;

    /// Kind, name and class of the owner of a claim whose call is not known.
    fn named(
        traits: u32,
        origin: Option<(Backing, &str)>,
        stack: StackRef,
    ) -> (&'static str, String, EvidenceClass) {
        let (tables, images) = (Tables::default(), BTreeSet::from([Arc::from("/lib/x.so")]));
        let origin =
            origin.map(|(backing, path)| Arc::new(Origin { backing, path: Some(path.into()) }));
        let claim = Claim { stack, origin, traits: Traits(traits) };
        let owner = Naming { tables: &tables, images: &images }.owner(&claim);
        (owner.kind, owner.name, owner.class)
    }

    #[test]
    fn only_what_was_there_before_the_watch_is_called_preexisting() {
        let heap = Some((Backing::Anonymous, "[heap]"));
        for (origin, name) in
            [(None, "mapped before the watch"), (heap, "heap from before the watch")]
        {
            let (kind, told, _) = named(Traits::UNSEEN | Traits::PREDATES, origin, StackRef::None);
            assert_eq!((kind, &*told), ("preexisting", name));
            for (traits, stack) in
                [(Traits::UNSEEN, StackRef::None), (Traits::INFERRED, StackRef::Lost)]
            {
                let (kind, told, class) = named(traits, origin, stack);
                assert_eq!((kind, &*told), ("mapping", "call site unknown"));
                assert_eq!(class, EvidenceClass::Inferred);
            }
        }
    }

    #[test]
    fn what_is_mapped_executable_is_an_image_although_nobody_saw_the_loader() {
        let file = |path| Some((Backing::File(ObjectKey { major: 8, minor: 1, inode: 7 }), path));
        let (kind, _, class) = named(0, file("/lib/x.so"), StackRef::Lost);
        assert_eq!((kind, class), ("image", EvidenceClass::Inferred));
        assert_eq!(named(0, file("/data"), StackRef::Lost).0, "file");
        let (kind, _, class) = named(Traits::UNSEEN, file("/lib/x.so"), StackRef::None);
        assert_eq!((kind, class), ("image", EvidenceClass::Exact));
    }

    #[test]
    fn a_template_keeps_words_and_drops_what_changes() {
        assert_eq!(
            template("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            "/usr/lib/x86_64-linux-gnu/libc.so.*"
        );
        assert_eq!(template("/tmp/cache-0f3a91bc77.db (deleted)"), "/tmp/cache-*.db");
        assert_eq!(
            template("/var/lib/8b6f0c2e-1034-4155-9200-aabbccddee11/data"),
            "/var/lib/*/data"
        );
        assert_eq!(template("/opt/deadbeef/x"), "/opt/deadbeef/x");
        assert_eq!(template("/tmp/tmp.eKq9culF2t/ring"), "/tmp/tmp.*/ring");
        assert_eq!(template("/var/tmp/MyServer.log"), "/var/tmp/MyServer.log");
        assert_eq!(template("/opt/MyAppIsHere/x"), "/opt/MyAppIsHere/x");
    }
}
