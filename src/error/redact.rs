//! Keeps the values of storage options out of the text of errors.

use std::collections::HashMap;

use snafu::Snafu;

use crate::error::Cause;

/// Blacks out the values of storage options in the text of errors.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    values: Vec<String>,
}

impl Redactor {
    pub(crate) fn new(options: &HashMap<String, String>) -> Self {
        let mut values: Vec<String> = options
            .values()
            // A short value or a flag would black out half of every message and hides nothing.
            .filter(|v| v.len() >= 4 && !matches!(v.as_str(), "true" | "false"))
            // As it is, as `Debug` escapes it, and as a URL does.
            .flat_map(|v| [v.clone(), v.escape_debug().to_string(), url_encoded(v)])
            .collect();
        // Longest first, so that a value that holds another one goes as a whole.
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
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
        self.values.iter().fold(text.to_string(), |t, v| {
            t.replace(v.as_str(), "[storage option]")
        })
    }

    fn is_clean(&self, text: &str) -> bool {
        !self.values.iter().any(|v| text.contains(v.as_str()))
    }
}

fn url_encoded(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
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
    fn a_clean_error_keeps_its_type() {
        let redactor = Redactor::default();
        let cause = redactor.cause(std::io::Error::other("x"));
        assert!(cause.downcast_ref::<std::io::Error>().is_some());
    }
}
