//! What is promised of any name in the root, and of any text given as a page token.

use super::{PageToken, STORE_PAGE};
use crate::error::Error;
use crate::ident::{self, DELIMITER};
use crate::lifecycle::tombstone::CREATING_SIZE;
use crate::listing::Entry;

/// As an object and as a directory, a name means what the catalog names so, or nothing.
pub(crate) fn any_child(name: &str) {
    for size in [0, CREATING_SIZE as u64] {
        match Entry::of_object(name, size) {
            None => {}
            Some(Entry::Tombstone(hiding)) => {
                assert_usable(&hiding.name);
                assert_eq!(name, format!("{}.deleted", hiding.name));
            }
            Some(Entry::Claim {
                name: stem,
                drop_id,
                object,
            }) => {
                assert_usable(&stem);
                assert_eq!(object, name);
                let rest = name.strip_prefix(&format!("{stem}.deleted.{drop_id}."));
                assert!(
                    rest.is_some_and(is_of_a_claim),
                    "{name:?} was not written by us"
                );
            }
            Some(other) => panic!("{name:?} is an object, not {other:?}"),
        }
    }
    match Entry::of_prefix(name) {
        None => assert!(!name.ends_with(".lance"), "{name:?} is a table's directory"),
        Some(Entry::Table(table)) => {
            assert_usable(&table);
            assert_eq!(name, format!("{table}.lance"));
        }
        Some(Entry::Unusable(table)) => {
            assert!(ident::check_existing(&table, usize::MAX).is_err());
            assert_eq!(name, format!("{table}.lance"));
        }
        Some(Entry::PurgeDir {
            name: stem,
            drop_id,
            dir,
        }) => {
            assert_usable(&stem);
            assert_eq!(dir, name);
            let rest = name.strip_prefix(&format!("{stem}.deleted.{drop_id}.purge."));
            assert!(rest.is_some_and(is_unique), "{name:?} was not named by us");
        }
        Some(Entry::ChildDir(dir)) => {
            assert_eq!(dir, name);
            assert!(name.contains(DELIMITER), "{name:?} may be a root table's");
        }
        Some(other) => panic!("{name:?} is a directory, not {other:?}"),
    }
}

fn assert_usable(name: &str) {
    ident::check_existing(name, usize::MAX).expect("a name that can be asked for");
}

fn is_of_a_claim(rest: &str) -> bool {
    match rest.split_once('.') {
        None => rest == "claim",
        Some(("claim", n)) => n.parse::<u32>().is_ok_and(|g| g > 0 && g.to_string() == n),
        Some(("clock", unique)) => is_unique(unique),
        Some(_) => false,
    }
}

