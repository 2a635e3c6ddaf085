//! Sixteen tasks on two catalogs, each doing a bounded number of things at random.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, Error, ErrorKind, NamespaceIdent};

use super::{Place, make, numbers, patiently, read, tables};
use crate::common::{Rng, ids, rows};

const TASKS: usize = 16;
/// What each task does.
const STEPS: usize = 14;
/// Replays the choices of a run.
const SEED: &str = "LANCEKEEP_STORM_SEED";

const OWN_NAMESPACES: usize = 2;
const OWN_TABLES: usize = 3;
const SHARED: [&str; 2] = ["s0", "s1"];
const SHARED_TABLES: usize = 3;

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|s| s.parse::<u64>().ok());
    let seed = given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(now.as_micros()).unwrap()
    });
    println!("{SEED}={seed}");
    seed
}

/// The namespaces that one task has to itself, with their tables and each table's first row.
type Model = BTreeMap<Vec<String>, BTreeMap<String, i32>>;

struct Task {
    number: usize,
    catalog: Catalog,
    rng: Rng,
    model: Model,
    retries: usize,
}

fn strings(parts: &[&str]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}

fn inside(namespace: &[String], name: &str) -> Vec<String> {
    [namespace, &[name.to_string()]].concat()
}

#[track_caller]
fn expect(what: &str, outcome: Result<(), Error>, expected: Result<(), ErrorKind>) {
    let told = outcome.as_ref().copied().map_err(Error::kind);
    assert_eq!(told, expected, "{what}: {outcome:?}");
}

/// Does it until nobody is in the way, and counts how often somebody was.
macro_rules! insist {
    ($task:ident, $attempt:expr) => {{
        let mut attempts = 0_usize;
        let outcome = patiently(|| {
            attempts += 1;
            $attempt
        })
        .await;
        $task.retries += attempts - 1;
        outcome
    }};
}

