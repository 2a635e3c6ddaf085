//! The model convicts invented histories, and a run convicts a store that is tampered with.

use std::time::Duration;

use chrono::{DateTime, Utc};
use lancekeep::Error;
use lancekeep::uuid::Uuid;

use super::calls::{Call, Luck, answers};
use super::history::{Answer, Deed, Found, Refusal, Status, Table};
use super::model::{Model, OpId};
use super::play::{Sabotage, play};
use crate::support::Fault;

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH
}

fn id(drop: u128) -> Uuid {
    Uuid::from_u128(drop)
}

/// A history under way.
struct History {
    model: Model,
    next: OpId,
}

impl History {
    fn new() -> Self {
        let model = Model::new();
        Self { model, next: 1 }
    }

    fn begin(&mut self, deed: Deed) -> OpId {
        let op = self.next;
        self.next += 1;
        self.model.start(op, deed);
        op
    }

    fn end(&mut self, op: OpId, answer: Answer) -> Result<(), String> {
        self.model.end(op, &answer, false, false, now())
    }

    /// Begun and answered with nothing in between.
    fn ask(&mut self, deed: Deed, answer: Answer) -> Result<(), String> {
        let op = self.begin(deed);
        self.end(op, answer)
    }

    fn honest(&mut self, deed: Deed, answer: Answer) {
        self.ask(deed, answer).unwrap();
    }

    fn lie(&self, deed: Deed, answer: Answer) {
        let mut asked = Self {
            model: self.model.clone(),
            next: self.next,
        };
        assert!(asked.ask(deed, answer).is_err(), "{deed:?}: {answer:?}");
    }

    fn may_be(&self, found: Found) -> bool {
        self.model.clone().settle(&found, now()).is_ok()
    }

    /// A table with one row, live since version 1.
    fn live(row: i32) -> Self {
        let mut history = Self::new();
        history.honest(create(row), Answer::Created { version: 1 });
        history
    }

    /// The same, dropped.
    fn dropped(row: i32, drop: u128) -> Self {
        let mut history = Self::live(row);
        history.honest(DROP, Answer::Dropped(id(drop)));
        history
    }
}

const DROP: Deed = Deed::Drop { expires: None };
const UNDROP: Deed = Deed::Undrop { only: None };
const PURGE: Deed = Deed::Purge { only: None };

fn create(row: i32) -> Deed {
    let overwrite = false;
    Deed::Create { row, overwrite }
}

fn table(row: i32, version: u64) -> Table {
    Table { row, version }
}

#[test]
fn a_lost_table_is_convicted() {
    let history = History::live(1);
    assert!(history.may_be(Found::Live(table(1, 1))));
    assert!(!history.may_be(Found::Bare { clean: true }));
    assert!(!history.may_be(Found::Live(table(2, 1))));
    history.lie(Deed::Look, Answer::Status(Status::Absent));
    history.lie(Deed::Look, Answer::Named(false));
    history.lie(Deed::Look, Answer::Refused(Refusal::NotFound));
    history.lie(Deed::Look, Answer::Unread { version: 1 });
    history.lie(DROP, Answer::Refused(Refusal::NotFound));
    history.lie(create(2), Answer::Created { version: 1 });

    let dropped = History::dropped(1, 7);
    let kept = |row, drop: u128| Found::Dropped {
        table: Some(table(row, 1)),
        drop_id: id(drop),
    };
    assert!(dropped.may_be(kept(1, 7)));
    assert!(!dropped.may_be(kept(1, 8)));
    assert!(!dropped.may_be(kept(2, 7)));
    assert!(!dropped.may_be(Found::Bare { clean: true }));
    assert!(!dropped.may_be(Found::Live(table(1, 1))));
    dropped.lie(Deed::Look, Answer::Kept(None));
    dropped.lie(Deed::Look, Answer::Opened(table(1, 1)));
    dropped.lie(UNDROP, Answer::Refused(Refusal::NotFound));
}

#[test]
fn rows_that_come_back_are_convicted() {
    let mut purged = History::dropped(1, 7);
    purged.honest(PURGE, Answer::Purged(id(7)));
    assert!(purged.may_be(Found::Bare { clean: true }));
    purged.lie(UNDROP, Answer::Undropped(id(7)));
    purged.lie(Deed::Look, Answer::Opened(table(1, 1)));
    purged.honest(create(2), Answer::Created { version: 1 });
    purged.lie(Deed::Look, Answer::Opened(table(1, 1)));
    purged.honest(Deed::Look, Answer::Opened(table(2, 1)));

    let mut revived = History::dropped(1, 7);
    revived.lie(create(2), Answer::Created { version: 1 });
    revived.honest(create(2), Answer::Created { version: 2 });
    revived.lie(Deed::Look, Answer::Opened(table(1, 2)));
    revived.lie(Deed::Look, Answer::Opened(table(1, 1)));
    // While the revive is under way no more than afterwards.
    let mut reviving = History::dropped(1, 7);
    let revive = reviving.begin(create(2));
    reviving.lie(Deed::Look, Answer::Opened(table(1, 1)));
    reviving.honest(Deed::Look, Answer::Opened(table(2, 2)));
    reviving
        .end(revive, Answer::Created { version: 2 })
        .unwrap();
}

