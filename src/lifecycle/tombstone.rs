//! The tombstone: the object that records a drop.
//!
//! `<stem>.deleted` beside the table's directory, JSON, written once with create-if-absent. Its presence alone hides
//! the table. Unknown fields are ignored and `deleted_at_ms` alone is enough (the marker of lance#7539); a drop id
//! that is absent derives from the object's identity, so it is stable while the object is. What cannot be parsed
//! still hides its table, is never purged automatically, and can be restored or purged by name.
//!
//! A `creating` tombstone is not a drop: it keeps drops and purges off a name while a table is created over it, and
//! hides nothing that has a version (see [`lifecycle`](crate::lifecycle)). It is exactly [`CREATING_SIZE`] bytes long
//! and a drop's tombstone never is, so that a listing of the root can tell them apart without reading each.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::record;
use crate::store::{RootStore, Slot};

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;

/// The length in bytes of a `creating` tombstone, padded with spaces.
pub(crate) const CREATING_SIZE: usize = 1024;

/// A dropped table, as [`list_dropped_tables`](crate::Catalog::list_dropped_tables) shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedTable {
    /// The table.
    pub ident: TableIdent,
    /// Names this drop: a table dropped again has another one.
    pub drop_id: Uuid,
    /// When it was dropped, by the clock of the catalog that dropped it.
    pub deleted_at: DateTime<Utc>,
    /// From when on [`purge_dropped`](crate::Catalog::purge_dropped) may purge it; `None`: only by name.
    pub expires_at: Option<DateTime<Utc>>,
    /// The latest version that the drop saw just before it hid the table, if there was one. What was committed in
    /// between is kept all the same.
    pub version: Option<u64>,
    /// Why, as given to the drop.
    pub reason: Option<String>,
    /// Why the record cannot be read. Such a drop never expires; undrop and purge by name work.
    pub parse_error: Option<String>,
    /// Whether Lance's own marker was written, so that stock namespace clients stop listing the table too. False
    /// only in the answer of a drop whose marker write failed; `reconcile` writes it later.
    pub hidden_from_stock_clients: bool,
    /// What the drop did with the data.
    pub outcome: DropOutcome,
}

/// What a drop did with the table's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropOutcome {
    /// It is kept: the drop can be taken back until the table is purged.
    Kept,
    /// It is deleted: the drop of a table in a namespace is immediate in this version.
    Deleted,
    /// It is left where it is, because another table is stored there too; this id is gone.
    Deregistered,
}

impl DroppedTable {
    /// A drop that left nothing to take back.
    pub(crate) fn immediate(
        ident: &TableIdent,
        now: DateTime<Utc>,
        reason: Option<String>,
        outcome: DropOutcome,
    ) -> Self {
        Self {
            ident: ident.clone(),
            drop_id: Uuid::new_v4(),
            deleted_at: now,
            expires_at: Some(now),
            version: None,
            reason,
            parse_error: None,
            hidden_from_stock_clients: true,
            outcome,
        }
    }
}

/// The record on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    #[serde(default = "first_format")]
    format: u32,
    #[serde(default)]
    drop_id: Option<Uuid>,
    #[serde(default)]
    id: Option<Vec<String>>,
    #[serde(default)]
    location: Option<String>,
    deleted_at_ms: i64,
    #[serde(default)]
    ttl_ms: Option<u64>,
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    reason: Option<String>,
    /// Of a drop under a new id: since when the store holds it, by the store's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held_since_ms: Option<i64>,
    /// Of a drop under a new id: the id that it had first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_id: Option<Uuid>,
    #[serde(
        default,
        deserialize_with = "record::optional",
        skip_serializing_if = "Option::is_none"
    )]
    creating: Option<Creating>,
}

fn first_format() -> u32 {
    FORMAT
}

/// Who is creating the table behind a `creating` tombstone; generation 0 of the claim on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Creating {
    pub(crate) owner: Uuid,
    pub(crate) lease_ms: u64,
}

/// A tombstone as read, or as about to be written.
#[derive(Debug, Clone)]
pub(crate) struct Tombstone {
    pub(crate) drop_id: Uuid,
    pub(crate) deleted_at: DateTime<Utc>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) version: Option<u64>,
    pub(crate) reason: Option<String>,
    pub(crate) creating: Option<Creating>,
    pub(crate) parse_error: Option<String>,
    /// By the store's clock; `None` before it is written.
    pub(crate) last_modified: Option<DateTime<Utc>>,
    held_since: Option<DateTime<Utc>>,
    first_id: Option<Uuid>,
}

impl Tombstone {
    /// A new drop, with a new drop id.
    pub(crate) fn new(
        deleted_at: DateTime<Utc>,
        ttl: Option<Duration>,
        version: Option<u64>,
        reason: Option<String>,
    ) -> Self {
        Self {
            drop_id: Uuid::new_v4(),
            // As it is recorded, so that a drop and a listing tell the same.
            deleted_at: deleted_at.trunc_subsecs(3),
            ttl,
            version,
            reason,
            creating: None,
            parse_error: None,
            last_modified: None,
            held_since: None,
            first_id: None,
        }
    }

