//! What is found when nobody is left: each table, what `reconcile` says, and what is in the root.

use std::collections::{BTreeSet, HashMap};

use lancekeep::lifecycle::{Finding, FindingKind};
use lancekeep::{Catalog, Error, TableState};

use super::Stage;
use super::account::accounts;
use super::history::{Found, State, explain};
use super::journal::{Content, Outcome, Record, kind_of};
use super::worker::{ident, is_child, name_of};
use crate::common::try_ids;

/// Beyond the lease: what a store's clock may round off, and more.
const SLACK: std::time::Duration = std::time::Duration::from_millis(300);

/// Versions from which on a table is purged: a long history makes every open slower.
const LONG_HISTORY: usize = 12;

impl Stage {
    /// Waits until every lease is over, then looks at everything.
    pub(super) async fn settle(&mut self) {
        tokio::time::sleep(self.setting.lease() + SLACK).await;
        let catalog = self.setting.catalog(self.root.path()).await;
        for finding in catalog.reconcile(true).await.unwrap().findings {
            *self.tally.left.entry(finding.kind).or_default() += 1;
        }
        // Whoever comes across it finishes what was left: sometimes `reconcile`, sometimes the operations.
        if self.rng.below(2) == 0 {
            self.reconcile(&catalog).await;
        }
        let names = self.setting.names();
        let records = self.tail.all()[self.settled..].to_vec();
        self.settled += records.len();
        self.count(&records);
        let (accounts, wrong) = accounts(&records, &names);
        for answer in wrong {
            self.report(answer);
        }
        for name in &names {
            let found = match look(&catalog, name).await {
                Ok(found) => found,
                Err(why) => {
                    self.report(format!("{name}: {why}"));
                    self.clear(&catalog, name).await;
                    continue;
                }
            };
            let start = &self.states[name];
            match explain(start, &accounts[name], &found) {
                // The look cleared it.
                Ok(State::Dropped(lineage)) if lineage.is_empty() => {
                    self.states.insert(name.clone(), State::Absent);
                }
                Ok(state) => drop(self.states.insert(name.clone(), state)),
                Err(why) => {
                    let told: Vec<String> = accounts[name]
                        .iter()
                        .map(|op| format!("  {op:?}"))
                        .collect();
                    self.report(format!(
                        "{name}: {why}\nfrom {start:?}\n{}\nto {found:?}",
                        told.join("\n")
                    ));
                    self.clear(&catalog, name).await;
                }
            }
        }
        self.reconcile(&catalog).await;
        self.tidy(&catalog).await;
        let left = catalog.reconcile(true).await.unwrap();
        if !left.is_clean() {
            self.report(format!("a second reconcile finds {left:?}"));
        }
        self.walk(&catalog).await;
    }

    /// Counts what the processes were told.
    fn count(&mut self, records: &[Record]) {
        let mut begun = HashMap::new();
        for record in records {
            match record {
                Record::Begin { op, kind, .. } => drop(begun.insert(*op, *kind)),
                Record::End { op, outcome, .. } => {
                    let told = match outcome {
                        Outcome::Failed { kind, .. } => kind.as_str(),
                        _ => "ok",
                    };
                    let told = format!("{:?} {told}", begun[op]);
                    *self.tally.told.entry(told).or_default() += 1;
                }
                Record::Hello { .. } => {}
            }
        }
    }

    /// Finishes everything; only what is documented to be left alone may be left.
    async fn reconcile(&mut self, catalog: &Catalog) {
        let report = catalog.reconcile(false).await.unwrap();
        for finding in &report.findings {
            let left_alone = matches!(
                finding.kind,
                FindingKind::IncompleteTable
                    | FindingKind::MissingLocation
                    | FindingKind::UnregisteredDirectory
            );
            if finding.error.is_some() || (!finding.mended && !left_alone) {
                self.report(format!("reconcile: {finding:?}"));
            }
        }
        let again = catalog.reconcile(true).await.unwrap();
        let told = |findings: &[Finding]| -> BTreeSet<String> {
            let left = findings.iter().filter(|f| !f.mended);
            left.map(|f| format!("{} {:?}", f.ident, f.kind)).collect()
        };
        let (first, second) = (told(&report.findings), told(&again.findings));
        if !second.is_subset(&first) {
            self.report(format!("reconcile left {second:?} and told {first:?}"));
        }
    }

