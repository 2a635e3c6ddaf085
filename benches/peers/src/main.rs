//! lancekeep beside what a user would pick instead, measured in one run on the same roots: stock `DirectoryNamespace`,
//! lancedb's `Connection`, Lance's own external manifest store, plain Lance datasets, and the floor, which is what the
//! store itself takes for one bare request or listing.
//!
//! ```sh
//! cargo run --release -p peers                  # everything; the table is printed and written below the target folder
//! cargo run --release -p peers -- --only commit # the workloads whose name contains this
//! cargo run --release -p peers -- --only child --log # with the requests of each contestant, to see where they go
//! cargo run -p peers -- --quick                 # tiny sizes: whether the program works, no figures to rely on
//! ```
//!
//! [`measure`] says how a figure comes about, [`workloads`] what is measured, [`targets`] what is asked of it.

// A contestant prepares, and then yields what is timed.
#![allow(clippy::async_yields_async)]

use std::process::ExitCode;

use crate::measure::Group;
use crate::sizes::Sizes;

mod contestants;
mod measure;
mod report;
mod roots;
mod sizes;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod targets;
mod workloads;

const USAGE: &str = "usage: peers [--quick] [--only WORKLOAD]... [--log] [--list]";

struct Arguments {
    quick: bool,
    only: Vec<String>,
    list: bool,
    log: bool,
}

fn parse(arguments: impl IntoIterator<Item = String>) -> Option<Arguments> {
    let mut parsed = Arguments {
        quick: false,
        only: Vec::new(),
        list: false,
        log: false,
    };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => parsed.quick = true,
            "--list" => parsed.list = true,
            "--log" => parsed.log = true,
            "--only" => parsed.only.push(arguments.next()?),
            _ => return None,
        }
    }
    Some(parsed)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments
        .peek()
        .is_some_and(|a| a == workloads::memory::CHILD)
    {
        let told: Vec<String> = arguments.skip(1).collect();
        workloads::memory::child(&told).await;
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let wanted: Vec<&str> = workloads::NAMES
        .into_iter()
        .filter(|name| {
            arguments.only.is_empty() || arguments.only.iter().any(|o| name.contains(o.as_str()))
        })
        .collect();
    if arguments.list || wanted.is_empty() {
        println!("workloads: {}", workloads::NAMES.join(", "));
        return ExitCode::from(if arguments.list { 0 } else { 2 });
    }
    let sizes = if arguments.quick {
        Sizes::quick()
    } else {
        Sizes::full()
    };
    let mut groups: Vec<Group> = Vec::new();
    for name in wanted {
        eprintln!("== {name}");
        let found = workloads::run(name, &sizes).await;
        for group in &found {
            print!("{}", report::text(group));
            if arguments.log {
                print!("{}", report::log(group));
            }
        }
        groups.extend(found);
    }
    let everything = arguments.only.is_empty();
    let mut judged = targets::judge(&groups);
    judged.retain(|target| everything || target.verdict != targets::NOT_RUN);
    print!("{}", report::targets_text(&judged));
    let place = report::write(&groups, &judged, arguments.quick, everything);
    println!("written to {}", place.display());
    ExitCode::SUCCESS
}
