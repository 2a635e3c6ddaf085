//! How much of everything is measured.

/// The sizes of all workloads.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    pub(crate) repetitions: usize,
    /// Root tables, listed whole and by the page.
    pub(crate) tables: Vec<usize>,
    /// The same on the S3 server, by the page.
    pub(crate) tables_on_server: Vec<usize>,
    /// Above so many tables those that look at each of them are not run where a request takes time.
    pub(crate) looked_at: usize,
    /// Tables beside the one that is opened.
    pub(crate) among: usize,
    /// Files of the table that is dropped and purged.
    pub(crate) files: Vec<usize>,
    pub(crate) writers: Vec<usize>,
    /// Appends that each of them makes.
    pub(crate) appends: usize,
    /// Writers, and appends of each, beside unmanaged ones.
    pub(crate) crowd: (usize, usize),
    pub(crate) versions: Vec<usize>,
    /// Tables in one namespace.
    pub(crate) entries: Vec<usize>,
    /// Tables listed, and objects purged, with an eye on memory.
    pub(crate) in_memory: usize,
}

impl Sizes {
    /// What the issue asks for.
    pub(crate) fn full() -> Self {
        Self {
            repetitions: 5,
            tables: vec![100, 1_000, 10_000, 100_000],
            tables_on_server: vec![1_000, 5_000, 20_000],
            looked_at: 10_000,
            among: 10_000,
            files: vec![1, 100, 5_000],
            writers: vec![1, 4, 16],
            appends: 5,
            crowd: (8, 10),
            versions: vec![10, 300, 3_000],
            entries: vec![10, 1_000, 10_000],
            in_memory: 100_000,
        }
    }

    /// A run of a minute or two without optimization.
    pub(crate) fn quick() -> Self {
        Self {
            repetitions: 2,
            tables: vec![20, 1_050],
            tables_on_server: vec![120, 240],
            looked_at: 1_100,
            among: 50,
            files: vec![1, 20],
            writers: vec![1, 2],
            appends: 2,
            crowd: (2, 2),
            versions: vec![3, 8],
            entries: vec![2, 20],
            in_memory: 200,
        }
    }
}
