//! Names of tables, and which names are allowed.
//!
//! A [`TableIdent`] is a list of parts. One part is a root table, stored at `<root>/<name>.lance`. Ids of more parts
//! name tables in child namespaces, which the catalog's own calls refuse with [`Error::Unsupported`] in this version;
//! the `LanceNamespace` trait takes them.
//!
//! New names follow LanceDB's rule: ASCII letters, digits, `_`, `-` and `.`; not empty, `.` or `..`; at most 255
//! characters (190 on local disk, where the records of a drop must fit the file name limit); and not the reserved
//! `__manifest`. Tables that another client named otherwise can still be opened, dropped, restored and purged as
//! long as the name is a single path segment that stays inside the root.

use std::fmt;

use crate::error::{Error, Result};

/// The longest name, in characters.
pub const MAX_NAME_LEN: usize = 255;

/// The longest name on local disk, in bytes: 255 less what the names of a claim and of a purge add.
pub const MAX_LOCAL_NAME_LEN: usize = 190;

/// The id of a table: its namespace path and its name.
///
/// Anything string-like converts into an id of one part; arrays, slices and vectors of strings into an id with that
/// many parts. A string is never split: `"a.b"` is the root table `a.b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableIdent {
    parts: Vec<String>,
}

impl TableIdent {
    /// An id from its parts, not yet checked: every operation checks before its first request.
    pub fn new(parts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            parts: parts.into_iter().map(Into::into).collect(),
        }
    }

    /// The parts, outermost namespace first, the table's own name last.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The table's own name; empty for an id without parts.
    pub fn name(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }
}

impl fmt::Display for TableIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts.as_slice() {
            [one] => write!(f, "{one:?}"),
            many => write!(f, "{many:?}"),
        }
    }
}

impl From<&str> for TableIdent {
    fn from(name: &str) -> Self {
        Self::new([name])
    }
}

impl From<String> for TableIdent {
    fn from(name: String) -> Self {
        Self::new([name])
    }
}

impl From<&String> for TableIdent {
    fn from(name: &String) -> Self {
        Self::new([name.as_str()])
    }
}

impl<const N: usize> From<[&str; N]> for TableIdent {
    fn from(parts: [&str; N]) -> Self {
        Self::new(parts)
    }
}

impl From<&[String]> for TableIdent {
    fn from(parts: &[String]) -> Self {
        Self::new(parts.iter().cloned())
    }
}

impl From<Vec<String>> for TableIdent {
    fn from(parts: Vec<String>) -> Self {
        Self { parts }
    }
}

impl From<&TableIdent> for TableIdent {
    fn from(ident: &TableIdent) -> Self {
        ident.clone()
    }
}

fn refuse<T>(name: &str, rule: impl Into<String>) -> Result<T> {
    Err(Error::InvalidIdent {
        name: name.to_string(),
        rule: rule.into(),
    })
}

/// Checks a name that is to be given to a new table.
pub(crate) fn check_new(name: &str, max_len: usize) -> Result<()> {
    check_existing(name, max_len)?;
    if let Some(c) = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
    {
        return refuse(
            name,
            format!("only ASCII letters, digits, '_', '-' and '.' are allowed, found {c:?}"),
        );
    }
    Ok(())
}

/// Checks that a name, whoever gave it, is one path segment inside the root.
pub(crate) fn check_existing(name: &str, max_len: usize) -> Result<()> {
    if name.is_empty() {
        return refuse(name, "a name must not be empty");
    }
    if name == "." || name == ".." {
        return refuse(name, "a name must not be '.' or '..'");
    }
    if name == "__manifest" {
        return refuse(name, "'__manifest' is reserved for the namespace manifest");
    }
    if name.chars().count() > MAX_NAME_LEN {
        return refuse(name, format!("at most {MAX_NAME_LEN} characters"));
    }
    if name.len() > max_len {
        return refuse(
            name,
            format!("at most {max_len} bytes on local disk, so that the records of a drop fit"),
        );
    }
    if let Some(c) = name
        .chars()
        .find(|c| c.is_control() || matches!(c, '/' | '\\'))
    {
        return refuse(
            name,
            format!("a name is one path segment, {c:?} is not allowed"),
        );
    }
    if has_percent_escape(name) {
        return refuse(name, "percent escapes are not allowed");
    }
    Ok(())
}

fn has_percent_escape(name: &str) -> bool {
    name.as_bytes()
        .windows(3)
        .any(|w| w[0] == b'%' && w[1].is_ascii_hexdigit() && w[2].is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_follow_lancedbs_rule() {
        let long = "x".repeat(255);
        for good in ["t", "T_1-a.b", "...", "x.lance", "a.deleted", long.as_str()] {
            check_new(good, MAX_NAME_LEN).unwrap();
        }
        let too_long = "x".repeat(300);
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../evil",
            "..\\evil",
            "/abs",
            "a%2fb",
            "a\0b",
            "a b",
            "ä",
            "$",
            "#",
            "__manifest",
            too_long.as_str(),
        ] {
            let error = check_new(bad, MAX_NAME_LEN).unwrap_err();
            assert!(matches!(&error, Error::InvalidIdent { name, .. } if name == bad));
        }
        assert!(check_new(&long, MAX_LOCAL_NAME_LEN).is_err());
    }

    #[test]
    fn stock_names_are_allowed_while_they_stay_inside() {
        for good in ["my table", "ä", "100%", "a$b", "a#b"] {
            check_existing(good, MAX_NAME_LEN).unwrap();
        }
        for bad in ["a/b", "..", "a\\b", "a%2Fb", "a\nb", ""] {
            assert!(check_existing(bad, MAX_NAME_LEN).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_string_is_one_part() {
        assert_eq!(TableIdent::from("a.b").parts(), ["a.b"]);
        assert_eq!(TableIdent::from(["a", "b"]).parts(), ["a", "b"]);
        assert_eq!(TableIdent::from(["a", "b"]).name(), "b");
    }
}