#[test]
fn an_old_drop_id_that_works_is_convicted() {
    let mut history = History::dropped(1, 7);
    history.honest(UNDROP, Answer::Undropped(id(7)));
    history.honest(DROP, Answer::Dropped(id(8)));
    let only = Some(id(7));
    history.lie(Deed::Undrop { only }, Answer::Undropped(id(7)));
    history.lie(Deed::Undrop { only }, Answer::Undropped(id(8)));
    history.lie(Deed::Purge { only }, Answer::Purged(id(7)));
    history.lie(Deed::Purge { only }, Answer::Purged(id(8)));
    history.lie(DROP, Answer::Dropped(id(9)));
    let refused = Answer::Refused(Refusal::NotFound);
    history.honest(Deed::Undrop { only }, refused);
    history.honest(Deed::Purge { only }, refused);
    let only = Some(id(8));
    history.lie(Deed::Undrop { only }, refused);
    history.honest(Deed::Undrop { only }, Answer::Undropped(id(8)));
}

#[test]
fn a_second_winner_is_convicted() {
    let both = |first: (Deed, Answer), second: (Deed, Answer)| {
        let mut history = History::dropped(1, 7);
        let ops = [first, second].map(|(deed, answer)| (history.begin(deed), answer));
        ops.into_iter()
            .try_for_each(|(op, answer)| history.end(op, answer))
    };
    let undrop = (UNDROP, Answer::Undropped(id(7)));
    let purge = (PURGE, Answer::Purged(id(7)));
    let restoring = (PURGE, Answer::Refused(Refusal::Restoring(id(7))));
    let purging = (UNDROP, Answer::Refused(Refusal::Purging(id(7))));
    assert!(both(undrop, undrop).is_err());
    assert!(both(purge, purge).is_err());
    assert!(both(undrop, purge).is_err());
    assert!(both(purge, undrop).is_err());
    assert!(both(undrop, (create(2), Answer::Created { version: 2 })).is_err());
    assert!(both(undrop, restoring).is_ok());
    assert!(both(purging, purge).is_ok());
    // Both lost, and to whom?
    assert!(both(purging, restoring).is_ok());
    let mut history = History::dropped(1, 7);
    history.honest(UNDROP, Answer::Undropped(id(7)));
    history.lie(PURGE, restoring.1);
    history.lie(UNDROP, purging.1);
    history.lie(UNDROP, Answer::Refused(Refusal::Conflict));
}

#[test]
fn what_became_of_a_stopped_operation_stays_open_until_it_is_seen() {
    let mut history = History::dropped(1, 7);
    let undrop = history.begin(UNDROP);
    history.model.lose(undrop, now()).unwrap();
    let live = Found::Live(table(1, 1));
    let kept = Found::Dropped {
        table: Some(table(1, 1)),
        drop_id: id(7),
    };
    assert!(history.may_be(live) && history.may_be(kept));
    assert!(!history.may_be(Found::Bare { clean: true }));
    history.honest(Deed::Look, Answer::Opened(table(1, 1)));
    assert!(history.may_be(live) && !history.may_be(kept));
    history.honest(DROP, Answer::Dropped(id(8)));
    // Its claim was on the drop before.
    history.lie(Deed::Look, Answer::Opened(table(1, 1)));

    // A purge of an older drop must not meet the table that was restored.
    let mut history = History::dropped(1, 7);
    let purge = history.begin(PURGE);
    history.honest(UNDROP, Answer::Undropped(id(7)));
    history.model.lose(purge, now()).unwrap();
    assert!(history.may_be(live));
    assert!(!history.may_be(Found::Bare { clean: true }));

    // A stopped create that nobody can finish makes nothing later.
    let mut history = History::new();
    let stopped = history.begin(create(1));
    history.model.lose(stopped, now()).unwrap();
    history.honest(Deed::Look, Answer::Status(Status::Incomplete));
    assert!(!history.may_be(live));
}

#[test]
fn a_purge_before_its_time_is_convicted() {
    let mut history = History::live(1);
    let expires = Some(now() + Duration::from_secs(5));
    history.honest(Deed::Drop { expires }, Answer::Dropped(id(7)));
    history.lie(Deed::PurgeExpired, Answer::Purged(id(7)));
    history.honest(Deed::PurgeExpired, Answer::Nothing);
    let purge = history.begin(Deed::PurgeExpired);
    let later = now() + Duration::from_secs(5);
    let purged = Answer::Purged(id(7));
    history
        .model
        .end(purge, &purged, false, false, later)
        .unwrap();

    let kept = History::dropped(1, 7);
    kept.lie(Deed::PurgeExpired, Answer::Purged(id(7)));
}

#[test]
fn a_failure_must_be_the_one_that_was_injected() {
    let storage = |text: &str| Error::Storage {
        operation: "read",
        path: "root/a.deleted".to_string(),
        retryable: true,
        source: text.to_string().into(),
    };
    let call = Call::Open { table: 0 };
    let unlucky = Luck {
        faults: vec![Fault::Unavailable503],
        waited: false,
    };
    let answered = |error: Error, luck: &Luck| answers(call, &Err(error), luck);
    let unavailable = "503 Service Unavailable: reduce your request rate";
    assert!(answered(storage(unavailable), &unlucky).is_ok());
    assert!(answered(storage(unavailable), &Luck::default()).is_err());
    assert!(answered(storage("something else"), &unlucky).is_err());
    // As "not found" it goes to the model, which knows better.
    let missing = Error::TableNotFound {
        ident: "a".into(),
        reason: String::new(),
    };
    let said = answered(missing, &unlucky).unwrap();
    assert_eq!(said, [(0, Answer::Refused(Refusal::NotFound))]);
    History::live(1).lie(Deed::Look, said[0].1);
}

#[test]
fn a_store_that_is_tampered_with_is_convicted() {
    play(5, 300, None).unwrap();
    for sabotage in [
        Sabotage::ForgetADrop,
        Sabotage::LoseData,
        Sabotage::LoseAVersion,
        Sabotage::LeaveSomething,
    ] {
        let violation = play(5, 300, Some(sabotage)).unwrap_err();
        println!("{sabotage:?}: {}", violation.lines().next().unwrap());
    }
}