    /// Does what the documentation of the findings says about those that are left alone.
    async fn tidy(&mut self, catalog: &Catalog) {
        for finding in catalog.reconcile(true).await.unwrap().findings {
            let name = name_of(&finding.ident);
            let done = match finding.kind {
                FindingKind::IncompleteTable => {
                    let dropped = catalog.drop_table(name.as_str()).await;
                    match dropped {
                        Ok(_) => catalog.purge_table(name.as_str()).await.map(drop),
                        Err(e) => Err(e),
                    }
                }
                FindingKind::MissingLocation => catalog.purge_table(name.as_str()).await.map(drop),
                FindingKind::UnregisteredDirectory => {
                    let dir = self.root.path().join(&finding.ident.parts()[0]);
                    std::fs::remove_dir_all(dir).unwrap();
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(e) = done {
                self.report(format!("{finding:?}: {e}"));
            }
        }
        let long: Vec<String> = self
            .states
            .iter()
            .filter(|(_, state)| match state {
                State::Absent => false,
                State::Live(lineage) | State::Dropped(lineage) => lineage.len() >= LONG_HISTORY,
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in long {
            self.clear(catalog, &name).await;
        }
    }

    /// Begins anew with a table.
    async fn clear(&mut self, catalog: &Catalog, name: &str) {
        self.states.insert(name.to_string(), State::Absent);
        let dropped = catalog.drop_table(ident(name)).if_exists().await;
        if let Err(e) = dropped {
            self.report(format!("{name} cannot be dropped: {e}"));
        }
        if is_child(name) {
            return;
        }
        match catalog.purge_table(name).await {
            Ok(_) | Err(Error::TableNotFound { .. }) => {}
            Err(e) => self.report(format!("{name} cannot be purged: {e}")),
        }
    }

    /// The listings agree with the states, and nothing else is there.
    async fn walk(&mut self, catalog: &Catalog) {
        let mut live = Vec::new();
        let mut dropped = BTreeSet::new();
        let mut expected: BTreeSet<String> = BTreeSet::new();
        let mut children = 0;
        for (name, state) in &self.states {
            match state {
                State::Live(_) if is_child(name) => children += 1,
                State::Live(_) => live.push(name.clone()),
                State::Dropped(_) => drop(dropped.insert(name.clone())),
                State::Absent => {}
            }
        }
        expected.extend(live.iter().chain(&dropped).map(|n| format!("{n}.lance")));
        expected.extend(dropped.iter().map(|n| format!("{n}.deleted")));
        let names = catalog.table_names().await.unwrap();
        if names != live {
            self.report(format!("{live:?} are live, but {names:?} are listed"));
        }
        let listed = catalog.list_dropped_tables().await.unwrap();
        let listed: BTreeSet<String> = listed.iter().map(|d| name_of(&d.ident)).collect();
        if listed != dropped {
            self.report(format!(
                "{dropped:?} are dropped, but {listed:?} are listed"
            ));
        }
        let mut strays = Vec::new();
        for entry in std::fs::read_dir(self.root.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            // The directory of a table in a namespace.
            if name.contains('$') && !name.contains(".deleted") && children > 0 {
                children -= 1;
            } else if !expected.remove(&name) && name != "__manifest" {
                strays.push(name);
            }
        }
        if !strays.is_empty() || !expected.is_empty() || children > 0 {
            self.report(format!("in the root: {strays:?}, not there: {expected:?}"));
        }
        // Told once.
        for stray in strays {
            let stray = self.root.path().join(stray);
            let _ = std::fs::remove_file(&stray).or_else(|_| std::fs::remove_dir_all(&stray));
        }
    }
}

/// The rows of every version of a live table, as the creates and appends that they came from.
async fn read(catalog: &Catalog, name: &str, latest: u64) -> Result<Vec<Vec<u32>>, String> {
    let mut versions = Vec::new();
    for version in 1..=latest {
        let table = catalog.open_table(ident(name)).version(version).await;
        let table = table.map_err(|e| format!("version {version} of {latest}: {e}"))?;
        let rows = try_ids(&table).await;
        let rows = rows.map_err(|e| format!("version {version} of {latest}: {e}"))?;
        match Content::of(&rows) {
            Content::Of(mut ops) => {
                ops.sort_unstable();
                versions.push(ops);
            }
            Content::Half(rows) => return Err(format!("version {version} has rows {rows:?}")),
        }
    }
    let table = catalog.open_table(ident(name)).await;
    let table = table.map_err(|e| e.to_string())?;
    if table.version().version != latest {
        return Err(format!("{latest} and {}", table.version().version));
    }
    Ok(versions)
}

/// What an undrop brought back; then it is dropped again.
async fn undropped(catalog: &Catalog, name: &str) -> Result<Vec<Vec<u32>>, String> {
    match catalog.table_status(name).await {
        Ok(TableState::Live { version }) => {
            let versions = read(catalog, name, version).await?;
            let dropped = catalog.drop_table(name).await;
            dropped.map_err(|e| format!("dropped again: {e}"))?;
            Ok(versions)
        }
        Ok(TableState::Incomplete | TableState::Absent) => Ok(Vec::new()),
        other => Err(format!("undropped, and then {other:?}")),
    }
}

/// What is there, also where it is dropped: then it is undropped, read, and dropped again.
async fn look(catalog: &Catalog, name: &str) -> Result<Found, String> {
    let told = |what: &str, e: &Error| format!("{what}: {}: {e}", kind_of(e));
    for _ in 0..4 {
        let status = catalog.table_status(ident(name)).await;
        match status.map_err(|e| told("status", &e))? {
            TableState::Live { version } => {
                return read(catalog, name, version).await.map(Found::Live);
            }
            TableState::Dropped(_) => match catalog.undrop_table(name).await {
                Ok(_) => return undropped(catalog, name).await.map(Found::Dropped),
                // It had nothing to restore, and is cleared now.
                Err(Error::TableNotFound { .. }) => return Ok(Found::Dropped(Vec::new())),
                Err(e) => return Err(told("undrop", &e)),
            },
            // Nobody is left whose it could be: the first who asks finishes it, whatever it was.
            TableState::Restoring(_) | TableState::Purging(_) | TableState::Creating => {
                match catalog.undrop_table(name).await {
                    // Whoever began to restore it: as good as this undrop alone.
                    Ok(_) => return undropped(catalog, name).await.map(Found::Dropped),
                    Err(Error::TableNotFound { .. } | Error::TableNotDropped { .. }) => {}
                    Err(e) => return Err(told("undrop", &e)),
                }
            }
            TableState::Incomplete | TableState::Absent => {
                if !is_child(name) {
                    match catalog.undrop_table(name).await {
                        Err(Error::TableNotFound { .. }) => {}
                        other => return Err(format!("undrop of what is absent: {other:?}")),
                    }
                }
                return match catalog.open_table(ident(name)).await {
                    Err(Error::TableNotFound { .. }) => Ok(Found::Absent),
                    other => Err(format!("open of what is absent: {other:?}")),
                };
            }
            other => return Err(format!("{other:?}")),
        }
    }
    Err("it keeps changing".to_string())
}