impl Task {
    /// Something with what nobody else touches: the answer is known.
    async fn own_step(&mut self, step: usize) {
        let task = self;
        let catalog = task.catalog.clone();
        let n = task.rng.below(OWN_NAMESPACES);
        // The second one is in the first one.
        let mut namespace = strings(&[&format!("own{}", task.number)]);
        if n == 1 {
            namespace.push("deep".to_string());
        }
        let (parent, name) = (&namespace[..n], format!("t{}", task.rng.below(OWN_TABLES)));
        let table = inside(&namespace, &name);
        let has_parent = n == 0 || task.model.contains_key(parent);
        let there = task.model.get(&namespace).cloned();
        let row = i32::try_from(task.number * 1_000 + step * 10).unwrap();
        let what = format!("task {}, step {step}, {namespace:?}, {name}", task.number);
        match task.rng.below(7) {
            0 => {
                let made = insist!(task, catalog.create_namespace(namespace.clone()));
                let expected = match &there {
                    _ if !has_parent => Err(ErrorKind::NamespaceNotFound),
                    Some(_) => Err(ErrorKind::NamespaceAlreadyExists),
                    None => Ok(()),
                };
                expect(&format!("{what}: make"), made.map(drop), expected);
                if expected.is_ok() {
                    task.model.insert(namespace, BTreeMap::new());
                }
            }
            1 => {
                let dropped = insist!(task, catalog.drop_namespace(namespace.clone()));
                let full = there.as_ref().is_some_and(|tables| !tables.is_empty())
                    || task.model.keys().any(|other| {
                        other.len() > namespace.len() && other.starts_with(&namespace)
                    });
                let expected = match &there {
                    None => Err(ErrorKind::NamespaceNotFound),
                    Some(_) if full => Err(ErrorKind::NamespaceNotEmpty),
                    Some(_) => Ok(()),
                };
                expect(&format!("{what}: unmake"), dropped.map(drop), expected);
                if expected.is_ok() {
                    task.model.remove(&namespace);
                }
            }
            2 | 3 => {
                let batch = rows(row..row + 2);
                let created = insist!(task, catalog.create_table(table.clone(), batch.clone()));
                let expected = match &there {
                    None => Err(ErrorKind::NamespaceNotFound),
                    Some(tables) if tables.contains_key(&name) => {
                        Err(ErrorKind::TableAlreadyExists)
                    }
                    Some(_) => Ok(()),
                };
                expect(&format!("{what}: create"), created.map(drop), expected);
                if expected.is_ok() {
                    task.model.get_mut(&namespace).unwrap().insert(name, row);
                }
            }
            4 => {
                let dropped = insist!(task, catalog.drop_table(table.clone()));
                let known = there
                    .as_ref()
                    .is_some_and(|tables| tables.contains_key(&name));
                let expected = match known {
                    true => Ok(()),
                    false => Err(ErrorKind::TableNotFound),
                };
                expect(&format!("{what}: drop"), dropped.map(drop), expected);
                if known {
                    task.model.get_mut(&namespace).unwrap().remove(&name);
                }
            }
            5 => {
                let listed = insist!(task, catalog.list_tables().namespace(namespace.clone()));
                match there {
                    None => {
                        let missing = Err(ErrorKind::NamespaceNotFound);
                        expect(&format!("{what}: list"), listed.map(drop), missing);
                    }
                    Some(tables) => {
                        let names: Vec<String> = tables.into_keys().collect();
                        assert_eq!(listed.unwrap().tables, names, "{what}: list");
                    }
                }
            }
            _ => {
                let opened = insist!(task, catalog.open_table(table.clone()));
                match there.and_then(|tables| tables.get(&name).copied()) {
                    None => {
                        let missing = Err(ErrorKind::TableNotFound);
                        expect(&format!("{what}: open"), opened.map(drop), missing);
                    }
                    Some(row) => {
                        let found = ids(&opened.unwrap()).await;
                        assert_eq!(found, numbers(row..row + 2), "{what}: open");
                    }
                }
            }
        }
    }

    /// Something with what others are at: one of the answers that fit.
    async fn shared_step(&mut self, step: usize) {
        use ErrorKind as K;
        let task = self;
        let catalog = task.catalog.clone();
        let namespace = strings(&[SHARED[task.rng.below(SHARED.len())]]);
        let name = format!("t{}", task.rng.below(SHARED_TABLES));
        let table = inside(&namespace, &name);
        let row = i32::try_from(task.number * 1_000 + step * 10).unwrap();
        let what = format!("task {}, step {step}, {table:?}", task.number);
        let (did, outcome, fits): (_, _, &[K]) = match task.rng.below(7) {
            0 => (
                "make",
                insist!(task, catalog.create_namespace(namespace.clone())).map(drop),
                &[K::NamespaceAlreadyExists],
            ),
            1 => (
                "unmake",
                insist!(task, catalog.drop_namespace(namespace.clone())).map(drop),
                &[K::NamespaceNotFound, K::NamespaceNotEmpty],
            ),
            2 | 3 => {
                let batch = rows(row..row + 2);
                (
                    "create",
                    insist!(task, catalog.create_table(table.clone(), batch.clone())).map(drop),
                    &[K::NamespaceNotFound, K::TableAlreadyExists],
                )
            }
            4 => (
                "drop",
                insist!(task, catalog.drop_table(table.clone())).map(drop),
                &[K::TableNotFound],
            ),
            5 => (
                "list",
                insist!(task, catalog.list_tables().namespace(namespace.clone())).map(drop),
                &[K::NamespaceNotFound],
            ),
            _ => (
                "open",
                insist!(task, catalog.open_table(table.clone())).map(drop),
                &[K::TableNotFound],
            ),
        };
        if let Err(error) = outcome {
            assert!(fits.contains(&error.kind()), "{what}: {did}: {error:?}");
        }
    }

