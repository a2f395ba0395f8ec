//! Conditions in the form that a filter can test: ranges of 32-bit words.
//!
//! Every comparison is membership in a set of ranges. So conjunction is intersection, alternatives of the same action are a
//! union, and one code generator serves both syscall numbers and arguments.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::model::{Condition, Operator};
use crate::names::Width;

/// Ascending, disjoint and not adjacent; both ends are included.
pub(super) type Ranges = Vec<(u64, u64)>;

/// A test whether a part of a call lies in some ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Test {
    /// The tested part.
    pub(super) place: Place,
    /// Neither empty nor all possible values.
    pub(super) ranges: Ranges,
}

/// A part of a call that a filter can test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    /// The bits of a mask in the word at an offset of `seccomp_data`.
    Word {
        /// In bytes.
        offset: u32,
        /// The tested bits.
        mask: u32,
    },
    /// Both words of an argument.
    Both {
        /// The offset of the low word, in bytes; the high word follows.
        offset: u32,
    },
}

impl Place {
    /// The highest possible value.
    pub(super) fn most(self) -> u64 {
        match self {
            Self::Word { mask, .. } => u64::from(mask),
            Self::Both { .. } => u64::MAX,
        }
    }
}

impl Test {
    /// The argument, and the ranges as blocks of a power of two: masks, and the values under them.
    pub(super) fn blocks(&self) -> (u8, Vec<(u64, u64)>) {
        let (Place::Word { offset, .. } | Place::Both { offset }) = self.place;
        let mut blocks = Vec::new();
        for &(mut start, end) in &self.ranges {
            loop {
                // The largest block that begins here and does not exceed the end.
                let fits = |rest: &u64| start & rest == 0 && start | rest <= end;
                let rest = (0..64).rev().map(|bits| (1 << bits) - 1).find(fits).unwrap_or(0);
                blocks.push((self.place.most() & !rest, start));
                match (start | rest).checked_add(1).filter(|next| *next <= end) {
                    Some(next) => start = next,
                    None => break,
                }
            }
        }
        (((offset - 16) / 8) as u8, blocks)
    }
}

/// The offset of an argument's low word in `struct seccomp_data` on little-endian architectures.
fn offset(argument: u8) -> u32 {
    16 + 8 * u32::from(argument)
}

/// The conditions as tests that must all pass, sorted by place. `None` if no call can pass them.
pub(super) fn of(conditions: &[Condition]) -> Option<Vec<Test>> {
    let whole = conjunction(conditions.iter().flat_map(places));
    // After all intersections: checks whether a 64-bit test is a product of two words.
    let mut tests = conjunction(whole.into_iter().flat_map(split));
    tests.retain(|test| test.ranges != [(0, test.place.most())]);
    tests.sort_unstable_by_key(|test| test.place);
    (!tests.iter().any(|test| test.ranges.is_empty())).then_some(tests)
}

/// One test for each place.
fn conjunction(all: impl Iterator<Item = (Place, Ranges)>) -> Vec<Test> {
    let mut places: Vec<(Place, Vec<Ranges>)> = Vec::new();
    for (place, ranges) in all {
        match places.iter_mut().find(|entry| entry.0 == place) {
            Some(entry) => entry.1.push(ranges),
            None => places.push((place, vec![ranges])),
        }
    }
    places.into_iter().map(|(place, lists)| Test { place, ranges: intersection_of(lists) }).collect()
}

/// In pairs, and pairs of pairs. One after the other, ten thousand conditions on one argument would take quadratic time.
fn intersection_of(mut lists: Vec<Ranges>) -> Ranges {
    while lists.len() > 1 {
        lists = lists
            .chunks(2)
            .map(|pair| pair[1..].iter().fold(pair[0].clone(), |left, right| intersection(&left, right)))
            .collect();
    }
    lists.pop().unwrap_or_default()
}

