//! What is promised of any bytes in a manifest's place.

use bytes::Bytes;

use super::Belonging;
use crate::error::Error;

/// They are a manifest, or an error that names the object; also where the frame around the message is as it should be.
pub(crate) fn any_bytes(content: &[u8]) {
    parse(Bytes::copy_from_slice(content));
    parse(framed(content));
}

fn parse(content: Bytes) {
    match Belonging::parse(&content, "t.lance/_versions/1.manifest") {
        Ok(read) => assert!(
            read.files
                .iter()
                .all(|f| f.starts_with("data/") || f.starts_with("_deletions/"))
        ),
        Err(Error::CorruptMetadata { path, .. }) => {
            assert_eq!(path, "t.lance/_versions/1.manifest");
        }
        Err(e) => panic!("{e:?}"),
    }
}

/// As Lance writes it: the length of the message, the message, its position, two version numbers, the magic.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message");
    let mut content = length.to_le_bytes().to_vec();
    content.extend_from_slice(message);
    content.extend_from_slice(&0_u64.to_le_bytes());
    content.extend_from_slice(&[0, 0, 2, 0]);
    content.extend_from_slice(b"LANC");
    Bytes::from(content)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::{prop_assert, proptest};

    use super::{Belonging, any_bytes, framed};
    use crate::fuzzing::tests::many;

    #[test]
    fn the_frame_is_lances() {
        assert!(
            Belonging::parse(&framed(&[]), "m")
                .unwrap()
                .files
                .is_empty()
        );
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn what_is_no_manifest_is_an_error(content in vec(any::<u8>(), 0..300)) {
            any_bytes(&content);
        }

        #[test]
        fn a_footer_that_lies_is_an_error(position in any::<u64>(), length in any::<u32>(), size in 0_usize..64) {
            let mut content = framed(&vec![0xff; size]).to_vec();
            let end = content.len() - 16;
            content[end..end + 8].copy_from_slice(&position.to_le_bytes());
            content[..4].copy_from_slice(&length.to_le_bytes());
            super::parse(content.clone().into());
            prop_assert!(Belonging::parse(&content.into(), "m").is_err() || length == 0 || position != 0);
        }
    }
}
