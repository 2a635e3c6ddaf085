//! Reading records: JSON objects only. A list of a record's values, in their order, is none, though serde reads a
//! structure from one too.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub(super) fn parse<T: DeserializeOwned>(content: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Object<T>>(content).map(|object| object.0)
}

/// For a field that is a record itself, or null.
pub(super) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let found = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(found.map(|object| object.0))
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{optional, parse};

    #[derive(Deserialize, Debug, PartialEq)]
    struct Inner {
        n: u32,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Outer {
        n: u32,
        #[serde(default, deserialize_with = "optional")]
        inner: Option<Inner>,
    }

    #[test]
    fn lists_are_no_records() {
        let of = |text: &str| parse::<Outer>(text.as_bytes()).ok();
        let inner = Some(Inner { n: 2 });
        assert_eq!(
            of(r#"{"n":1,"inner":{"n":2},"x":[]}"#),
            Some(Outer { n: 1, inner })
        );
        for none in [r#"{"n":1}"#, r#" {"n":1,"inner":null} "#] {
            assert_eq!(of(none), Some(Outer { n: 1, inner: None }));
        }
        for bad in [
            "[1,null]",
            "[1]",
            r#"{"n":1,"inner":[2]}"#,
            "1",
            "",
            r#"{"n":1}{}"#,
            r#"{"n":1,"n":1}"#,
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