    async fn run(mut self) -> (Model, usize) {
        for step in 0..STEPS {
            match self.rng.below(3) {
                0 => self.shared_step(step).await,
                _ => self.own_step(step).await,
            }
        }
        (self.model, self.retries)
    }
}

async fn storm(place: &Place) {
    let seed = seed();
    let catalogs = [place.catalog().await, place.catalog().await];
    // The first use is a race of its own; here it is over.
    make(&catalogs[0], &[&["s0"]]).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let own_seed = seed
                .wrapping_add(1 + number as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let task = Task {
                number,
                catalog: catalogs[number % 2].clone(),
                rng: Rng::new(own_seed),
                model: Model::new(),
                retries: 0,
            };
            tokio::spawn(task.run())
        })
        .collect();
    let (mut model, mut retries) = (Model::new(), 0);
    for task in tasks {
        let (own, of_task) = task.await.unwrap();
        model.extend(own);
        retries += of_task;
    }
    println!("{} steps, {retries} times told to try again", TASKS * STEPS);

    let rows = place.manifest().await;
    super::check_rows(&rows);
    let found: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.id.as_str())
        .filter(|id| id.starts_with("own"))
        .collect();
    let mut expected = BTreeSet::new();
    for (namespace, tables) in &model {
        let namespace = namespace.join("$");
        expected.extend(tables.keys().map(|name| format!("{namespace}${name}")));
        expected.insert(namespace);
    }
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(found, expected);

    let third = place.catalog().await;
    for catalog in [&catalogs[0], &catalogs[1], &third] {
        let top = catalog
            .list_namespaces(NamespaceIdent::root())
            .await
            .unwrap();
        let (shared, own): (Vec<_>, Vec<_>) = top.iter().partition(|name| name.starts_with('s'));
        let modelled: Vec<&String> = model
            .keys()
            .filter(|namespace| namespace.len() == 1)
            .map(|namespace| &namespace[0])
            .collect();
        assert_eq!(
            own.iter().collect::<BTreeSet<_>>(),
            modelled.iter().collect()
        );
        for (namespace, of_model) in &model {
            assert!(catalog.namespace_exists(namespace.clone()).await.unwrap());
            let parts: Vec<&str> = namespace.iter().map(String::as_str).collect();
            let listed = tables(catalog, &parts).await;
            assert_eq!(listed, of_model.keys().cloned().collect::<Vec<_>>());
            for (name, row) in of_model {
                let found = read(catalog, inside(namespace, name)).await;
                assert_eq!(found, numbers(*row..*row + 2), "{namespace:?} {name}");
            }
        }
        for name in shared {
            catalog.describe_namespace(name).await.unwrap();
            for table in tables(catalog, &[name]).await {
                let found = read(catalog, [name.as_str(), &table]).await;
                assert_eq!(found.len(), 2, "{name} {table}");
            }
        }
    }
    // A drop may take out a table that was created anew since it looked, and leave its directory: only where several
    // tasks were at one table, and reconcile tells.
    let mut litter = place.entries().await;
    litter.remove(super::MANIFEST);
    for location in rows.iter().filter_map(|row| row.location.as_ref()) {
        assert!(litter.remove(location), "{location} is missing");
    }
    println!("left behind: {litter:?}");
    let shared = |dir: &String| SHARED.iter().any(|name| dir.contains(&format!("_{name}$")));
    assert!(litter.iter().all(shared), "{litter:?}");
    let report = third.reconcile(true).await.unwrap();
    let mut told = BTreeSet::new();
    for finding in &report.findings {
        assert_eq!(
            finding.kind,
            FindingKind::UnregisteredDirectory,
            "{finding:?}"
        );
        told.insert(finding.ident.name().to_string());
    }
    assert_eq!(told, litter);
}

on_both!(storm: sixteen_tasks_on_two_catalogs_on_local_disk, sixteen_tasks_on_two_catalogs_in_memory);
