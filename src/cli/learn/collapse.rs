//! Lets a directory of the system stand for many of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where this happens: what the distribution installs. Never these directories themselves.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// How many paths may stay beside each other.
const MOST: usize = 8;

/// The paths, and the directories among them that stand for several, with how many. `may` says whether a directory may.
pub fn collapsed(
    paths: BTreeSet<PathBuf>,
    may: impl Fn(&Path) -> bool,
) -> (BTreeSet<PathBuf>, BTreeMap<PathBuf, usize>) {
    let (mut left, mut stand_for) = (paths, BTreeMap::<PathBuf, usize>::new());
    // The deepest directories first: one that stands for many counts as one in the directory above it.
    loop {
        let mut beside: BTreeMap<&Path, usize> = BTreeMap::new();
        for directory in left.iter().filter_map(|path| path.parent()).filter(|directory| is_below_system(directory)) {
            *beside.entry(directory).or_default() += 1;
        }
        let crowded = beside.into_iter().filter(|(directory, count)| *count > MOST && may(directory));
        let Some(deepest) =
            crowded.map(|(directory, _)| directory.to_owned()).max_by_key(|path| path.components().count())
        else {
            return (left, stand_for);
        };
        let below: Vec<PathBuf> = left.iter().filter(|path| path.starts_with(&deepest)).cloned().collect();
        let count = below.iter().map(|path| stand_for.remove(path).unwrap_or(1)).sum();
        left.retain(|path| !path.starts_with(&deepest));
        left.insert(deepest.clone());
        stand_for.insert(deepest, count);
    }
}

fn is_below_system(directory: &Path) -> bool {
    SYSTEM.iter().any(|top| directory.starts_with(top) && directory != Path::new(top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crowded_directories_of_the_system_stand_for_their_files() {
        let many = |directory: &'static str, count: usize| {
            (0..count).map(move |at| PathBuf::from(format!("/{directory}/{at}")))
        };
        let paths = |lists: Vec<PathBuf>| lists.into_iter().collect::<BTreeSet<_>>();
        let all = |directory: &'static str, count| paths(many(directory, count).collect());
        for (directory, count) in [("home/me", 100), ("usr/lib", MOST), ("usr", 100), ("workspace/usr/lib", 100)] {
            assert_eq!(collapsed(all(directory, count), |_| true), (all(directory, count), BTreeMap::new()));
        }
        let (left, stand_for) = collapsed(all("usr/lib/python3", 9), |_| true);
        assert_eq!(left, paths(vec!["/usr/lib/python3".into()]));
        assert_eq!(stand_for, BTreeMap::from([("/usr/lib/python3".into(), 9)]));
        assert_eq!(collapsed(all("usr/lib/python3", 9), |_| false).1, BTreeMap::new());
        // One directory in another counts as one.
        let nested = many("usr/lib/a/b", 9).chain(many("usr/lib/a", 7)).collect();
        assert_eq!(collapsed(paths(nested), |_| true).1, BTreeMap::from([("/usr/lib/a/b".into(), 9)]));
        let nested = many("usr/lib/a/b", 9).chain(many("usr/lib/a", 8)).collect();
        assert_eq!(collapsed(paths(nested), |_| true).1, BTreeMap::from([("/usr/lib/a".into(), 17)]));
    }
}
