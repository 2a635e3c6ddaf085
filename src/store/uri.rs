//! Spelling of roots and of the paths and URIs below them.

use std::path::{Component, PathBuf};

use lance_io::object_store::uri_to_url;
use object_store::path::Path;

use crate::error::{Error, Redactor, Result};

/// `base/name`, kept literally (no percent encoding), as Lance derives it from a URI. The name may be a path, but never
/// the base itself.
pub(crate) fn join(base: &Path, name: &str) -> Result<Path> {
    let full = if base.as_ref().is_empty() {
        name.to_string()
    } else {
        format!("{base}/{name}")
    };
    let refuse = |rule: String| Error::InvalidIdent {
        name: name.to_string(),
        rule,
    };
    // It forgives slashes at the ends.
    match Path::parse(&full) {
        Ok(path) if path.as_ref() == full && !name.is_empty() => Ok(path),
        Ok(_) => Err(refuse("a path without empty segments".to_string())),
        Err(e) => Err(refuse(e.to_string())),
    }
}

/// The URI of a location below the root, as the base spells it.
pub(crate) fn uri_below(root: &str, location: &str) -> Option<String> {
    let mut url = uri_to_url(root).ok()?;
    url.path_segments_mut()
        .ok()?
        .pop_if_empty()
        .extend(location.split('/').filter(|segment| !segment.is_empty()));
    url.set_query(None);
    Some(url.to_string())
}

/// Scheme and host of a URI; a plain path is a `file` URL.
pub(super) fn store_of(uri: &str) -> Option<(String, Option<String>)> {
    let url = uri_to_url(uri).ok()?;
    Some((url.scheme().to_string(), url.host_str().map(str::to_string)))
}

/// One spelling for a root: no trailing slash; an absolute plain path for local disk, a URL elsewhere.
pub(super) fn normalize_root(uri: &str, redactor: &Redactor) -> Result<(String, bool)> {
    let invalid = |why: String| Error::InvalidInput {
        message: format!("cannot use {:?} as a root: {why}", redactor.text(uri)),
    };
    if uri.trim().is_empty() {
        return Err(invalid("it is empty".to_string()));
    }
    let url = uri_to_url(uri).map_err(|e| invalid(redactor.text(&e.to_string())))?;
    if url.scheme() == "file" {
        let path = url
            .to_file_path()
            .map_err(|()| invalid("it is not a local path".to_string()))?;
        // Through its components, so that doubled and trailing slashes go.
        let path: PathBuf = path.components().collect();
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(invalid("an escaped '..' is in it".to_string()));
        }
        if path.parent().is_none() {
            return Err(invalid("it is the file system's root".to_string()));
        }
        return match path.into_os_string().into_string() {
            Ok(path) => Ok((path, true)),
            Err(_) => Err(invalid("it is not valid UTF-8".to_string())),
        };
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(
            "a root has neither query nor fragment; use storage options".to_string(),
        ));
    }
    Ok((url.as_str().trim_end_matches('/').to_string(), false))
}

/// The schemes for which Lance's commit handler creates manifests atomically; for others it overwrites, or refuses.
pub(super) fn has_atomic_create(uri: &str) -> bool {
    matches!(
        uri.split("://").next(),
        Some(
            "file-object-store"
                | "s3"
                | "gs"
                | "az"
                | "abfss"
                | "memory"
                | "shared-memory"
                | "oss"
                | "tos"
                | "goosefs"
        )
    )
}

pub(super) fn encode_segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$') {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Whether a URI ends with the location, when both are decoded once.
pub(super) fn names_the_same(location: &str, uri: &str) -> bool {
    let depth = location.split('/').count();
    let mut tail: Vec<&str> = uri.rsplit('/').take(depth).collect();
    tail.reverse();
    decoded(&tail.join("/")) == decoded(location)
}

fn decoded(text: &str) -> Vec<u8> {
    let hex = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::{join, names_the_same, normalize_root};
    use crate::error::Redactor;

    #[test]
    fn nothing_joined_is_the_base_itself() {
        for base in [Path::default(), Path::from("bucket/root")] {
            assert_eq!(
                join(&base, "d/t")
                    .unwrap()
                    .as_ref()
                    .trim_start_matches(base.as_ref())
                    .trim_matches('/'),
                "d/t"
            );
            for bad in ["", "/", "/t", "t/", "a//t", ".", "..", "a/../t"] {
                assert!(join(&base, bad).is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_root_does_not_climb() {
        let root = |uri: &str| normalize_root(uri, &Redactor::default());
        assert_eq!(
            root("file:///data/a%20b/").unwrap(),
            ("/data/a b".to_string(), true)
        );
        for bad in ["file:///..%2F", "file:///data/..%2f..", "/", "file:///"] {
            assert!(root(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn spellings_of_one_name() {
        assert!(names_the_same("x_a%2A(b)", "memory://r/x_a*(b)"));
        assert!(names_the_same("d/x_it's", "memory://r/d/x_it%27s"));
        assert!(!names_the_same("x_my%2520name", "memory://r/x_my%20name"));
        assert!(!names_the_same("x", "memory://r/y"));
    }
}
