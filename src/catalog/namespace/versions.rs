//! The trait's operations on versions of tables.

use lance_core::Result;
use lance_namespace::models::{
    BatchDeleteTableVersionsRequest, BatchDeleteTableVersionsResponse, CreateTableVersionRequest,
    CreateTableVersionResponse, DescribeTableVersionRequest, DescribeTableVersionResponse,
    ListTableVersionsRequest, ListTableVersionsResponse, TableVersion as Model,
};
use lance_table::io::commit::ManifestNamingScheme;

use super::routing::{invalid, table_ident};
use crate::catalog::Catalog;
use crate::manifest_store::{ANCHOR_E_TAG, ANCHOR_SIZE, ANCHOR_VERSION};
use crate::versions::create::{NewVersion, Source, refusal};
use crate::versions::fence::Anchor;
use crate::versions::{self, DeleteRange, TableVersion};

fn number(version: i64) -> Result<u64> {
    u64::try_from(version).map_err(|_| invalid(format!("{version} is no version number")))
}

fn model(version: TableVersion) -> Model {
    Model {
        version: i64::try_from(version.version).unwrap_or(i64::MAX),
        manifest_path: version.path,
        manifest_size: version.size.and_then(|s| i64::try_from(s).ok()),
        e_tag: version.e_tag,
        timestamp_millis: version.created_at.map(|t| t.timestamp_millis()),
        metadata: None,
    }
}

/// The version that the writer began with, as [`NamespaceExternalManifestStore`](crate::NamespaceExternalManifestStore)
/// tells it; other clients do not.
fn anchor(request: &CreateTableVersionRequest) -> Result<Option<Anchor>> {
    let Some(metadata) = &request.metadata else {
        return Ok(None);
    };
    let parse = |key: &str| {
        metadata
            .get(key)
            .map(|text| {
                text.parse::<u64>()
                    .map_err(|_| invalid(format!("{key} is no number: {text:?}")))
            })
            .transpose()
    };
    let Some(version) = parse(ANCHOR_VERSION)? else {
        return Ok(None);
    };
    Ok(Some(Anchor {
        version,
        e_tag: metadata.get(ANCHOR_E_TAG).cloned(),
        size: parse(ANCHOR_SIZE)?,
        is_bare: false,
    }))
}

impl Catalog {
    pub(super) async fn versions_listed(
        &self,
        request: ListTableVersionsRequest,
    ) -> Result<ListTableVersionsResponse> {
        let ident = table_ident(&request.id)?;
        if request.page_token.is_some() {
            return Err(invalid(
                "there is no page token of versions: a listing has one page",
            ));
        }
        let mut listing = self.list_versions(ident);
        if let Some(branch) = &request.branch {
            listing = listing.branch(branch);
        }
        if request.descending == Some(true) {
            listing = listing.descending();
        }
        // As the base: a negative limit is none.
        if let Some(limit) = request.limit.and_then(|l| usize::try_from(l).ok()) {
            listing = listing.limit(limit);
        }
        let found = listing.await?;
        Ok(ListTableVersionsResponse {
            versions: found.into_iter().map(model).collect(),
            ..Default::default()
        })
    }

    pub(super) async fn version_described(
        &self,
        request: DescribeTableVersionRequest,
    ) -> Result<DescribeTableVersionResponse> {
        let ident = table_ident(&request.id)?;
        let branch = request.branch.as_deref();
        let found = match request.version {
            Some(version) => versions::describe(self, &ident, branch, number(version)?).await?,
            None => versions::latest(self, &ident, branch).await?,
        };
        Ok(DescribeTableVersionResponse {
            version: Box::new(model(found)),
            ..Default::default()
        })
    }

    pub(super) async fn version_created(
        &self,
        request: CreateTableVersionRequest,
    ) -> Result<CreateTableVersionResponse> {
        let ident = table_ident(&request.id)?;
        let naming_scheme = match request.naming_scheme.as_deref() {
            None | Some("V2") => ManifestNamingScheme::V2,
            Some("V1") => ManifestNamingScheme::V1,
            Some(other) => {
                return Err(invalid(format!(
                    "unknown naming scheme {other:?}; V1 or V2"
                )));
            }
        };
        let new = NewVersion {
            version: number(request.version)?,
            anchor: anchor(&request)?,
            source: Source::Staged(request.manifest_path),
            naming_scheme,
        };
        let created = versions::create::create(self, &ident, request.branch.as_deref(), &new)
            .await
            .map_err(refusal)?;
        Ok(CreateTableVersionResponse {
            version: Some(Box::new(model(created))),
            ..Default::default()
        })
    }

    pub(super) async fn versions_deleted(
        &self,
        request: BatchDeleteTableVersionsRequest,
    ) -> Result<BatchDeleteTableVersionsResponse> {
        let ident = table_ident(&request.id)?;
        let ranges: Vec<DeleteRange> = request
            .ranges
            .iter()
            .map(|range| {
                let start = number(range.start_version)?;
                Ok(match (start, range.end_version) {
                    (0, -1) => DeleteRange::Everything,
                    (start, -1) => DeleteRange::CleanUpFrom(start),
                    (start, end) => DeleteRange::CleanUp(start..number(end)?),
                })
            })
            .collect::<Result<_>>()?;
        let deleted = versions::delete(self, &ident, request.branch.as_deref(), ranges).await?;
        Ok(BatchDeleteTableVersionsResponse {
            deleted_count: i64::try_from(deleted.len()).ok(),
            ..Default::default()
        })
    }
}
