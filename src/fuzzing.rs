//! What is promised of bad input, in one place: of any bytes that storage may hold, and of any text that a caller may
//! give, for the parser that reads it.
//!
//! Each parser has its checks beside it, in a module `properties`, and these are used twice: by the property tests
//! there, and by the fuzz target in `tests/fuzz`, which calls [`run`]. Compiled for tests and for fuzzing only.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use chrono::DateTime;
use lance::session::Session;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::ident::TableIdent;
use crate::store::{RootStore, Slot, SystemClock};
use crate::{error, ident, lifecycle, listing, store, versions};

/// Gives `data` to the parser that its first byte names, and panics where that breaks a promise.
pub fn run(data: &[u8]) {
    let Some((parser, content)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(content);
    match parser {
        b't' => lifecycle::tombstone::properties::any_bytes(content),
        b'c' => lifecycle::claim::properties::any_bytes(content),
        b'k' => lifecycle::properties::any_marker(content),
        b'm' => versions::fence::properties::any_bytes(content),
        b'e' => listing::properties::any_child(&text),
        b'p' => listing::properties::any_page_token(&text),
        b'i' => ident::properties::any_name(&text),
        b'l' => store::properties::any_location(&text),
        b'u' => store::properties::any_root(&text),
        b'r' => error::redact::properties::any_text(&text),
        _ => {}
    }
}

/// A root in memory, which no check writes to.
pub(crate) fn memory() -> &'static RootStore {
    static ROOT: OnceLock<RootStore> = OnceLock::new();
    ROOT.get_or_init(|| connect("memory://bucket/root"))
}

/// A root on local disk that does not exist.
pub(crate) fn local() -> &'static RootStore {
    static ROOT: OnceLock<RootStore> = OnceLock::new();
    ROOT.get_or_init(|| connect("/no such directory/root"))
}

fn connect(root: &str) -> RootStore {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let session = Arc::new(Session::default());
    let connecting = RootStore::connect(root, HashMap::new(), None, session, Arc::new(SystemClock));
    runtime.block_on(connecting).expect("a root")
}

/// A root table in memory.
pub(crate) fn slot(name: &str) -> Slot {
    Slot::root(memory(), &TableIdent::from(name)).expect("a plain name")
}

/// An object as the store shows it.
pub(crate) fn meta(location: &Path, size: usize) -> ObjectMeta {
    ObjectMeta {
        location: location.clone(),
        last_modified: DateTime::from_timestamp_millis(1_700_000_000_123).expect("in range"),
        size: size as u64,
        e_tag: None,
        version: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use proptest::test_runner::Config;

    use super::run;

    /// As the environment says (`PROPTEST_CASES`). What fails is printed, shrunk; no files are written beside the
    /// sources, and what was found becomes a test of its own.
    pub(crate) fn config() -> Config {
        Config {
            failure_persistence: None,
            ..Config::default()
        }
    }

    /// The same for cheap checks, with 16 times the cases.
    pub(crate) fn many() -> Config {
        let config = config();
        Config {
            cases: config.cases.saturating_mul(16),
            ..config
        }
    }

    /// Changes to one seed.
    const MUTATIONS: u64 = 400;

    /// What the fuzz target does, for a fixed number of inputs: the seeds, and bytes of them changed, moved and lost.
    #[test]
    fn seeds_and_their_mutations() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
        let mut seeds: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
            .collect();
        seeds.sort();
        let mut tried = 0_u64;
        for seed in &seeds {
            run(seed);
            tried += 1;
            for mutation in 0..MUTATIONS {
                run(&mutated(seed, &seeds, mutation));
                tried += 1;
            }
        }
        println!("bad inputs tried: {tried}");
        assert!(seeds.len() >= 20, "{} seeds", seeds.len());
    }

    /// Up to four changes behind the first byte, which names the parser.
    fn mutated(seed: &[u8], seeds: &[Vec<u8>], mutation: u64) -> Vec<u8> {
        let mut state = mutation.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % below.max(1)
        };
        let mut data = seed.to_vec();
        for _ in 0..=next(4) {
            let at = 1 + next(data.len());
            match next(5) {
                0 if at < data.len() => data[at] ^= 1 << next(8),
                1 => data.truncate(at),
                2 if at < data.len() => drop(data.remove(at)),
                3 => data.insert(at.min(data.len()), next(256) as u8),
                _ => {
                    let other = &seeds[next(seeds.len())];
                    let from = 1 + next(other.len());
                    let piece = other.get(from..).unwrap_or_default();
                    data.truncate(at);
                    data.extend_from_slice(piece);
                }
            }
        }
        data
    }
}
