//! What is promised of any bytes under a tombstone's name, and of those that we write there.

use std::time::Duration;

use serde_json::Value;

use super::{CREATING_SIZE, Tombstone};
use crate::error::Error;
use crate::fuzzing::{meta, slot};
use crate::ident::TableIdent;

/// They hide the table, are the same drop each time they are read, and what is not plainly a record never expires.
pub(crate) fn any_bytes(content: &[u8]) {
    let meta = meta(&slot("t").tombstone, content.len());
    let read = Tombstone::decode(content, &meta);
    let again = Tombstone::decode(content, &meta);
    assert_eq!(format!("{read:?}"), format!("{again:?}"));
    let public = read.public(&TableIdent::from("t"));
    assert_eq!(public.parse_error, read.parse_error);
    assert_eq!(public.expires_at, read.expires_at());
    assert!(public.expires_at.is_none_or(|at| at >= public.deleted_at));
    let dropped = Box::new(public);
    assert!(!Error::TableDropped { dropped }.to_string().is_empty());
    if read.parse_error.is_some() {
        assert_eq!(read.expires_at(), None);
        assert_eq!((read.ttl, read.creating, read.version), (None, None, None));
    } else {
        says(&read, content);
    }
}

/// What is read is what a plain reader of JSON finds there.
fn says(read: &Tombstone, content: &[u8]) {
    assert_eq!(
        content.trim_ascii_start().first(),
        Some(&b'{'),
        "no object, and taken for a record: {read:?}"
    );
    // Unknown fields may hold what this reader, unlike ours, does not skip.
    let Ok(record) = serde_json::from_slice::<Value>(content) else {
        return;
    };
    let number = |field: &str| record.get(field).and_then(Value::as_u64);
    assert_eq!(
        record.get("deleted_at_ms").and_then(Value::as_i64),
        Some(read.deleted_at.timestamp_millis())
    );
    assert_eq!(read.ttl, number("ttl_ms").map(Duration::from_millis));
    assert_eq!(read.version, number("version"));
    assert_eq!(
        read.reason.as_deref(),
        record.get("reason").and_then(Value::as_str)
    );
    assert_eq!(
        read.creating.is_some(),
        record.get("creating").is_some_and(Value::is_object)
    );
    assert_eq!(number("format").unwrap_or(1), 1);
    // As a listing takes it, which sees no more than the size.
    assert!(read.creating.is_none() || content.len() == CREATING_SIZE);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::{Just, Strategy, any};
    use proptest::sample::Index;
    use proptest::string::string_regex;
    use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
    use uuid::Uuid;

    use super::any_bytes;
    use crate::fuzzing::tests::{config, many};
    use crate::fuzzing::{meta, slot};
    use crate::ident::{MAX_CHILD_ID_LEN, TableIdent};
    use crate::lifecycle::tombstone::{CREATING_SIZE, Creating, Tombstone};
    use crate::store::Slot;
    use chrono::{DateTime, Utc};
    use std::time::Duration;

    fn time() -> impl Strategy<Value = DateTime<Utc>> {
        let (first, last) = (
            DateTime::<Utc>::MIN_UTC.timestamp_millis(),
            DateTime::<Utc>::MAX_UTC.timestamp_millis(),
        );
        prop_oneof![
            first..=last,
            Just(first),
            Just(last),
            0..=4_000_000_000_000_i64
        ]
        .prop_map(|ms| DateTime::from_timestamp_millis(ms).unwrap())
    }

    fn creating() -> impl Strategy<Value = Creating> {
        (any::<u128>(), any::<u64>()).prop_map(|(owner, lease_ms)| Creating {
            owner: Uuid::from_u128(owner),
            lease_ms,
        })
    }

    fn record() -> impl Strategy<Value = Tombstone> {
        (
            any::<u128>(),
            time(),
            option::of(any::<Duration>()),
            option::of(any::<u64>()),
            option::of(prop_oneof![any::<String>(), "[a-z\"\\\\]{0,1200}"]),
            option::of(creating()),
            option::of(time()),
        )
            .prop_map(
                |(drop_id, deleted_at, ttl, version, reason, creating, held_since)| Tombstone {
                    drop_id: Uuid::from_u128(drop_id),
                    deleted_at,
                    ttl,
                    version,
                    // A create gives no reason.
                    reason: reason.filter(|_| creating.is_none()),
                    creating,
                    parse_error: None,
                    last_modified: None,
                    held_since,
                    // Of a drop that was re-issued.
                    first_id: held_since
                        .filter(|_| creating.is_none())
                        .map(|_| Uuid::from_u128(drop_id.rotate_left(1))),
                },
            )
    }

    /// Any table: its id goes into the record, whoever named it.
    fn table() -> impl Strategy<Value = Slot> {
        let child = string_regex(&format!("[a-z]{{1,{}}}", MAX_CHILD_ID_LEN - 2)).unwrap();
        (
            vec(
                prop_oneof![any::<String>(), "[ä-ü\"]{200,255}", child],
                1..3,
            ),
            any::<String>(),
        )
            .prop_map(|(parts, location)| Slot {
                ident: TableIdent::from(parts),
                location,
                ..slot("t")
            })
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn what_is_no_record_hides_and_never_expires(content in vec(any::<u8>(), 0..200)) {
            any_bytes(&content);
        }

        #[test]
        fn what_looks_like_a_record_does_too(
            content in "[\\[{]?(\"(deleted_at_ms|ttl_ms|creating|format|drop_id|x)\":|[0-9]{1,20},?|null,?|[{}\\[\\],]|\"[^\"]{0,3}\",?){0,12}[\\]}]?"
        ) {
            any_bytes(content.as_bytes());
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_is_written_is_read(written in record(), table in table()) {
            let content = written.encode(&table).unwrap();
            any_bytes(&content);
            let read = Tombstone::decode(&content, &meta(&table.tombstone, content.len()));
            prop_assert_eq!(&read.parse_error, &None);
            prop_assert_eq!(read.drop_id, written.drop_id);
            prop_assert_eq!(read.first_id(), written.first_id());
            prop_assert_eq!(read.deleted_at, written.deleted_at);
            let ttl = |t: &Tombstone| t.ttl.map(|t| t.as_millis().min(u64::MAX.into()));
            prop_assert_eq!(ttl(&read), ttl(&written));
            prop_assert_eq!(read.version, written.version);
            prop_assert_eq!(&read.reason, &written.reason);
            prop_assert_eq!(read.creating, written.creating);
            prop_assert_eq!(read.held_since, written.held_since);
            // A listing tells them apart by this alone.
            prop_assert_eq!(content.len() == CREATING_SIZE, written.creating.is_some());
        }

        #[test]
        fn a_record_of_any_length_but_one_is_a_drops(length in 700_usize..1100) {
            let written = Tombstone::new(DateTime::UNIX_EPOCH, None, None, Some("x".repeat(length)));
            prop_assert!(written.encode(&slot("t")).unwrap().len() != CREATING_SIZE);
        }

        #[test]
        fn a_record_cut_off_is_unreadable_or_the_same(
            written in record(), table in table(), at in any::<Index>()
        ) {
            let content = written.encode(&table).unwrap();
            let meta = meta(&table.tombstone, content.len());
            let cut = &content[..at.index(content.len())];
            any_bytes(cut);
            let (whole, part) = (Tombstone::decode(&content, &meta), Tombstone::decode(cut, &meta));
            if part.parse_error.is_none() {
                prop_assert_eq!(format!("{whole:?}"), format!("{part:?}"));
            }
        }

        #[test]
        fn a_record_with_bytes_changed_keeps_the_promises(
            written in record(), table in table(), changes in vec((any::<Index>(), any::<u8>()), 1..4)
        ) {
            let mut content = written.encode(&table).unwrap().to_vec();
            for (at, byte) in changes {
                let at = at.index(content.len());
                content[at] = byte;
            }
            any_bytes(&content);
        }

        #[test]
        fn unknown_fields_are_ignored(
            written in record(), name in "x[a-z]{0,9}", value in "[1-9][0-9]{0,2}|\"[a-z]*\"|\\[\\]|\\{\"a\":null\\}"
        ) {
            let table = slot("t");
            let content = written.encode(&table).unwrap();
            let text = std::str::from_utf8(&content).unwrap();
            let mut more = text.replacen('{', &format!("{{\"{name}\":{value},"), 1);
            if written.creating.is_some() {
                more.truncate(CREATING_SIZE);
            }
            let meta = meta(&table.tombstone, content.len());
            prop_assert_eq!(
                format!("{:?}", Tombstone::decode(&content, &meta)),
                format!("{:?}", Tombstone::decode(more.as_bytes(), &meta))
            );
        }
    }
}
