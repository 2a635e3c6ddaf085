//! Everything that a seed decides.

use std::time::Duration;

use lancekeep::uuid::Uuid;

use super::calls::{Call, TABLES};
use super::play::{OVER_A_LEASE, PART, hours};
use crate::support::{Fault, When};

const RETENTIONS: [Option<Duration>; 5] = [
    None,
    Some(Duration::ZERO),
    Some(hours(4)),
    Some(hours(40)),
    Some(hours(160)),
];
const ADVANCES: [Duration; 6] = [
    PART,
    hours(6),
    hours(12),
    OVER_A_LEASE,
    hours(42),
    hours(168),
];

/// SplitMix64: what a seed gives is the same everywhere.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(sides).unwrap()).unwrap()
    }

    /// Never with odds of 0.
    pub(super) fn one_in(&mut self, odds: usize) -> bool {
        odds > 0 && self.below(odds) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What kind of run a seed gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Percent of turns that the actor of the last one gets again.
    pub(super) stick: usize,
    /// Percent of operations that go to the first table.
    pub(super) hot: usize,
    /// One in so many: a request fails, an actor stops at it, the clock moves instead.
    pub(super) fault: usize,
    pub(super) crash: usize,
    pub(super) clock: usize,
}

impl Style {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self {
            stick: dice.pick(&[0, 40, 80, 95]),
            hot: dice.pick(&[0, 30, 80]),
            fault: dice.pick(&[0, 25, 60, 150]),
            crash: dice.pick(&[0, 80, 200]),
            clock: dice.pick(&[15, 60, 200]),
        }
    }
}

impl Dice {
    /// How far the clock moves.
    pub(super) fn advance(&mut self) -> Duration {
        match self.one_in(2) {
            true => self.pick(&ADVANCES),
            false => Duration::from_secs(1 + self.next() % 5),
        }
    }

    /// How a request fails.
    pub(super) fn fault(&mut self) -> (When, Fault) {
        self.pick(&[
            (When::Before, Fault::Unavailable503),
            (When::Before, Fault::Timeout),
            (When::Before, Fault::PermissionDenied),
            (When::After, Fault::Unavailable503),
            (When::After, Fault::Timeout),
        ])
    }

    pub(super) fn table(&mut self, style: Style) -> usize {
        match self.below(100) < style.hot {
            true => 0,
            false => self.below(TABLES.len()),
        }
    }

    /// What to do to a table of which these drops are remembered.
    pub(super) fn call(&mut self, table: usize, row: i32, remembered: &[Uuid]) -> Call {
        let only = match remembered.is_empty() {
            true => None,
            false => Some(self.pick(remembered)),
        };
        let create = |overwrite| Call::Create {
            table,
            overwrite,
            row,
        };
        match self.below(100) {
            0..20 => create(false),
            20..27 => create(true),
            27..47 => Call::Drop {
                table,
                retention: self.pick(&RETENTIONS),
            },
            47..57 => Call::Undrop { table, only: None },
            57..62 => Call::Undrop { table, only },
            62..69 => Call::Purge { table, only: None },
            69..72 => Call::Purge { table, only },
            72..76 => Call::PurgeDropped { expired: true },
            76..77 => Call::PurgeDropped { expired: false },
            77..85 => Call::Open { table },
            85..90 => Call::Status { table },
            90..92 => Call::Names,
            92..94 => Call::Drops,
            94..96 => Call::Reconcile { dry: false },
            96..97 => Call::Reconcile { dry: true },
            _ => Call::Declare { table },
        }
    }
}