    /// The same drop under a new drop id, so that no decision about the old one applies.
    pub(crate) fn reissued(&self) -> Self {
        Self {
            drop_id: Uuid::new_v4(),
            last_modified: None,
            held_since: self.held_since(),
            first_id: Some(self.first_id()),
            ..self.clone()
        }
    }

    /// The id that it had before it was re-issued: the same for as long as it is the same drop.
    pub(crate) fn first_id(&self) -> Uuid {
        self.first_id.unwrap_or(self.drop_id)
    }

    /// Keeps drops and purges off a name while a table is created over it.
    pub(crate) fn creating(now: DateTime<Utc>, creating: Creating) -> Self {
        Self {
            creating: Some(creating),
            ..Self::new(now, None, None, None)
        }
    }

    pub(crate) fn encode(&self, slot: &Slot) -> Result<Bytes> {
        let mut record = Record {
            format: FORMAT,
            drop_id: Some(self.drop_id),
            id: Some(slot.ident.parts().to_vec()),
            location: Some(slot.location.clone()),
            deleted_at_ms: self.deleted_at.timestamp_millis(),
            ttl_ms: self
                .ttl
                .map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            version: self.version,
            reason: self.reason.clone(),
            held_since_ms: self.held_since.map(|t| t.timestamp_millis()),
            first_id: self.first_id,
            creating: self.creating,
        };
        let serialized = |record: &Record| {
            serde_json::to_vec(record).map_err(|e| Error::CorruptMetadata {
                path: slot.tombstone.to_string(),
                message: format!("cannot be written: {e}"),
            })
        };
        let mut json = serialized(&record)?;
        if self.creating.is_some() {
            if json.len() > CREATING_SIZE {
                // For people only: a long id is told by the record's name.
                (record.id, record.location) = (None, None);
                json = serialized(&record)?;
            }
            json.resize(json.len().max(CREATING_SIZE), b' ');
        } else if json.len() == CREATING_SIZE {
            json.push(b' ');
        }
        Ok(Bytes::from(json))
    }

    /// Reads what is on the store. Never fails: see the module's promise about what cannot be parsed.
    pub(crate) fn decode(content: &[u8], meta: &ObjectMeta) -> Self {
        match Self::parse(content, meta) {
            Ok(tombstone) => tombstone,
            Err(message) => Self {
                drop_id: derived_id(content, meta),
                deleted_at: meta.last_modified,
                ttl: None,
                version: None,
                reason: None,
                creating: None,
                parse_error: Some(message),
                last_modified: Some(meta.last_modified),
                held_since: None,
                first_id: None,
            },
        }
    }

    /// Since when the store holds this drop, by the store's own clock.
    pub(crate) fn held_since(&self) -> Option<DateTime<Utc>> {
        self.held_since.or(self.last_modified)
    }

    fn parse(content: &[u8], meta: &ObjectMeta) -> std::result::Result<Self, String> {
        let record: Record = record::parse(content).map_err(|e| e.to_string())?;
        if record.format != FORMAT {
            return Err(format!(
                "format {} is not known to this version",
                record.format
            ));
        }
        if record.creating.is_some() && content.len() != CREATING_SIZE {
            return Err(format!(
                "a creating record of {} bytes, not {CREATING_SIZE}",
                content.len()
            ));
        }
        let deleted_at = DateTime::from_timestamp_millis(record.deleted_at_ms)
            .ok_or_else(|| format!("deleted_at_ms {} is out of range", record.deleted_at_ms))?;
        Ok(Self {
            drop_id: record.drop_id.unwrap_or_else(|| derived_id(content, meta)),
            deleted_at,
            ttl: record.ttl_ms.map(Duration::from_millis),
            version: record.version,
            reason: record.reason,
            creating: record.creating,
            parse_error: None,
            last_modified: Some(meta.last_modified),
            held_since: record
                .held_since_ms
                .and_then(DateTime::from_timestamp_millis),
            first_id: record.first_id,
        })
    }

    /// Refuses another drop than the one that the caller means.
    pub(crate) fn must_be(&self, slot: &Slot, only: Option<Uuid>) -> Result<()> {
        match only {
            Some(id) if id != self.drop_id => Err(Error::TableNotFound {
                ident: slot.ident.clone(),
                reason: format!(
                    "drop {id} is over; the table was dropped again, as {}",
                    self.drop_id
                ),
            }),
            _ => Ok(()),
        }
    }

