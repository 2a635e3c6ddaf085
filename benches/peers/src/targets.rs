//! What the figures are held to, and whether they meet it.

use crate::contestants::{DATASET, DIRECTORY, FLOOR, MANIFEST, OURS, STORE};
use crate::measure::{Figure, Group};
use crate::workloads::{changes, children, commits, listing, one, versions};

/// One target and how it was met.
pub(crate) struct Judged {
    pub(crate) workload: &'static str,
    pub(crate) target: &'static str,
    pub(crate) verdict: &'static str,
    pub(crate) numbers: String,
}

/// The verdict on what was not among the workloads.
pub(crate) const NOT_RUN: &str = "not run";

const SLOW: &str = "latency store";
const DISK: &str = "local disk";
const SERVER: &str = "S3 server";

/// The groups of one workload in one place.
fn of<'a>(groups: &'a [Group], workload: &str, place: &str) -> Vec<&'a Group> {
    let wanted = |g: &&Group| g.workload == workload && g.place == place;
    groups.iter().filter(wanted).collect()
}

/// What was found in each group: whether it is as it should be, and in which numbers.
type Found = Vec<(bool, String)>;

fn verdict(workload: &'static str, target: &'static str, found: Found) -> Judged {
    let verdict = match found.as_slice() {
        [] => NOT_RUN,
        all if all.iter().all(|(met, _)| *met) => "met",
        _ => "MISSED",
    };
    let numbers: Vec<String> = found.into_iter().map(|(_, numbers)| numbers).collect();
    Judged {
        workload,
        target,
        verdict,
        numbers: numbers.join("; "),
    }
}

fn pair<'a>(group: &'a Group, other: &str) -> Option<(&'a Figure, &'a Figure)> {
    Some((group.figure(OURS)?, group.figure(other)?))
}

/// Ours by another's time, in the groups that have both.
fn times(groups: &[&Group], other: &str, most: f64) -> Found {
    let found = groups.iter().filter_map(|group| {
        let (ours, other) = pair(group, other)?;
        let ratio = ours.ratio_to(other)?;
        let numbers = format!("{} {}, {}: {ratio:.2} ×", group.size, group.of, group.place);
        Some((ratio <= most, numbers))
    });
    found.collect()
}

/// No request more than another.
fn requests(groups: &[&Group], other: &str) -> Found {
    let found = groups.iter().filter_map(|group| {
        let (ours, other) = pair(group, other)?;
        let (ours, other) = (ours.requests?, other.requests?);
        let numbers = format!("{} {}: {ours}, against {other}", group.size, group.of);
        Some((ours <= other, numbers))
    });
    found.collect()
}

/// At most so many requests or trips, the same at every size.
fn constant(
    groups: &[&Group],
    most: u64,
    what: &str,
    of: impl Fn(&Figure) -> Option<u64>,
) -> Found {
    let counts: Vec<(u64, usize)> = groups
        .iter()
        .filter_map(|g| Some((of(g.figure(OURS)?)?, g.size)))
        .collect();
    let Some((first, _)) = counts.first() else {
        return Vec::new();
    };
    let found = counts.iter().map(|(count, size)| {
        let met = *count <= most && count == first;
        (met, format!("{size}: {count} {what}"))
    });
    found.collect()
}

fn request_count(figure: &Figure) -> Option<u64> {
    figure.requests.map(|n| n as u64)
}

fn largest<'a>(groups: &[&'a Group]) -> Vec<&'a Group> {
    let largest = groups.iter().max_by_key(|g| g.size);
    largest.into_iter().copied().collect()
}

