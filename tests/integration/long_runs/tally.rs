//! What a run did.

use std::collections::BTreeMap;

use lancekeep::Error;

use super::calls::Reply;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) steps: usize,
    pub(super) operations: BTreeMap<(&'static str, String), usize>,
    pub(super) faults: usize,
    pub(super) crashes: usize,
    pub(super) cancels: usize,
    pub(super) rests: usize,
    /// Of everything that was chosen, asked and answered, with the names that are drawn at random left out.
    pub(super) trace: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.cancels += other.cancels;
        self.rests += other.rests;
        for (operation, times) in other.operations {
            *self.operations.entry(operation).or_default() += times;
        }
    }

    pub(super) fn operations(&self) -> usize {
        self.operations.values().sum()
    }
}

pub(super) fn outcome(reply: &Reply) -> String {
    match reply {
        Ok(_) => "ok".to_string(),
        Err(error @ (Error::Lance { .. } | Error::Storage { .. })) => {
            format!("{:?} failure", error.kind())
        }
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// UUIDs, and names that Lance makes of them, become `#`.
pub(super) fn without_random(line: &str) -> String {
    let is_random = |part: &str| {
        let hex = part.chars().filter(char::is_ascii_hexdigit).count();
        part.len() >= 8
            && hex == part.chars().filter(|c| *c != '-').count()
            && part.chars().any(|c| c.is_ascii_digit() || c == '-')
    };
    line.split_inclusive(['/', '.', ' ', '(', ')', ',', '_'])
        .map(|part| {
            let word = part.trim_end_matches(['/', '.', ' ', '(', ')', ',', '_']);
            match is_random(word) {
                true => format!("#{}", &part[word.len()..]),
                false => part.to_string(),
            }
        })
        .collect()
}
