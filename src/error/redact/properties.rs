//! What is promised of any storage option's value: whatever an error says, it does not say that.

use std::collections::HashMap;

use super::{PLACEHOLDER, Plain, Redactor, SHORTEST};

/// The first line is the value of an option, the rest the text of an error around it.
pub(crate) fn any_text(text: &str) {
    let (value, around) = text.split_once('\n').unwrap_or((text, ""));
    // Long ones tell no more, and take long.
    let short = |text: &str| text.chars().take(64).collect::<String>();
    let (value, around) = (&short(value), &short(around));
    let (before, after) = around.split_at(around.floor_char_boundary(around.len() / 2));
    any_value(value, before, after);
}

/// The value in an error's text, as it is and as errors write it, is blacked out. Short values and flags are printed as
/// they are (see the crate's guarantees), and what the placeholder itself says is no secret.
pub(super) fn any_value(value: &str, before: &str, after: &str) {
    let redactor = Redactor::new(&HashMap::from([("key".to_string(), value.to_string())]));
    if value.len() < SHORTEST || matches!(value, "true" | "false") || blends(value) {
        return;
    }
    // Of backslashes alone: nothing tells it from quoting.
    if Plain::of(value).bytes.len() < SHORTEST {
        let clean = redactor.text(&format!("{before}{value}{after}"));
        assert!(!clean.contains(value), "{value:?} is in {clean:?}");
        return;
    }
    let clean = redactor.text(&format!("{before}{value}{after}{value}"));
    assert!(!clean.contains(value), "{value:?} is in {clean:?}");
    // Around an escape there is no half of another one.
    let before = before.replace(['%', '\\'], "-");
    for spelled in spellings(value) {
        for text in [
            format!("{before}{spelled} {after}"),
            format!("{before}{spelled},{spelled} {after}"),
            format!("{before}={spelled}&{after}"),
        ] {
            let clean = redactor.text(&text);
            assert!(!clean.contains(value), "{value:?} is in {clean:?}");
            assert!(
                clean.contains(PLACEHOLDER),
                "{value:?} as {spelled:?} is in {clean:?}"
            );
            let cause = redactor.cause(std::io::Error::other(text));
            let debug = format!("{cause:?}");
            let framed = debug.strip_prefix("Redacted { text: \"");
            let framed = framed.and_then(|d| d.strip_suffix("\" }"));
            // What is around the text in `Debug` is no secret.
            for printed in [cause.to_string(), framed.expect("a copy").to_string()] {
                assert!(
                    !printed.contains(value) && printed.contains(PLACEHOLDER),
                    "{value:?} is in {printed:?}"
                );
            }
        }
    }
}

/// Whether the placeholder says the value, or a part of it that could be taken for it at its ends; or the value the
/// placeholder, and with it a whole error that is clean.
fn blends(value: &str) -> bool {
    PLACEHOLDER.contains(value)
        || value.contains(PLACEHOLDER)
        || value.char_indices().any(|(at, _)| {
            PLACEHOLDER.starts_with(&value[at..]) || PLACEHOLDER.ends_with(&value[..at]) && at > 0
        })
}

/// How an error may write a value: as it is, quoted once and twice, as JSON, and as URLs do.
fn spellings(value: &str) -> Vec<String> {
    let quoted = |text: &str| {
        let quoted = format!("{text:?}");
        quoted[1..quoted.len() - 1].to_string()
    };
    let escaped = |keep: &str, upper: bool| -> String {
        value
            .bytes()
            .map(|b| match b {
                b if b.is_ascii_alphanumeric() || keep.as_bytes().contains(&b) => {
                    char::from(b).to_string()
                }
                b if upper => format!("%{b:02X}"),
                b => format!("%{b:02x}"),
            })
            .collect()
    };
    let json = serde_json::Value::from(value).to_string();
    vec![
        value.to_string(),
        quoted(value),
        quoted(&quoted(value)),
        json[1..json.len() - 1].to_string(),
        escaped("-_.~", true),
        escaped("-_.~", false),
        // A form, and a path.
        escaped("-_.*", true),
        escaped("-_.~!$&'()*+,;=:@/", true),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::{prop_assert, prop_assume, prop_oneof, proptest};

    use super::{PLACEHOLDER, any_value};
    use crate::error::Redactor;
    use crate::fuzzing::tests::config;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_value_never_comes_out(
            value in prop_oneof![any::<String>(), "[A-Za-z0-9/+=]{4,40}", "[ -~]{4,40}", "[a\"\\\\%\n~*]{4,12}"],
            before in prop_oneof![any::<String>(), "[a-z =\"]{0,20}"],
            after in prop_oneof![any::<String>(), "[a-z =\"]{0,20}"],
        ) {
            any_value(&value, &before, &after);
        }

        /// Also where one value is within another, or they follow each other.
        #[test]
        fn none_of_several_comes_out(
            values in vec("[a-c]{4,9}", 1..5), glue in vec("[a-d]{0,3}", 5)
        ) {
            let options: HashMap<_, _> = values.iter().enumerate().map(|(i, v)| (i.to_string(), v.clone())).collect();
            let text: String = values.iter().zip(&glue).map(|(v, g)| format!("{v}{g}")).collect();
            let clean = Redactor::new(&options).text(&text);
            for value in &values {
                prop_assume!(!PLACEHOLDER.contains(value.as_str()));
                prop_assert!(!clean.contains(value.as_str()), "{value:?} of {text:?} is in {clean:?}");
            }
        }
    }
}