/// One condition as ranges of one or two places.
fn places(condition: &Condition) -> Vec<(Place, Ranges)> {
    let low = offset(condition.argument);
    let value = condition.datum();
    if let Operator::MaskedEqual(mask) = condition.operator {
        let mask = mask & condition.width.mask();
        let word = |offset, mask: u64, value: u64| {
            let place = Place::Word { offset, mask: mask as u32 };
            (place, if value & !mask == 0 { vec![(value, value)] } else { Vec::new() })
        };
        if condition.width != Width::Whole {
            return vec![word(low, mask, value)];
        }
        return vec![word(low, mask & 0xffff_ffff, value & 0xffff_ffff), word(low + 4, mask >> 32, value >> 32)];
    }
    let place = match condition.width {
        Width::Whole => Place::Both { offset: low },
        narrow => Place::Word { offset: low, mask: narrow.mask() as u32 },
    };
    let most = place.most();
    let below = || value.checked_sub(1).map(|end| (0, end.min(most)));
    let above = || value.checked_add(1).filter(|start| *start <= most).map(|start| (start, most));
    let exactly = (value <= most).then_some((value, value));
    let ranges = match condition.operator {
        Operator::Equal => exactly.into_iter().collect(),
        Operator::NotEqual => below().into_iter().chain(above()).collect(),
        Operator::Less => below().into_iter().collect(),
        Operator::LessOrEqual => vec![(0, value.min(most))],
        Operator::Greater => above().into_iter().collect(),
        Operator::GreaterOrEqual => exactly.map(|_| (value, most)).into_iter().collect(),
        Operator::MaskedEqual(_) => Ranges::new(),
    };
    vec![(place, ranges)]
}

/// Splits a test of both words into one test for each word, if that is equivalent: two separate tests are cheaper than nested
/// ones.
fn split(test: Test) -> Vec<(Place, Ranges)> {
    let Place::Both { offset } = test.place else { return vec![(test.place, test.ranges)] };
    let (low, high) = (Place::Word { offset, mask: u32::MAX }, Place::Word { offset: offset + 4, mask: u32::MAX });
    let word = |value: u64| value & 0xffff_ffff;
    let Some(&(first, _)) = test.ranges.first() else { return vec![(low, Ranges::new())] };
    if test.ranges.iter().all(|range| range.0 >> 32 == first >> 32 && range.1 >> 32 == first >> 32) {
        let ranges = test.ranges.iter().map(|range| (word(range.0), word(range.1))).collect();
        return vec![(low, ranges), (high, vec![(first >> 32, first >> 32)])];
    }
    if test.ranges.iter().all(|range| word(range.0) == 0 && word(range.1) == 0xffff_ffff) {
        return vec![(high, test.ranges.iter().map(|range| (range.0 >> 32, range.1 >> 32)).collect())];
    }
    vec![(test.place, test.ranges)]
}

fn intersection(left: &Ranges, right: &Ranges) -> Ranges {
    let (mut both, mut i, mut j) = (Ranges::new(), 0, 0);
    while i < left.len() && j < right.len() {
        let (start, end) = (left[i].0.max(right[j].0), left[i].1.min(right[j].1));
        if start <= end {
            both.push((start, end));
        }
        if left[i].1 < right[j].1 { i += 1 } else { j += 1 }
    }
    both
}

/// Sorts ranges and merges adjacent ones.
fn normalise(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(ranges.len());
    for &(start, end) in ranges.iter() {
        match merged.last_mut() {
            Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}

/// Merges alternatives that differ in only one place: `level = 6, option = 1` and `level = 6, option = 2` become one. All must
/// have the same action.
pub(super) fn join(alternatives: &mut Vec<Vec<Test>>) {
    while alternatives.len() > 1 {
        let before = alternatives.len();
        let longest = alternatives.iter().map(Vec::len).max().unwrap_or(0);
        for at in (0..longest).rev() {
            join_at(alternatives, at);
        }
        if alternatives.len() == before {
            return;
        }
    }
}

fn join_at(alternatives: &mut Vec<Vec<Test>>, at: usize) {
    let mut found: HashMap<(Vec<Test>, Place), usize> = HashMap::new();
    let mut groups: Vec<(Vec<Test>, Test)> = Vec::new();
    let (long, mut joined) = std::mem::take(alternatives).into_iter().partition::<Vec<_>, _>(|tests| at < tests.len());
    for mut tests in long {
        let test = tests.remove(at);
        match found.entry((tests.clone(), test.place)) {
            Entry::Occupied(group) => groups[*group.get()].1.ranges.extend(test.ranges),
            Entry::Vacant(new) => {
                new.insert(groups.len());
                groups.push((tests, test));
            }
        }
    }
    for (mut tests, mut test) in groups {
        normalise(&mut test.ranges);
        if test.ranges != [(0, test.place.most())] {
            tests.insert(at, test);
        }
        joined.push(tests);
    }
    *alternatives = joined;
}