fn is_unique(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// It is a token that a listing may have returned, spelled as then, or is refused as wrong input.
pub(crate) fn any_page_token(text: &str) {
    match PageToken::decode(text) {
        Ok(token) => {
            assert!((1..=STORE_PAGE).contains(&token.size));
            assert_eq!(token.encode().expect("it was read"), text);
        }
        Err(e) => assert!(matches!(e, Error::InvalidInput { .. }), "{e:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::{Strategy, any};
    use proptest::sample::Index;
    use proptest::string::string_regex;
    use proptest::{prop_assert, prop_assert_eq, prop_assume, prop_oneof, proptest};
    use uuid::Uuid;

    use super::{PageToken, STORE_PAGE, any_child, any_page_token};
    use crate::error::Error;
    use crate::fuzzing::memory;
    use crate::fuzzing::tests::{config, many};
    use crate::ident::{self, TableIdent};
    use crate::lifecycle::claim::claim_path;
    use crate::lifecycle::purge::local::purge_dir_name;
    use crate::listing::Entry;
    use crate::store::Slot;

    /// Names of tables, with a liking for those that look like the names of records.
    fn table_name() -> impl Strategy<Value = String> {
        let id = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
        let looks = format!(
            "([a-z.]{{0,4}}|\\.deleted|\\.lance|\\.{id}|\\.claim|\\.[0-9]|\\.purge|\\.clock){{1,6}}"
        );
        prop_oneof![
            "[A-Za-z0-9_.-]{1,40}",
            any::<String>(),
            string_regex(&looks).unwrap(),
            "[0-9a-f]{8}_[a-z$]{1,9}(\\.lance)?"
        ]
    }

    fn token() -> impl Strategy<Value = PageToken> {
        (option::of(any::<String>()), 1..=STORE_PAGE, any::<String>())
            .prop_map(|(page, size, after)| PageToken { page, size, after })
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn any_name_has_one_meaning_or_none(name in prop_oneof![table_name(), any::<String>()]) {
            any_child(&name);
        }

        #[test]
        fn any_text_is_a_token_of_ours_or_refused(
            text in prop_oneof![any::<String>(), "[0-9a-f]{0,80}", "(7b|22|5b|7d|5d|3a|2c|[0-9A-F+ ]{2}){0,40}"]
        ) {
            any_page_token(&text);
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn names_of_records_are_read_as_written(
            name in table_name(), id in any::<u128>(), generation in any::<u32>(), size in any::<u64>()
        ) {
            prop_assume!(ident::check_existing(&name, usize::MAX).is_ok());
            let drop_id = Uuid::from_u128(id);
            // Lance cannot address some names here; then nothing is written for them.
            let Ok(slot) = Slot::root(memory(), &TableIdent::from(&name)) else {
                return Ok(());
            };
            let tombstone = slot.tombstone.filename().unwrap();
            prop_assert!(matches!(
                Entry::of_object(tombstone, size),
                Some(Entry::Tombstone(h)) if h.name == name
            ));
            let claim = claim_path(memory(), &slot, drop_id, generation).unwrap();
            let object = claim.filename().unwrap();
            prop_assert!(matches!(
                Entry::of_object(object, size),
                Some(Entry::Claim { name: n, drop_id: d, object: o }) if n == name && d == drop_id && o == object
            ), "{object:?}");
            let drawn = matches!(Entry::of_prefix(&name), Some(Entry::ChildDir(_)));
            let purging = purge_dir_name(&name, drop_id);
            let table = slot.table.filename().unwrap();
            match (Entry::of_prefix(table), Entry::of_prefix(&purging)) {
                (Some(Entry::Table(t)), Some(Entry::PurgeDir { name: n, drop_id: d, dir })) => {
                    prop_assert!(!drawn);
                    prop_assert_eq!((t, n, d, dir), (name.clone(), name.clone(), drop_id, purging.clone()));
                }
                // A name as tables in namespaces have: never purged as a root table's.
                (Some(Entry::ChildDir(_)), Some(Entry::ChildDir(_))) => prop_assert!(drawn),
                other => prop_assert!(false, "{other:?}"),
            }
            for other in [tombstone, object, table, purging.as_str()] {
                any_child(other);
            }
        }

        #[test]
        fn tokens_are_read_as_written(token in token()) {
            let text = token.encode().unwrap();
            let read = PageToken::decode(&text).unwrap();
            prop_assert_eq!((read.page, read.size, read.after), (token.page, token.size, token.after));
        }

        #[test]
        fn a_token_changed_is_another_one_or_refused(
            token in token(), changes in vec((any::<Index>(), "[0-9a-fA-F+ ]"), 1..4), cut in any::<Index>()
        ) {
            let text = token.encode().unwrap();
            let mut changed: Vec<String> = text.chars().map(String::from).collect();
            for (at, byte) in changes {
                let at = at.index(changed.len());
                changed[at] = byte;
            }
            any_page_token(&changed.concat());
            let cut = &text[..cut.index(text.len())];
            let refused = matches!(PageToken::decode(cut), Err(Error::InvalidInput { .. }));
            prop_assert!(refused, "{cut}");
        }
    }
}
