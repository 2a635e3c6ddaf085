//! What is promised of any bytes in Lance's marker.

use uuid::Uuid;

use super::Marker;

/// They are the marker of a drop only where they spell its id, and a stock client's otherwise.
pub(crate) fn any_marker(content: &[u8]) {
    match Marker::parse(content) {
        Marker::Absent => panic!("{content:?} is there"),
        Marker::Foreign => {}
        Marker::OfDrop(drop_id) => {
            let text = std::str::from_utf8(content).expect("an id is text");
            assert_eq!(Uuid::parse_str(text.trim()), Ok(drop_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::{prop_assert_eq, proptest};
    use uuid::Uuid;

    use super::any_marker;
    use crate::fuzzing::tests::many;
    use crate::lifecycle::Marker;

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn markers_are_of_a_drop_or_foreign(
            content in vec(any::<u8>(), 0..50), drop_id in any::<u128>()
        ) {
            any_marker(&content);
            let drop_id = Uuid::from_u128(drop_id);
            prop_assert_eq!(Marker::parse(drop_id.to_string().as_bytes()), Marker::OfDrop(drop_id));
        }
    }
}
