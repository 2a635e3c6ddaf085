//! What is promised of any root, and of any location below one, whoever names it.

use super::uri::{has_atomic_create, names_the_same, normalize_root};
use super::{RootStore, Slot, join};
use crate::error::{Error, Redactor};
use crate::fuzzing::{local, memory};
use crate::ident::TableIdent;

/// As a path relative to the root and as a URI, it leads strictly below the root or nowhere.
pub(crate) fn any_location(text: &str) {
    for store in [memory(), local()] {
        match join(&store.base, text) {
            Ok(path) => assert_below(store, path.as_ref(), text),
            Err(e) => assert!(matches!(e, Error::InvalidIdent { .. }), "{e:?}"),
        }
        match Slot::at(store, &TableIdent::from(["a", "t"]), text) {
            Ok(slot) => {
                assert_below(store, slot.table.as_ref(), text);
                assert_below(store, slot.tombstone.as_ref(), &format!("{text}$.deleted"));
                assert_eq!(store.location_of(&slot.uri).as_deref(), Some(text));
            }
            Err(e) => assert!(matches!(e, Error::InvalidIdent { .. }), "{e:?}"),
        }
        let uris = [text.to_string(), format!("{}/{text}", store.root_uri)];
        for location in uris.iter().filter_map(|uri| store.location_of(uri)) {
            let path = join(&store.base, &location).expect("a path below the root");
            assert_below(store, path.as_ref(), &location);
        }
    }
    assert!(names_the_same(text, &format!("memory://r/{text}")));
}

fn assert_below(store: &RootStore, path: &str, location: &str) {
    assert_eq!(path, format!("{}/{location}", store.base));
    assert!(
        location
            .split('/')
            .all(|segment| !matches!(segment, "" | "." | "..")),
        "{location:?}"
    );
}

/// It is refused as input, or has one spelling, which is its own.
pub(crate) fn any_root(text: &str) {
    let redactor = Redactor::default();
    match normalize_root(text, &redactor) {
        // Refused next.
        Ok((root, false)) if !has_atomic_create(&root) => {}
        Ok((root, plain)) => {
            assert!(!root.ends_with('/') || root.ends_with("://"), "{root:?}");
            assert_eq!(plain, root.starts_with('/'), "{root:?}");
            let again = normalize_root(&root, &redactor).expect("it is one");
            assert_eq!(again, (root, plain));
        }
        Err(e) => assert!(matches!(e, Error::InvalidInput { .. }), "{e:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any};
    use proptest::{prop_assert_eq, prop_oneof, proptest};

    use super::{any_location, any_root};
    use crate::fuzzing::tests::many;
    use crate::store::uri::{encode_segment, names_the_same};

    fn pieces() -> impl Strategy<Value = String> {
        "([a-zä]{1,3}|/|\\.|\\.\\.|%|%2[fFeE]|%25|\\$|#|\\?|:|@|~|\\\\| |//|\\.lance|\u{0}){0,10}"
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn any_location_is_below_the_root_or_refused(
            text in prop_oneof![pieces(), any::<String>()]
        ) {
            any_location(&text);
        }

        #[test]
        fn any_root_has_one_spelling_or_is_refused(
            scheme in "(memory://|s3://|gs://|az://|file://|file-object-store://|[a-z]{1,5}:/{0,3}|/|~/|)",
            rest in prop_oneof![pieces(), any::<String>()]
        ) {
            any_root(&format!("{scheme}{rest}"));
        }

        #[test]
        fn an_escaped_name_is_the_same(name in "[^/]{0,20}") {
            let escaped = encode_segment(&name);
            prop_assert_eq!(escaped.contains(['/', '?', '#', ' ']), false);
            // A name that holds an escape itself is refused before.
            if !name.contains('%') {
                prop_assert_eq!(names_the_same(&name, &format!("memory://r/{escaped}")), true);
            }
        }
    }
}