    /// When it expires by the clock of who dropped it; `None`: never by itself.
    pub(crate) fn expires_at(&self) -> Option<DateTime<Utc>> {
        let ttl = TimeDelta::from_std(self.ttl?).ok()?;
        self.deleted_at.checked_add_signed(ttl)
    }

    pub(crate) fn public(&self, ident: &TableIdent) -> DroppedTable {
        DroppedTable {
            ident: ident.clone(),
            drop_id: self.drop_id,
            deleted_at: self.deleted_at,
            expires_at: self.expires_at(),
            version: self.version,
            reason: self.reason.clone(),
            parse_error: self.parse_error.clone(),
            hidden_from_stock_clients: true,
            outcome: DropOutcome::Kept,
        }
    }
}

/// A drop id for a tombstone that has none: the same as long as it is the same object.
fn derived_id(content: &[u8], meta: &ObjectMeta) -> Uuid {
    // By its name only: the same object has another path where the root is mounted elsewhere.
    let name = meta.location.filename().unwrap_or_default();
    let mut identity = name.as_bytes().to_vec();
    identity.extend_from_slice(&meta.last_modified.timestamp_micros().to_be_bytes());
    identity.extend_from_slice(content);
    Uuid::new_v5(&Uuid::NAMESPACE_URL, &identity)
}

/// The tombstone of the slot, if there is one: 1 GET.
pub(crate) async fn read(store: &RootStore, slot: &Slot) -> Result<Option<Tombstone>> {
    let found = store.get(&slot.tombstone).await?;
    Ok(found.map(|(content, meta)| Tombstone::decode(&content, &meta)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::path::Path;

    fn meta() -> ObjectMeta {
        ObjectMeta {
            location: Path::from("root/t.deleted"),
            last_modified: DateTime::from_timestamp_millis(1_000).unwrap(),
            size: 0,
            e_tag: None,
            version: None,
        }
    }

    #[test]
    fn a_draft_upstream_marker_is_a_tombstone() {
        let t = Tombstone::decode(br#"{"deleted_at_ms":5,"new_field":[1]}"#, &meta());
        assert_eq!(t.parse_error, None);
        assert_eq!(t.deleted_at.timestamp_millis(), 5);
        assert_eq!(t.expires_at(), None);
        let again = Tombstone::decode(br#"{"deleted_at_ms":5,"new_field":[1]}"#, &meta());
        assert_eq!(t.drop_id, again.drop_id);
    }

    #[test]
    fn what_cannot_be_parsed_never_expires() {
        for bad in [
            &b""[..],
            b"{",
            b"[]",
            b"null",
            b"\xff\xfe",
            br#"{"deleted_at_ms":"x"}"#,
            br#"{"format":2,"deleted_at_ms":5,"ttl_ms":0}"#,
            br#"{"deleted_at_ms":9223372036854775807,"ttl_ms":0}"#,
            br#"{"deleted_at_ms":5,"drop_id":"not-a-uuid"}"#,
            // The values of a record in their order, and of one in it.
            br#"[1,null,null,null,5,0,null,null,null,null]"#,
            br#"{"deleted_at_ms":5,"creating":["6f2f0d1c-7a5b-4f0e-9a39-0d7a1f7f2b11",5]}"#,
        ] {
            let t = Tombstone::decode(bad, &meta());
            assert!(t.parse_error.is_some(), "{bad:?}");
            assert_eq!(t.expires_at(), None);
            assert!(t.creating.is_none());
        }
    }

    #[test]
    fn an_overflowing_retention_never_expires() {
        let t = Tombstone::decode(
            br#"{"deleted_at_ms":5,"ttl_ms":18446744073709551615}"#,
            &meta(),
        );
        assert_eq!(t.parse_error, None);
        assert_eq!(t.expires_at(), None);
    }

    /// A listing sees no more of it than its size.
    #[test]
    fn a_creating_record_has_its_size_whatever_its_id() {
        let creating = Creating {
            owner: Uuid::new_v4(),
            lease_ms: 60_000,
        };
        let written = Tombstone::creating(DateTime::UNIX_EPOCH, creating);
        for length in [1, 255, 512] {
            let location = "x".repeat(length);
            let path = Path::from(format!("root/{location}$.deleted"));
            let slot = Slot {
                ident: TableIdent::from(["ns", &location]),
                stem: format!("{location}$"),
                table: Path::from(format!("root/{location}")),
                tombstone: path.clone(),
                marker: path.clone(),
                uri: format!("memory://root/{location}"),
                location,
            };
            let content = written.encode(&slot).unwrap();
            assert_eq!(content.len(), CREATING_SIZE, "{length}");
            let read = Tombstone::decode(&content, &meta());
            assert_eq!((read.parse_error, read.creating), (None, Some(creating)));
            // With any other size it is nothing that is known.
            let read = Tombstone::decode(&content[..CREATING_SIZE - 1], &meta());
            assert!(read.parse_error.is_some() && read.creating.is_none());
        }
    }
}
