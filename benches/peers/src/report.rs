//! The table, for the terminal and for a file.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::measure::{Figure, Group};
use crate::targets::Judged;

fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn number(n: f64) -> String {
    match n {
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// Median and spread of the ratios turn by turn, or of what memory was taken.
fn ratio(figure: &Figure, ours: &Figure) -> String {
    if let (Some(peak), Some(our_peak)) = (figure.peak, ours.peak) {
        return number(peak / our_peak.max(0.1));
    }
    let ratios = figure.ratios_to(ours);
    match (ratios.first(), figure.ratio_to(ours), ratios.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{} ({}–{})", number(median), number(*least), number(*most))
        }
        _ => "–".to_string(),
    }
}

fn cells(figure: &Figure, ours: &Figure) -> [String; 6] {
    let or_none = |n: Option<String>| n.unwrap_or_else(|| "–".to_string());
    [
        figure.contestant.clone(),
        ratio(figure, ours),
        or_none(figure.median().map(time)),
        or_none(figure.requests.map(|n| n.to_string())),
        or_none(figure.trips.map(|n| n.to_string())),
        figure.remark.clone().unwrap_or_default(),
    ]
}

/// Requests that a log tells.
const LOGGED: usize = 60;

const HEAD: [&str; 6] = [
    "contestant",
    "× lancekeep (least–most)",
    "median",
    "requests",
    "round trips",
    "",
];

fn heading(group: &Group) -> String {
    let Group {
        workload,
        size,
        of,
        place,
        ..
    } = group;
    format!("{workload}: {size} {of}, {place}")
}

fn table(group: &Group) -> Vec<[String; 6]> {
    let ours = &group.figures[0];
    let mut rows = vec![HEAD.map(ToString::to_string)];
    rows.extend(group.figures.iter().map(|figure| cells(figure, ours)));
    rows
}

/// For a terminal, in columns.
pub(crate) fn text(group: &Group) -> String {
    let rows = table(group);
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = format!("\n{}\n", heading(group));
    for row in rows {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let fill = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(fill))
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        writeln!(out, "  {}", line.trim_end()).unwrap();
    }
    out
}

/// The requests of each contestant's last turn; of many only the first.
pub(crate) fn log(group: &Group) -> String {
    let mut out = String::new();
    for figure in group.figures.iter().filter(|f| !f.log.is_empty()) {
        writeln!(out, "  requests of {}", figure.contestant).unwrap();
        for request in figure.log.iter().take(LOGGED) {
            writeln!(out, "    {request}").unwrap();
        }
        if figure.log.len() > LOGGED {
            writeln!(out, "    … {} more", figure.log.len() - LOGGED).unwrap();
        }
    }
    out
}

fn markdown(group: &Group) -> String {
    let mut out = format!("\n### {}\n\n", heading(group));
    for (i, row) in table(group).into_iter().enumerate() {
        writeln!(out, "| {} |", row.join(" | ")).unwrap();
        if i == 0 {
            writeln!(out, "| --- | ---: | ---: | ---: | ---: | --- |").unwrap();
        }
    }
    out
}

/// A figure in one cell: its ratio, or for lancekeep its time, and what it asked of the store.
fn told(figure: &Figure, ours: Option<&Figure>) -> String {
    let mut parts = Vec::new();
    match (ours, figure.peak) {
        (_, Some(peak)) => parts.push(format!("{} MiB", number(peak))),
        (Some(ours), None) => parts.extend(
            figure
                .ratio_to(ours)
                .map(|ratio| format!("{} ×", number(ratio))),
        ),
        (None, None) => parts.extend(figure.median().map(time)),
    }
    if let Some(requests) = figure.requests {
        let trips = figure.trips.map(|trips| format!(" in {trips} trips"));
        parts.push(format!("{requests} requests{}", trips.unwrap_or_default()));
    }
    parts.join(", ")
}

/// Of each workload in each place the largest size that everybody was measured at.
fn largest(groups: &[Group]) -> Vec<&Group> {
    let whole = |group: &Group| {
        let ran = |f: &&Figure| !f.times.is_empty() || f.peak.is_some();
        group.figures.iter().filter(ran).count()
    };
    let mut rows: Vec<&Group> = Vec::new();
    for group in groups {
        let same = |row: &&mut &Group| row.workload == group.workload && row.place == group.place;
        match rows.iter_mut().find(same) {
            None => rows.push(group),
            Some(row) if (whole(group), group.size) > (whole(row), row.size) => *row = group,
            Some(_) => {}
        }
    }
    rows
}

/// One row for each workload and place.
fn summary(groups: &[Group]) -> String {
    let mut out =
        "| what, where | lancekeep | beside it, in times of lancekeep |\n| --- | --- | --- |\n"
            .to_string();
    for group in largest(groups) {
        let [ours, others @ ..] = group.figures.as_slice() else {
            continue;
        };
        let beside: Vec<String> = others
            .iter()
            .filter(|f| f.remark.is_none() || !f.times.is_empty() || f.peak.is_some())
            .map(|other| format!("{}: {}", other.contestant, told(other, Some(ours))))
            .collect();
        let (heading, ours, beside) = (heading(group), told(ours, None), beside.join("; "));
        writeln!(out, "| {heading} | {ours} | {beside} |").unwrap();
    }
    out
}

pub(crate) fn targets_text(judged: &[Judged]) -> String {
    let mut out = "\ntargets\n".to_string();
    for target in judged {
        let Judged {
            workload,
            target,
            verdict,
            numbers,
        } = target;
        writeln!(out, "  {verdict}  {workload}: {target}; {numbers}").unwrap();
    }
    out
}

/// Below the target folder; runs at tiny sizes and of some workloads have files of their own.
pub(crate) fn write(groups: &[Group], judged: &[Judged], quick: bool, all: bool) -> PathBuf {
    let mut out = "# lancekeep beside its peers\n\n".to_string();
    out.push_str(
        "Each ratio is to lancekeep's turn of the same round: the one in the middle, the least and the most. A request \
         takes 20 ms on the latency store. Requests and round trips, one after another, are those of one operation. The \
         latency store lists in full for each page, for everybody; the S3 server gives pages.\n",
    );
    if quick {
        out.push_str("\nTiny sizes, to try the program: no figures to rely on.\n");
    }
    out.push_str("\n## Targets\n\n| workload | target | | measured |\n| --- | --- | --- | --- |\n");
    for target in judged {
        let Judged {
            workload,
            target,
            verdict,
            numbers,
        } = target;
        writeln!(out, "| {workload} | {target} | {verdict} | {numbers} |").unwrap();
    }
    out.push_str("\n## In one table\n\n");
    out.push_str(&summary(groups));
    out.push_str("\n## Figures\n");
    for group in groups {
        out.push_str(&markdown(group));
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let place = target.join("peers");
    fs::create_dir_all(&place).unwrap();
    let file = place.join(match (quick, all) {
        (true, _) => "peers-quick.md",
        (false, false) => "peers-some.md",
        (false, true) => "peers.md",
    });
    fs::write(&file, out).unwrap();
    file
}
