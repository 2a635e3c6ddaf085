//! Keeps the values of storage options out of the text of errors.

use std::collections::HashMap;

use snafu::Snafu;

use crate::error::Cause;

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

/// What is printed instead of a value.
const PLACEHOLDER: &str = "[storage option]";

/// The shortest value that is blacked out, in bytes.
const SHORTEST: usize = 4;

/// Blacks out the values of storage options in the text of errors, however these spell them: as they are, quoted (also
/// what was quoted before), or as URLs do.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    values: Vec<Value>,
}

#[derive(Clone)]
struct Value {
    literal: String,
    /// As [`Plain`]; empty where too little is left to know it by.
    plain: Vec<u8>,
}

impl Redactor {
    pub(crate) fn new(options: &HashMap<String, String>) -> Self {
        let values = options
            .values()
            // A short value or a flag would black out half of every message and hides nothing.
            .filter(|v| v.len() >= SHORTEST && !matches!(v.as_str(), "true" | "false"))
            .map(|v| {
                let mut plain = Plain::of(v).bytes;
                if plain.len() < SHORTEST {
                    plain.clear();
                }
                let literal = v.clone();
                Value { literal, plain }
            })
            .collect();
        Self { values }
    }

    pub(crate) fn cause(&self, error: impl std::error::Error + Send + Sync + 'static) -> Cause {
        let mut texts = vec![error.to_string(), format!("{error:?}")];
        let mut next = std::error::Error::source(&error);
        while let Some(inner) = next {
            texts.push(inner.to_string());
            next = inner.source();
        }
        if texts.iter().all(|t| self.is_clean(t)) {
            Box::new(error)
        } else {
            Box::new(Redacted {
                text: self.text(&texts[0]),
            })
        }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
        for (start, end) in self.found(text) {
            clean.push_str(&text[done..start]);
            clean.push_str(PLACEHOLDER);
            done = end;
        }
        clean.push_str(&text[done..]);
        clean
    }

    fn is_clean(&self, text: &str) -> bool {
        self.found(text).is_empty()
    }

    /// Where values are, in order; those that overlap as one.
    fn found(&self, text: &str) -> Vec<(usize, usize)> {
        if self.values.is_empty() {
            return Vec::new();
        }
        let plain = Plain::of(text);
        let mut found: Vec<(usize, usize)> = Vec::new();
        for value in &self.values {
            let literal = text.match_indices(&value.literal);
            found.extend(literal.map(|(at, v)| (at, at + v.len())));
            if !value.plain.is_empty() {
                found.extend(plain.find(&value.plain));
            }
        }
        found.sort_unstable();
        found.dedup_by(|next, last| {
            let overlap = next.0 < last.1;
            if overlap {
                last.1 = last.1.max(next.1);
            }
            overlap
        });
        found
    }
}

/// A text without what quoting and escaping put into it: percent escapes and those with a backslash are undone, as often
/// as they were done. So all spellings of a value become one.
struct Plain {
    bytes: Vec<u8>,
    /// For each byte, from where to where in the text it was told.
    places: Vec<(usize, usize)>,
}

impl Plain {
    fn of(text: &str) -> Self {
        let (mut decoded, mut places) = (Vec::new(), Vec::new());
        for (at, byte) in text.bytes().enumerate() {
            decoded.push(byte);
            places.push((at, at + 1));
            while let [.., b'%', high, low] = decoded[..]
                && let (Some(high), Some(low)) =
                    (char::from(high).to_digit(16), char::from(low).to_digit(16))
            {
                let first = decoded.len() - 3;
                decoded.truncate(first);
                decoded.push((high * 16 + low) as u8);
                places[first].1 = at + 1;
                places.truncate(first + 1);
            }
        }
        let mut plain = Self {
            bytes: Vec::with_capacity(decoded.len()),
            places: Vec::with_capacity(decoded.len()),
        };
        let mut at = 0;
        for chunk in decoded.utf8_chunks() {
            let (mut rest, mut escaped) = (chunk.valid(), false);
            while let Some(c) = rest.chars().next() {
                let unescaped = escaped.then(|| unescape(rest)).flatten();
                let (meant, length) = unescaped.unwrap_or((c, c.len_utf8()));
                escaped = c == '\\';
                if !escaped {
                    // A plus is a space of a form.
                    let meant = if meant == '+' { ' ' } else { meant };
                    plain.push(meant, (places[at].0, places[at + length - 1].1));
                }
                (at, rest) = (at + length, &rest[length..]);
            }
            for byte in chunk.invalid() {
                plain.bytes.push(*byte);
                plain.places.push(places[at]);
                at += 1;
            }
        }
        plain
    }

