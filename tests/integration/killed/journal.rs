//! What the killed processes leave behind about themselves: one file, outside the root, that all of them append to.
//!
//! A record is one `write` of a fixed length that divides a page, so a kill loses none and tears none, and the order in
//! the file is an order in time: what ended before something else began stands before it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lancekeep::Error;
use serde::{Deserialize, Serialize};

/// Bytes of a record, padded with spaces.
const LENGTH: usize = 512;

/// Where the message of an error is cut off.
const MESSAGE: usize = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Kind {
    Create,
    /// A create over what is, or was a moment ago, dropped.
    Revive,
    Overwrite,
    Append,
    Drop,
    Undrop,
    Purge,
    PurgeDropped,
    Reconcile,
    Open,
    Status,
    List,
}

impl Kind {
    pub(super) fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Status | Self::List)
    }
}

/// What an operation told who called it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// It succeeded; for a drop and an undrop the version that the drop saw.
    Done {
        version: Option<u64>,
    },
    /// A table was opened and read.
    Read {
        version: u64,
        rows: Content,
    },
    /// What a `purge_dropped` purged, and what it failed to.
    Purged {
        names: Vec<String>,
        failed: Vec<(String, String)>,
    },
    Failed {
        kind: String,
        message: String,
    },
}

/// The creates and appends that rows came from, each with all of its rows; or rows that are not so.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Content {
    Of(Vec<u32>),
    Half(Vec<i32>),
}

/// Rows that one create or append writes.
pub(super) const ROWS: i32 = 2;

/// The rows of a create or an append.
pub(super) fn rows_of(op: u32) -> std::ops::Range<i32> {
    let first = i32::try_from(op).unwrap() * ROWS;
    first..first + ROWS
}

impl Content {
    /// Of sorted rows.
    pub(super) fn of(rows: &[i32]) -> Self {
        let whole: Option<Vec<u32>> = rows
            .chunks(usize::try_from(ROWS).unwrap())
            .map(|chunk| {
                let op = u32::try_from(chunk[0] / ROWS).ok()?;
                chunk.iter().copied().eq(rows_of(op)).then_some(op)
            })
            .collect();
        whole.map_or_else(|| Self::Half(rows.to_vec()), Self::Of)
    }
}

impl Outcome {
    pub(super) const DONE: Self = Self::Done { version: None };

    pub(super) fn failed(error: &Error) -> Self {
        Self::told(&kind_of(error), &error.to_string())
    }

    pub(super) fn told(kind: &str, message: &str) -> Self {
        Self::Failed {
            kind: kind.to_string(),
            message: message.chars().take(MESSAGE).collect(),
        }
    }
}

/// What an error says, with what Lance failed with apart whatever kind it is given.
pub(super) fn kind_of(error: &Error) -> String {
    match error {
        Error::Lance { .. } => "Lance".to_string(),
        other => format!("{:?}", other.kind()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// A process is there.
    Hello { spawn: u32 },
    /// Right before an operation; for one on the whole root the name is empty.
    Begin { op: u32, kind: Kind, name: String },
    /// Right after it.
    End { op: u32, us: u64, outcome: Outcome },
}

/// Operations of one process are numbered from here on.
pub(super) const OPS_OF_A_SPAWN: u32 = 10_000;

pub(super) fn spawn_of(op: u32) -> u32 {
    op / OPS_OF_A_SPAWN
}

impl Record {
    pub(super) fn spawn(&self) -> u32 {
        match self {
            Self::Hello { spawn } => *spawn,
            Self::Begin { op, .. } | Self::End { op, .. } => spawn_of(*op),
        }
    }
}

/// The writing end.
pub(super) struct Journal(File);

impl Journal {
    pub(super) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Self(file.unwrap())
    }

    pub(super) fn note(&mut self, record: &Record) {
        let mut line = serde_json::to_vec(record).unwrap();
        assert!(line.len() < LENGTH, "too long: {record:?}");
        line.resize(LENGTH - 1, b' ');
        line.push(b'\n');
        // Not `write_all`: a second write could come after somebody else's.
        assert_eq!(self.0.write(&line).unwrap(), LENGTH);
    }
}

/// The reading end: everything so far.
pub(super) struct Tail {
    file: File,
    records: Vec<Record>,
}

impl Tail {
    pub(super) fn of(path: &Path) -> Self {
        drop(Journal::open(path));
        Self {
            file: File::open(path).unwrap(),
            records: Vec::new(),
        }
    }

    pub(super) fn all(&mut self) -> &[Record] {
        let mut line = [0; LENGTH];
        loop {
            let at = u64::try_from(self.records.len() * LENGTH).unwrap();
            match self.file.read_at(&mut line, at).unwrap() {
                0 => return &self.records,
                LENGTH => self.records.push(serde_json::from_slice(&line).unwrap()),
                torn => panic!("a record of {torn} bytes at {at}"),
            }
        }
    }
}

#[test]
fn rows_tell_which_create_they_came_from() {
    let both: Vec<i32> = rows_of(3).chain(rows_of(10_007)).collect();
    assert_eq!(Content::of(&both), Content::Of(vec![3, 10_007]));
    assert_eq!(Content::of(&[]), Content::Of(vec![]));
    for half in [&both[1..], &both[..3], &[7, 8], &[6, 6]] {
        assert_eq!(Content::of(half), Content::Half(half.to_vec()));
    }
}

#[test]
fn a_journal_gives_back_what_was_noted() {
    let desk = tempfile::tempdir().unwrap();
    let path = desk.path().join("journal");
    let mut tail = Tail::of(&path);
    assert!(tail.all().is_empty());
    let records = [
        Record::Hello { spawn: 7 },
        Record::Begin {
            op: 70_001,
            kind: Kind::Revive,
            name: "s0".to_string(),
        },
        Record::End {
            op: 70_001,
            us: 5,
            outcome: Outcome::told("Conflict", &"two\n\"lines\" ".repeat(99)),
        },
    ];
    let mut journal = Journal::open(&path);
    for record in &records {
        journal.note(record);
        assert_eq!(record.spawn(), 7);
    }
    assert_eq!(tail.all(), records);
}
