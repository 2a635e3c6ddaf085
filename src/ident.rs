//! Names of tables and namespaces, and which names are allowed.
//!
//! A [`TableIdent`] is a list of parts. One part is a root table, stored at `<root>/<name>.lance`. More parts are a
//! child table: the namespace's path, then the name; where it is stored is recorded in `<root>/__manifest`. There the
//! parts are joined with `$`, so no part of such an id may hold one, and the joined id has at most 512 bytes (180 on
//! local disk, where it is part of a directory's name).
//!
//! New names follow LanceDB's rule: ASCII letters, digits, `_`, `-` and `.`; not empty, `.` or `..`; at most 255
//! characters (190 on local disk, where the records of a drop must fit the file name limit); and not the reserved
//! `__manifest`. Tables that another client named otherwise can still be opened, dropped, restored and purged as
//! long as the name is a single path segment that stays inside the root.

use std::fmt;

use crate::error::{Error, Result};

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

/// The longest name, in characters.
pub const MAX_NAME_LEN: usize = 255;

/// The longest name on local disk, in bytes: 255 less what the names of a claim and of a purge add.
pub const MAX_LOCAL_NAME_LEN: usize = 190;

/// The longest id of a child namespace or a table in one, in bytes, with a `$` between the parts.
pub const MAX_CHILD_ID_LEN: usize = 512;

/// The same on local disk, where 9 bytes are put before it in the name of the table's directory.
pub const MAX_LOCAL_CHILD_ID_LEN: usize = 180;

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

    /// The namespace that the table is in; the root for a root table.
    pub fn namespace(&self) -> NamespaceIdent {
        NamespaceIdent::new(all_but_last(&self.parts))
    }

    /// Whether the table is in a child namespace.
    pub(crate) fn is_child(&self) -> bool {
        self.parts.len() > 1
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

/// The id of a namespace: its path from the root. Empty for the root itself.
///
/// Converts as [`TableIdent`] does; a string is one part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceIdent {
    parts: Vec<String>,
}

impl NamespaceIdent {
    /// An id from its parts, not yet checked: every operation checks before its first request.
    pub fn new(parts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            parts: parts.into_iter().map(Into::into).collect(),
        }
    }

    /// The root, which always exists.
    pub fn root() -> Self {
        Self { parts: Vec::new() }
    }

    /// The parts, outermost namespace first.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.parts.is_empty()
    }

    /// The namespace that this one is in; the root for the root.
    pub fn parent(&self) -> Self {
        Self::new(all_but_last(&self.parts))
    }
}

impl fmt::Display for NamespaceIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts.as_slice() {
            [one] => write!(f, "{one:?}"),
            many => write!(f, "{many:?}"),
        }
    }
}

fn all_but_last(parts: &[String]) -> &[String] {
    parts.split_last().map_or(&[], |(_, parents)| parents)
}

macro_rules! from_strings {
    ($($ident:ty),*) => {$(
        impl From<&str> for $ident {
            fn from(name: &str) -> Self {
                Self::new([name])
            }
        }

        impl From<String> for $ident {
            fn from(name: String) -> Self {
                Self::new([name])
            }
        }

        impl From<&String> for $ident {
            fn from(name: &String) -> Self {
                Self::new([name.as_str()])
            }
        }

        impl<const N: usize> From<[&str; N]> for $ident {
            fn from(parts: [&str; N]) -> Self {
                Self::new(parts)
            }
        }

        impl From<&[String]> for $ident {
            fn from(parts: &[String]) -> Self {
                Self::new(parts.iter().cloned())
            }
        }

        impl From<Vec<String>> for $ident {
            fn from(parts: Vec<String>) -> Self {
                Self { parts }
            }
        }

        impl From<&$ident> for $ident {
            fn from(ident: &$ident) -> Self {
                ident.clone()
            }
        }
    )*};
}

from_strings!(TableIdent, NamespaceIdent);

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

/// Joins the parts of an id in the namespace manifest.
pub(crate) const DELIMITER: char = '$';

/// Checks an id of a child namespace, or of a table in one, that is to be created.
pub(crate) fn check_new_parts(parts: &[String], max_len: usize) -> Result<()> {
    check_existing_parts(parts)?;
    for part in parts {
        check_new(part, MAX_NAME_LEN)?;
    }
    let joined = parts.iter().map(|p| p.len() + 1).sum::<usize>() - usize::from(!parts.is_empty());
    if joined > max_len {
        return refuse(
            &parts.join("$"),
            format!("an id in a namespace has at most {max_len} bytes in all here"),
        );
    }
    Ok(())
}

/// Checks an id of a child namespace, or of a table in one, whoever made it.
pub(crate) fn check_existing_parts(parts: &[String]) -> Result<()> {
    for part in parts {
        if part.contains(DELIMITER) {
            return refuse(part, "'$' separates the parts of an id in the manifest");
        }
        check_existing(part, usize::MAX)?;
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
        assert_eq!(TableIdent::from(["a", "b"]).namespace(), "a".into());
        assert!(TableIdent::from("a").namespace().is_root());
        assert_eq!(NamespaceIdent::from(["a", "b"]).parent(), "a".into());
        assert!(NamespaceIdent::root().parent().is_root());
    }

    #[test]
    fn ids_in_namespaces_hold_no_delimiter_and_have_a_length() {
        let parts = |parts: &[&str]| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
        check_new_parts(&parts(&["a.b", "c-d", "e_f"]), 180).unwrap();
        check_new_parts(&[], 180).unwrap();
        check_existing_parts(&parts(&["it's", "my table"])).unwrap();
        let half = "x".repeat(90);
        check_new_parts(&parts(&[&half[1..], &half]), 180).unwrap();
        for bad in [
            &["a$b", "c"][..],
            &["a", "b/c"],
            &["a", ""],
            &[&half, &half],
        ] {
            assert!(check_new_parts(&parts(bad), 180).is_err(), "{bad:?}");
        }
        assert!(check_existing_parts(&parts(&["a$b"])).is_err());
    }
}