    fn push(&mut self, c: char, place: (usize, usize)) {
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            self.bytes.push(byte);
            self.places.push(place);
        }
    }

    fn find(&self, value: &[u8]) -> impl Iterator<Item = (usize, usize)> {
        let windows = self.bytes.windows(value.len()).enumerate();
        windows
            .filter(move |(_, window)| *window == value)
            .map(move |(at, _)| (self.places[at].0, self.places[at + value.len() - 1].1))
    }
}

/// What the escape whose backslash is before `text` stands for, as `Debug` and JSON write it, and its length.
fn unescape(text: &str) -> Option<(char, usize)> {
    let simple = match text.chars().next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => {
            let (digits, length) = match text.strip_prefix("u{") {
                Some(braced) => braced.split_once('}').map(|(d, _)| (d, d.len() + 3))?,
                None => (text.get(1..5)?, 5),
            };
            let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
            let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
            return Some((char::from_u32(code)?, length));
        }
        _ => return None,
    };
    Some((simple, 1))
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

/// The text of an error that held a storage option's value.
#[derive(Debug, Snafu)]
#[snafu(display("{text}"))]
struct Redacted {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redactor_blacks_out_values_anywhere_in_the_chain() {
        let options = HashMap::from([
            ("secret".to_string(), "sentinel-1234".to_string()),
            ("allow_http".to_string(), "true".to_string()),
        ]);
        let redactor = Redactor::new(&options);
        let inner = std::io::Error::other("denied for sentinel-1234");
        let error = object_store::Error::Generic {
            store: "S3",
            source: Box::new(inner),
        };
        let cause = redactor.cause(error);
        assert!(!format!("{cause} {cause:?}").contains("sentinel"));
        assert!(cause.to_string().contains("[storage option]"));
        assert!(!format!("{redactor:?}").contains("sentinel"));
    }

    #[test]
    fn a_value_is_found_however_it_is_spelled() {
        let value = r#"{"key":"a/b+c=="}"#;
        let redactor = Redactor::new(&HashMap::from([("k".to_string(), value.to_string())]));
        let twice = format!("{:?}", format!("{value:?}"));
        let lower = "%7b%22key%22%3a%22a%2fb%2bc%3d%3d%22%7d";
        let path = "%7B%22key%22:%22a/b+c==%22%7D";
        for spelled in [value, twice.as_str(), lower, path] {
            let clean = redactor.text(&format!("denied: {spelled}, sorry"));
            assert!(!clean.contains("key"), "{clean}");
            assert!(
                clean.starts_with("denied: ") && clean.ends_with(", sorry"),
                "{clean}"
            );
        }
        // Of two that overlap nothing is left.
        let two =
            HashMap::from([1, 2].map(|n| (n.to_string(), ["abcdX", "Xefgh"][n - 1].to_string())));
        assert_eq!(
            Redactor::new(&two).text("(abcdXefgh)"),
            "([storage option])"
        );
    }

    #[test]
    fn a_clean_error_keeps_its_type() {
        let redactor = Redactor::default();
        let cause = redactor.cause(std::io::Error::other("x"));
        assert!(cause.downcast_ref::<std::io::Error>().is_some());
    }
}