fn listings(groups: &[Group]) -> Vec<Judged> {
    let slow = of(groups, listing::ALL, SLOW);
    let dropped = of(groups, listing::ALL_DROPPED, SLOW);
    let equal = slow.iter().chain(&dropped).filter_map(|group| {
        let (ours, floor) = pair(group, FLOOR)?;
        let (ours, floor) = (ours.requests?, floor.requests?);
        Some((
            ours == floor,
            format!("{}: {ours}, floor {floor}", group.size),
        ))
    });
    let fewer = slow.iter().filter_map(|group| {
        let (ours, stock) = pair(group, DIRECTORY)?;
        let (ours, stock) = (ours.requests?, stock.requests?);
        // The quotient is stock / ours, and N / 50 is asked of it.
        let met = stock * 50 >= group.size * ours;
        let numbers = format!("{}: {ours}, DirectoryNamespace {stock}", group.size);
        (group.size >= 1_000).then_some((met, numbers))
    });
    let disk = times(&of(groups, listing::ALL, DISK), FLOOR, 2.0);
    let mut pages = Vec::new();
    for workload in [listing::PAGE, listing::PAGE_DROPPED] {
        let served = of(groups, workload, SERVER);
        pages.extend(constant(&served, 4, "requests", request_count));
    }
    vec![
        verdict(listing::ALL, "requests are the floor's", equal.collect()),
        verdict(
            listing::ALL,
            "N/50 times fewer requests than DirectoryNamespace from 1,000 tables on",
            fewer.collect(),
        ),
        verdict(listing::ALL, "at most 2 × read_dir on local disk", disk),
        verdict(
            listing::PAGE,
            "at most 4 requests on the S3 server, the same for every N and so for a million",
            pages,
        ),
    ]
}

fn commits(groups: &[Group]) -> Vec<Judged> {
    let alone = of(groups, commits::ALONE, SLOW);
    let both = |workload| {
        let mut both = largest(&of(groups, workload, SLOW));
        both.extend(largest(&of(groups, workload, DISK)));
        both
    };
    vec![
        verdict(
            commits::ALONE,
            "no more requests than Lance's own store",
            requests(&alone, STORE),
        ),
        verdict(
            commits::ALONE,
            "no more time than Lance's own store",
            times(&alone, STORE, 1.0),
        ),
        verdict(
            commits::TOGETHER,
            "throughput of most writers at least that of Lance's own store",
            times(&both(commits::TOGETHER), STORE, 1.0),
        ),
        verdict(
            commits::CROWD,
            "within 1.3 × of unmanaged commits",
            times(&both(commits::CROWD), DATASET, 1.3),
        ),
    ]
}

/// All targets, in the order of the issue.
pub(crate) fn judge(groups: &[Group]) -> Vec<Judged> {
    let mut judged = listings(groups);
    let open = times(&of(groups, one::OPEN, SLOW), DATASET, 1.05);
    judged.push(verdict(one::OPEN, "at most 1.05 × plain Lance", open));

    let drops = of(groups, changes::DROP, SLOW);
    let mut found = constant(&drops, 5, "requests", request_count);
    found.extend(constant(&drops, 4, "trips", |figure| figure.trips));
    let target = "at most 4 round trips, whatever the size";
    judged.push(verdict(changes::DROP, target, found));

    let described = of(groups, versions::DESCRIBE, SLOW);
    let mut found = constant(&described, u64::MAX, "requests", request_count);
    found.extend(constant(&described, u64::MAX, "trips", |figure| {
        figure.trips
    }));
    let target = "independent of the number of versions";
    judged.push(verdict(versions::DESCRIBE, target, found));

    judged.extend(commits(groups));

    let purges = largest(&of(groups, changes::PURGE, SLOW));
    let found = times(&purges, changes::ONE_BY_ONE, 0.1);
    let target = "a tenth of the time of deletion one by one, at most";
    judged.push(verdict(changes::PURGE, target, found));

    for workload in [
        children::CREATE,
        children::OPEN,
        children::LIST,
        children::EXISTS,
        children::DROP,
    ] {
        let found = requests(&of(groups, workload, SLOW), MANIFEST);
        judged.push(verdict(workload, "no request more than the base", found));
    }
    judged
}
