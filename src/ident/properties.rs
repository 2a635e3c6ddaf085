//! What is promised of any name, whoever gives it.

use object_store::path::Path;

use super::{
    MAX_LOCAL_NAME_LEN, MAX_NAME_LEN, TableIdent, check_existing, check_existing_parts, check_new,
};
use crate::error::Error;
use crate::fuzzing::{local, memory};
use crate::store::{RootStore, Slot};

/// It is refused as a name, or it leads to one directory right below the root, and its records beside that.
pub(crate) fn any_name(name: &str) {
    refused_or(check_new(name, MAX_NAME_LEN), || {
        check_existing(name, MAX_NAME_LEN).expect("what may be made may be there");
        assert!(name.is_ascii() && name.len() <= MAX_NAME_LEN && name != "__manifest");
        for store in [memory(), local()] {
            Slot::root(store, &TableIdent::from(name)).expect("what may be made can be addressed");
        }
    });
    refused_or(check_new(name, MAX_LOCAL_NAME_LEN), || {
        assert!(name.len() <= MAX_LOCAL_NAME_LEN);
    });
    refused_or(check_existing(name, usize::MAX), || {
        for store in [memory(), local()] {
            below_the_root(store, name);
        }
    });
    refused_or(check_existing_parts(&[name.to_string()]), || {
        assert!(!name.contains('$') && check_existing(name, usize::MAX).is_ok());
    });
}

fn refused_or(checked: crate::error::Result<()>, accepted: impl FnOnce()) {
    match checked {
        Ok(()) => accepted(),
        Err(Error::InvalidIdent { rule, .. }) => assert!(!rule.is_empty()),
        Err(e) => panic!("{e:?}"),
    }
}

fn below_the_root(store: &RootStore, name: &str) {
    let slot = match Slot::root(store, &TableIdent::from(name)) {
        Ok(slot) => slot,
        Err(Error::InvalidIdent { .. }) => return,
        Err(e) => panic!("{e:?}"),
    };
    let child = |path: &Path| {
        let below: Vec<_> = path
            .prefix_match(&store.base)
            .expect("in the root")
            .collect();
        assert_eq!(below.len(), 1, "{path}");
        below[0].as_ref().to_string()
    };
    assert_eq!(child(&slot.table), format!("{name}.lance"));
    assert_eq!(child(&slot.tombstone), format!("{name}.deleted"));
    assert_eq!(
        slot.marker.as_ref(),
        format!("{}/.lance-deregistered", slot.table)
    );
    assert_eq!(
        store.location_of(&slot.uri).as_deref(),
        Some(slot.location.as_str())
    );
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::any_name;
    use crate::fuzzing::tests::{config, many};
    use crate::ident::{
        DELIMITER, NamespaceIdent, TableIdent, check_existing_parts, check_new_parts,
    };

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn any_name_stays_inside_or_is_refused(
            name in prop_oneof![
                any::<String>(),
                "[A-Za-z0-9_.-]{1,300}",
                "([.]|/|\\\\|%|%2[fFeE]|\\$|#|\\?|:|~| |\u{0}|\u{7f}|\u{85}|__manifest|[a-zä😀]){0,12}",
            ]
        ) {
            any_name(&name);
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn ids_are_made_of_their_parts(parts in vec(any::<String>(), 0..5)) {
            let table = TableIdent::new(&parts);
            let namespace = NamespaceIdent::new(&parts);
            prop_assert_eq!(table.parts(), parts.as_slice());
            prop_assert_eq!(namespace.parts(), parts.as_slice());
            prop_assert_eq!(&TableIdent::from(parts.clone()), &table);
            prop_assert_eq!(&TableIdent::from(parts.as_slice()), &table);
            if let Some((name, above)) = parts.split_last() {
                prop_assert_eq!(table.name(), name);
                prop_assert_eq!(table.namespace(), NamespaceIdent::new(above));
                prop_assert_eq!(namespace.parent(), NamespaceIdent::new(above));
            }
            // Printed, no two are alike.
            let mut other = parts.clone();
            other.push(String::new());
            prop_assert!(TableIdent::new(&other).to_string() != table.to_string());
        }

        /// In the manifest an id is one text.
        #[test]
        fn joined_ids_are_split_into_the_same_parts(
            parts in vec(prop_oneof!["[A-Za-z0-9_.-]{1,20}", "[a-z$]{0,3}", any::<String>()], 1..5)
        ) {
            if check_existing_parts(&parts).is_ok() {
                let joined = parts.join("$");
                let split: Vec<_> = joined.split(DELIMITER).collect();
                prop_assert_eq!(&split, &parts);
            }
            if check_new_parts(&parts, 60).is_ok() {
                prop_assert!(parts.join("$").len() <= 60 && check_existing_parts(&parts).is_ok());
            }
        }
    }
}
