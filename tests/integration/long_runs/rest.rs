//! What must hold when nothing is under way: every table is something definite, nothing is left over, and every drop
//! can be taken back.

use std::collections::BTreeSet;

use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lifecycle::{FindingKind, ReconcileReport};
use lancekeep::object_store::ObjectStoreExt;
use lancekeep::object_store::path::Path;
use lancekeep::{Catalog, Error, Purge, TableState};

use super::calls::{TABLES, read};
use super::history::{Found, Table};
use super::play::{Run, Sabotage, catalog};
use crate::support::{Actor, SharedMemory};

/// How often reconcile may find something more to mend.
const ROUNDS: usize = 4;

impl Run {
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let actor = self.memory.actor();
        let catalog = catalog(&self.memory, &actor).await;
        mend(&catalog).await?;
        if let Some(sabotage) = self.sabotage {
            self.tamper(sabotage).await;
        }
        let dump = self.memory.dump().await;
        let mut found = Vec::new();
        for (table, name) in TABLES.iter().enumerate() {
            let is = look(&catalog, &actor, name, &dump).await?;
            objects(name, is, &dump, self.disturbed[table])?;
            self.note(format!("      at rest {name} is {is:?}"));
            let settled = self.models[table].settle(&is, self.clock.now());
            settled.map_err(|why| format!("table {name}: {why}"))?;
            let prefix = format!("root/{name}.lance/");
            self.disturbed[table] &= dump.iter().any(|path| path.starts_with(&prefix));
            found.push(is);
        }
        listed(&catalog, &found).await?;
        let kept: BTreeSet<String> = TABLES
            .iter()
            .zip(&found)
            .filter(|(_, is)| matches!(is, Found::Dropped { .. }))
            .map(|(name, _)| format!("root/{name}.deleted"))
            .collect();
        let in_table = |path: &str| {
            let mut names = TABLES.iter();
            names.any(|name| path.starts_with(&format!("root/{name}.lance/")))
        };
        let records: BTreeSet<String> = dump.iter().filter(|p| !in_table(p)).cloned().collect();
        if records != kept {
            return Err(format!("records {records:?} instead of {kept:?}"));
        }
        restored(&self.memory, &found).await
    }

    async fn tamper(&mut self, sabotage: Sabotage) {
        let dump = self.memory.dump().await;
        let ending = match sabotage {
            Sabotage::ForgetADrop => ".deleted",
            Sabotage::LoseData => ".lance",
            Sabotage::LoseAVersion => ".manifest",
            Sabotage::LeaveSomething => "",
        };
        let raw = self.memory.raw();
        // The latest version sorts first.
        let Some(found) = dump.iter().find(|path| path.ends_with(ending)) else {
            return;
        };
        match sabotage {
            Sabotage::LeaveSomething => {
                let left = Path::from("root/something");
                raw.put(&left, "left".into()).await.unwrap();
            }
            _ => raw.delete(&Path::from(found.as_str())).await.unwrap(),
        }
        self.sabotage = None;
    }
}

/// Reconciles until nothing is mended; then nothing that it could mend must be found.
async fn mend(catalog: &Catalog) -> Result<(), String> {
    for _ in 0..ROUNDS {
        let report = reconcile(catalog, false).await?;
        if report.findings.iter().any(|finding| finding.mended) {
            continue;
        }
        for report in [report, reconcile(catalog, true).await?] {
            let mut findings = report.findings.iter();
            let left_alone = |kind| {
                matches!(
                    kind,
                    FindingKind::IncompleteTable | FindingKind::MissingLocation
                )
            };
            if let Some(finding) = findings.find(|finding| !left_alone(finding.kind)) {
                return Err(format!("reconcile leaves {finding:?}"));
            }
        }
        return Ok(());
    }
    Err("reconcile always finds more to mend".to_string())
}

async fn reconcile(catalog: &Catalog, dry: bool) -> Result<ReconcileReport, String> {
    let report = catalog.reconcile(dry).await;
    let report = report.map_err(|e| format!("reconcile fails: {e:?}"))?;
    let mut findings = report.findings.iter();
    match findings.find(|finding| finding.error.is_some()) {
        Some(finding) => Err(format!("reconcile fails: {finding:?}")),
        None => Ok(report),
    }
}

async fn look(
    catalog: &Catalog,
    actor: &Actor,
    name: &str,
    dump: &[String],
) -> Result<Found, String> {
    let status = catalog.table_status(name).await;
    let status = status.map_err(|e| format!("the state of {name}: {e:?}"))?;
    match status {
        TableState::Live { version } => {
            let dataset = catalog.open_table(name).await;
            let dataset = dataset.map_err(|e| format!("live {name} does not open: {e:?}"))?;
            if dataset.version().version != version {
                return Err(format!(
                    "{name} has {version} and opens as {:?}",
                    dataset.version()
                ));
            }
            let rows = read(&dataset).await;
            let rows = rows.map_err(|e| format!("live {name} cannot be read: {e:?}"))?;
            only_row(name, &rows).map(|row| Found::Live(Table { row, version }))
        }
        TableState::Dropped(dropped) => {
            let drop_id = dropped.drop_id;
            let versions = format!("root/{name}.lance/_versions/");
            if !dump.iter().any(|path| path.starts_with(&versions)) {
                let table = None;
                return Ok(Found::Dropped { table, drop_id });
            }
            // Past the catalog: what an undrop would bring back.
            let builder = DatasetBuilder::from_uri(format!("{}/{name}.lance", catalog.root_uri()));
            let loaded = builder.with_session(actor.session.clone()).load().await;
            let dataset = loaded.map_err(|e| format!("dropped {name} does not open: {e:?}"))?;
            let rows = read(&dataset).await;
            let rows = rows.map_err(|e| format!("dropped {name} cannot be read: {e:?}"))?;
            let row = only_row(name, &rows)?;
            let version = dataset.version().version;
            let table = Some(Table { row, version });
            Ok(Found::Dropped { table, drop_id })
        }
        TableState::Absent | TableState::Declared | TableState::Incomplete => {
            let prefix = format!("root/{name}.lance/");
            let clean = !dump.iter().any(|path| path.starts_with(&prefix));
            Ok(Found::Bare { clean })
        }
        other => Err(format!("{name} is {other:?} when nobody is at it")),
    }
}

