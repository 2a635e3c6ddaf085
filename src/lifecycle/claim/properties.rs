//! What is promised of any bytes under a claim's name, and of those that we write there.

use serde_json::Value;
use uuid::Uuid;

use super::{Claim, Held, MAX_LEASE};
use crate::error::Error;
use crate::fuzzing::{memory, meta, slot};
use crate::lifecycle::claim::claim_path;

/// They are the claim of that name, or an error that names the object: no decision is read into them.
pub(crate) fn any_bytes(content: &[u8]) {
    // Under the name that they ask for, so that more than the name is looked at.
    let record = serde_json::from_slice::<Value>(content).unwrap_or_default();
    let field = |name: &str, at: usize| record.get(name).or_else(|| record.get(at));
    let drop_id = field("drop_id", 1).and_then(Value::as_str);
    let drop_id = drop_id
        .and_then(|id| Uuid::try_parse(id).ok())
        .unwrap_or_default();
    let generation = field("generation", 4).and_then(Value::as_u64);
    let generation = u32::try_from(generation.unwrap_or_default()).unwrap_or_default();
    if let Some(claim) = read_as(content, drop_id, generation) {
        says(&claim, content, &record);
        assert!(claim.lease() <= MAX_LEASE);
        let path = claim_path(memory(), &slot("t"), drop_id, generation).expect("a path");
        let again = claim.encode(&path).expect("it was read");
        assert_eq!(read_as(&again, drop_id, generation), Some(claim.clone()));
        let since = meta(&path, 0).last_modified;
        assert!(Held { claim, since }.error(&slot("t")).is_retryable());
    }
    let other = Uuid::from_u128(!drop_id.as_u128());
    assert_eq!(read_as(content, other, generation), None);
    assert_eq!(read_as(content, drop_id, generation ^ 1), None);
}

fn read_as(content: &[u8], drop_id: Uuid, generation: u32) -> Option<Claim> {
    let path = claim_path(memory(), &slot("t"), drop_id, generation).expect("a path");
    match Claim::decode(&path, content, drop_id, generation) {
        Ok(claim) => Some(claim),
        Err(Error::CorruptMetadata { path: named, .. }) => {
            assert_eq!(named, path.to_string());
            None
        }
        Err(e) => panic!("{e:?}"),
    }
}

/// What is read is what a plain reader of JSON finds there.
fn says(claim: &Claim, content: &[u8], record: &Value) {
    assert_eq!(
        content.trim_ascii_start().first(),
        Some(&b'{'),
        "no object, and taken for a claim: {claim:?}"
    );
    // Unknown fields may hold what this reader, unlike ours, does not skip.
    let Some(record) = record.as_object() else {
        return;
    };
    let text = format!("{:?}", claim.action).to_lowercase();
    assert_eq!(record["action"].as_str(), Some(text.as_str()));
    assert_eq!(record["lease_ms"].as_u64(), Some(claim.lease_ms));
    assert_eq!(record["format"].as_u64(), Some(1));
    let flag = |field: &str| record.get(field).and_then(Value::as_bool) == Some(true);
    assert_eq!(
        (claim.creating, claim.if_expired),
        (flag("creating"), flag("if_expired"))
    );
    assert_eq!(
        claim.revive.is_some(),
        record.get("revive").is_some_and(Value::is_object)
    );
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::{Strategy, any};
    use proptest::sample::Index;
    use proptest::{prop_assert, prop_assert_eq, proptest};
    use uuid::Uuid;

    use super::{any_bytes, read_as};
    use crate::fuzzing::tests::{config, many};
    use crate::fuzzing::{memory, slot};
    use crate::lifecycle::claim::{Action, Claim, FORMAT, MAX_LEASE, Revive, claim_path};

    fn claim() -> impl Strategy<Value = Claim> {
        let revive =
            (option::of(any::<u64>()), any::<u128>()).prop_map(|(base_version, id)| Revive {
                base_version,
                transaction: Uuid::from_u128(id),
            });
        (
            any::<[u128; 2]>(),
            any::<u32>(),
            any::<u64>(),
            option::of(revive),
            any::<[bool; 3]>(),
        )
            .prop_map(
                |([drop_id, owner], generation, lease_ms, revive, flags)| Claim {
                    format: FORMAT,
                    drop_id: Uuid::from_u128(drop_id),
                    action: match flags[0] {
                        true => Action::Purge,
                        false => Action::Restore,
                    },
                    owner: Uuid::from_u128(owner),
                    generation,
                    lease_ms,
                    revive,
                    creating: flags[1],
                    if_expired: flags[2],
                },
            )
    }

    fn written(claim: &Claim) -> Vec<u8> {
        let path = claim_path(memory(), &slot("t"), claim.drop_id, claim.generation).unwrap();
        claim.encode(&path).unwrap().to_vec()
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn what_is_no_claim_decides_nothing(content in vec(any::<u8>(), 0..200)) {
            any_bytes(&content);
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_is_written_is_read_under_its_own_name_only(claim in claim()) {
            let content = written(&claim);
            any_bytes(&content);
            let read = read_as(&content, claim.drop_id, claim.generation);
            prop_assert_eq!(read.as_ref(), Some(&claim));
            prop_assert!(claim.lease() <= MAX_LEASE);
            prop_assert!(claim.lease().as_millis() == u128::from(claim.lease_ms) || claim.lease() == MAX_LEASE);
        }

        #[test]
        fn a_claim_cut_off_is_unreadable(claim in claim(), at in any::<Index>()) {
            let content = written(&claim);
            let cut = &content[..at.index(content.len())];
            prop_assert_eq!(read_as(cut, claim.drop_id, claim.generation), None);
        }

        #[test]
        fn a_claim_with_bytes_changed_keeps_the_promises(
            claim in claim(), changes in vec((any::<Index>(), any::<u8>()), 1..4)
        ) {
            let mut content = written(&claim);
            for (at, byte) in changes {
                let at = at.index(content.len());
                content[at] = byte;
            }
            any_bytes(&content);
        }

        #[test]
        fn a_claim_as_a_list_of_its_values_is_none(claim in claim()) {
            let fields = serde_json::to_value(&claim).unwrap();
            let values: Vec<_> = fields.as_object().unwrap().values().cloned().collect();
            any_bytes(&serde_json::to_vec(&values).unwrap());
        }
    }
}