fn only_row(name: &str, rows: &[i32]) -> Result<i32, String> {
    match rows {
        [row] => Ok(*row),
        _ => Err(format!(
            "{name} holds the rows of more than one create: {rows:?}"
        )),
    }
}

/// The objects of a table: one manifest and one data file for each version, and Lance's marker beside a drop. More
/// data files only where a create was disturbed.
fn objects(name: &str, is: Found, dump: &[String], disturbed: bool) -> Result<(), String> {
    let count = |inner: &str| {
        let prefix = format!("root/{name}.lance/{inner}");
        let below = dump.iter().filter(|path| path.starts_with(&prefix));
        u64::try_from(below.count()).unwrap()
    };
    let (versions, is_dropped) = match is {
        Found::Bare { .. } => (0, false),
        Found::Live(table) => (table.version, false),
        Found::Dropped { table, .. } => (table.map_or(0, |table| table.version), true),
    };
    let manifests = dump
        .iter()
        .filter(|path| path.starts_with(&format!("root/{name}.lance/_versions/")))
        .filter(|path| path.ends_with(".manifest"))
        .count();
    let markers = count(".lance-deregistered");
    let data = count("data/");
    let enough = match disturbed {
        true => data >= versions,
        false => data == versions,
    };
    // A drop that lies over nothing needs no marker.
    let marked = markers == u64::from(is_dropped) || versions == 0 && is_dropped;
    if u64::try_from(manifests).unwrap() != versions || !enough || !marked {
        let own: Vec<&String> = dump
            .iter()
            .filter(|path| path.starts_with(&format!("root/{name}.")))
            .collect();
        return Err(format!("{name}, {is:?}, consists of {own:#?}"));
    }
    Ok(())
}

/// The listings say the same as the states.
async fn listed(catalog: &Catalog, found: &[Found]) -> Result<(), String> {
    let names = catalog.table_names().await;
    let names = names.map_err(|e| format!("the names: {e:?}"))?;
    let drops = catalog.list_dropped_tables().await;
    let drops = drops.map_err(|e| format!("the drops: {e:?}"))?;
    for (name, is) in TABLES.iter().zip(found) {
        let named = names.iter().any(|n| n == name);
        let of_name: Vec<_> = drops
            .iter()
            .filter(|dropped| dropped.ident.parts() == [*name])
            .map(|dropped| dropped.drop_id)
            .collect();
        let agrees = match is {
            Found::Bare { clean } => named != *clean && of_name.is_empty(),
            Found::Live(_) => named && of_name.is_empty(),
            Found::Dropped { drop_id, .. } => !named && of_name == [*drop_id],
        };
        if !agrees {
            return Err(format!("{name} is {is:?}, listed: {named}, {of_name:?}"));
        }
    }
    Ok(())
}

/// On a copy: every drop can be taken back, with its rows; and dropped again, everything can be purged.
async fn restored(memory: &SharedMemory, found: &[Found]) -> Result<(), String> {
    let copy = memory.fork().await;
    let catalog = catalog(&copy, &copy.actor()).await;
    for (name, is) in TABLES.iter().zip(found) {
        let Found::Dropped { table, drop_id } = is else {
            continue;
        };
        let undone = catalog.undrop_table(*name).drop_id(*drop_id).await;
        let Some(table) = table else {
            // What had no version comes back as that, or was nothing.
            match undone {
                Ok(_) | Err(Error::TableNotFound { .. }) => continue,
                Err(error) => return Err(format!("{name} cannot be cleared: {error:?}")),
            }
        };
        undone.map_err(|e| format!("dropped {name} does not come back: {e:?}"))?;
        let dataset = catalog.open_table(*name).await;
        let dataset = dataset.map_err(|e| format!("restored {name} does not open: {e:?}"))?;
        let rows = read(&dataset).await;
        let rows = rows.map_err(|e| format!("restored {name} cannot be read: {e:?}"))?;
        if only_row(name, &rows)? != table.row || dataset.version().version != table.version {
            return Err(format!(
                "restored {name} holds {rows:?} instead of {table:?}"
            ));
        }
    }
    let dropped = catalog.drop_all_tables().await;
    dropped.map_err(|e| format!("not all can be dropped: {e:?}"))?;
    let report = catalog.purge_dropped(Purge::all()).await;
    let report = report.map_err(|e| format!("not all can be purged: {e:?}"))?;
    let left = copy.dump().await;
    if !report.failures.is_empty() || !left.is_empty() {
        return Err(format!("{report:?} leaves {left:?}"));
    }
    Ok(())
}
