//! Compiles rules to a program.
//!
//! For each number, the rules of all stages are sorted into the order in which they decide, so that the first matching rule
//! wins. Adjacent numbers with the same outcome become one range, and a balanced tree of comparisons leads from the number to
//! the outcome. An outcome is a result or a test of arguments, which again is a tree over ranges of words. Each outcome is
//! written once, next to the first leaf that needs it.
//!
//! The seccompiler crate compiles the rules of a file in its own format. The code here then adds the checks for other system
//! call tables and the groups, and continues at that program for all other calls.

use std::collections::HashMap;

use crate::Error;
use crate::action::Action;
use crate::bpf::{AND, ARCH, Assembler, Instruction, JEQ, JGE, JSET, LOAD, Label, MAX_INSTRUCTIONS, NUMBER};
use crate::model::{FOREIGN, Format, Profile, Rule, SKIPPED, Stage, X32_BIT};
use crate::names::Arch;
use crate::ranges::{self, Place, Ranges, Test};
use crate::seccompiler;

/// Compiles a profile. Fails if the program is longer than the kernel's limit; the error names the most expensive calls.
pub fn compile(profile: &Profile) -> Result<Vec<Instruction>, Error> {
    let mut assembler = Assembler::default();
    let (outcomes, below) = match (profile.format, profile.stages.as_slice()) {
        (Format::Seccompiler, [above @ .., own]) => {
            let below = assembler.finished(&seccompiler::compile(own, profile.default, profile.arch)?);
            (Outcomes::of(above, End::Below, End::Below, profile.arch), below)
        }
        (_, stages) => {
            (Outcomes::of(stages, End::Action(profile.default), End::Action(profile.beyond), profile.arch), 0)
        }
    };
    let mut writer = Writer { outcomes, assembler, below };
    let ranges = writer.outcomes.ranges.clone();
    let tree = writer.tree(&ranges, &mut Writer::outcome);
    let number = writer.assembler.then(LOAD, NUMBER, tree);
    let foreign = writer.assembler.answer(FOREIGN.encode());
    let arch = writer.assembler.branch(JEQ, profile.arch.audit(), number, foreign);
    let entry = writer.assembler.then(LOAD, ARCH, arch);
    let program = writer.assembler.finish(entry);
    if program.len() > MAX_INSTRUCTIONS { Err(too_long(profile, &writer.outcomes, program.len())) } else { Ok(program) }
}

/// Tests of arguments, and the action if they pass.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Arm {
    tests: Vec<Test>,
    action: Action,
}

/// The end of the rules for a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    /// This action.
    Action(Action),
    /// The program below decides.
    Below,
}

/// The outcome for a number: the first arm whose tests pass, or else this end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Outcome {
    arms: Vec<Arm>,
    otherwise: End,
}

/// All outcomes of a profile and the numbers that lead to them.
struct Outcomes {
    all: Vec<Outcome>,
    /// Where the code of each outcome begins, and its length.
    written: Vec<Option<(Label, usize)>>,
    /// First number and outcome. The ranges cover all numbers, and adjacent ranges differ.
    ranges: Vec<(u32, usize)>,
}

impl Outcomes {
    /// `default` is for numbers up to the highest one in a rule, `beyond` for those above it.
    fn of(stages: &[Stage], default: End, beyond: End, arch: Arch) -> Self {
        let rules = stages.iter().flat_map(|stage| &stage.rules);
        let highest = rules.flat_map(|rule| &rule.numbers).max().copied().unwrap_or(0);
        let mut deciding: Vec<Vec<(usize, &Rule)>> = vec![Vec::new(); highest as usize + 1];
        for (at, stage) in stages.iter().enumerate() {
            for rule in &stage.rules {
                for number in &rule.numbers {
                    deciding[*number as usize].push((at, rule));
                }
            }
        }
        let mut outcomes = Self { all: Vec::new(), written: Vec::new(), ranges: Vec::new() };
        let mut known = HashMap::new();
        for (number, mut rules) in (0..).zip(deciding) {
            // A stable sort: among equally strict rules of a stage the first in the file decides.
            rules.sort_by_key(|(stage, rule)| (*stage, rule.action.leniency()));
            outcomes.lead(number, outcome(&rules, default), &mut known);
        }
        let mut lead = |number, end| {
            outcomes.lead(number, Outcome { arms: Vec::new(), otherwise: end }, &mut known);
        };
        lead(highest + 1, beyond);
        if arch == Arch::X86_64 {
            let foreign = End::Action(FOREIGN);
            // In negative numbers the x32 bit still counts; only -1 is a skipped call.
            for (start, end) in
                [(X32_BIT, foreign), (X32_BIT << 1, beyond), (X32_BIT | X32_BIT << 1, foreign), (SKIPPED, beyond)]
            {
                lead(start, end);
            }
        }
        outcomes
    }

    /// From this number on the outcome applies.
    fn lead(&mut self, number: u32, outcome: Outcome, known: &mut HashMap<Outcome, usize>) {
        let id = match known.get(&outcome) {
            Some(id) => *id,
            None => {
                known.insert(outcome.clone(), self.all.len());
                self.all.push(outcome);
                self.written.push(None);
                self.all.len() - 1
            }
        };
        if self.ranges.last().is_none_or(|last| last.1 != id) {
            self.ranges.push((number, id));
        }
    }
}

/// The outcome of rules, given in the order in which they decide.
fn outcome(rules: &[(usize, &Rule)], default: End) -> Outcome {
    let certain = rules.iter().position(|(_, rule)| rule.conditions.is_empty());
    let mut otherwise = certain.map_or(default, |at| End::Action(rules[at].1.action));
    let mut arms = Vec::new();
    let mut rest = &rules[..certain.unwrap_or(rules.len())];
    while let Some((_, first)) = rest.first() {
        let same = rest.iter().take_while(|(_, rule)| rule.action == first.action).count();
        let mut alternatives = rest[..same].iter().filter_map(|(_, rule)| ranges::of(&rule.conditions)).collect();
        ranges::join(&mut alternatives);
        if alternatives.iter().any(Vec::is_empty) {
            otherwise = End::Action(first.action);
            break;
        }
        arms.extend(alternatives.into_iter().map(|tests| Arm { tests, action: first.action }));
        rest = &rest[same..];
    }
    // Trailing tests decide nothing if passing and failing have the same outcome.
    while arms.last().is_some_and(|arm| End::Action(arm.action) == otherwise) {
        arms.pop();
    }
    Outcome { arms, otherwise }
}

/// Code that begins with a test of a place. Its entry depends on the accumulator's content.
#[derive(Clone, Copy)]
struct Entry {
    /// The place whose value `warm` expects in the accumulator, if any.
    place: Option<Place>,
    warm: Label,
    cold: Label,
}

impl Entry {
    fn with(self, held: Place) -> Label {
        if self.place == Some(held) { self.warm } else { self.cold }
    }
}

struct Writer {
    outcomes: Outcomes,
    assembler: Assembler,
    /// The start of the program below, if there is one.
    below: Label,
}

impl Writer {
    /// The code of an outcome, written at its first use.
    fn outcome(&mut self, id: usize) -> Label {
        if let Some((label, _)) = self.outcomes.written[id] {
            return label;
        }
        let before = self.assembler.written();
        let Outcome { arms, otherwise } = self.outcomes.all[id].clone();
        let mut next = self.end(otherwise);
        for arm in arms.iter().rev() {
            let mut passed = self.end(End::Action(arm.action));
            for test in arm.tests.iter().rev() {
                passed = self.test(test, passed, next);
            }
            next = passed;
        }
        self.outcomes.written[id] = Some((next.cold, self.assembler.written() - before));
        next.cold
    }

    fn end(&mut self, end: End) -> Entry {
        let label = match end {
            End::Action(action) => self.assembler.answer(action.encode()),
            End::Below => self.below,
        };
        Entry { place: None, warm: label, cold: label }
    }

    /// A test that continues at one of two entries.
    fn test(&mut self, test: &Test, yes: Entry, no: Entry) -> Entry {
        match test.place {
            Place::Both { offset } => self.both(offset, &test.ranges, yes, no),
            Place::Word { offset, mask } => self.word(offset, mask, &test.ranges, yes, no),
        }
    }

    fn word(&mut self, offset: u32, mask: u32, ranges: &[(u64, u64)], yes: Entry, no: Entry) -> Entry {
        let whole = Place::Word { offset, mask: u32::MAX };
        if mask != u32::MAX {
            // A test for all or no bits needs no masking, which would overwrite the accumulator.
            let (none, some) = match ranges {
                [(0, 0)] => (yes, no),
                [(1, end)] if *end == u64::from(mask) => (no, yes),
                [(start, end)] if start == end && *start == u64::from(mask) && mask.is_power_of_two() => (no, yes),
                _ => return self.masked_word(offset, mask, ranges, yes, no),
            };
            let warm = self.assembler.branch(JSET, mask, some.with(whole), none.with(whole));
            let cold = self.assembler.then(LOAD, offset, warm);
            return Entry { place: Some(whole), warm, cold };
        }
        let warm = self.ranges(whole, ranges, yes, no);
        let cold = self.assembler.then(LOAD, offset, warm);
        Entry { place: Some(whole), warm, cold }
    }

    fn masked_word(&mut self, offset: u32, mask: u32, ranges: &[(u64, u64)], yes: Entry, no: Entry) -> Entry {
        let place = Place::Word { offset, mask };
        let warm = self.ranges(place, ranges, yes, no);
        let masked = self.assembler.then(AND, mask, warm);
        let cold = self.assembler.then(LOAD, offset, masked);
        Entry { place: Some(place), warm, cold }
    }

    /// A tree over the ranges of the word in the accumulator.
    fn ranges(&mut self, place: Place, ranges: &[(u64, u64)], yes: Entry, no: Entry) -> Label {
        let mut starts = Vec::with_capacity(ranges.len() * 2 + 1);
        if ranges.first().is_none_or(|range| range.0 != 0) {
            starts.push((0, 0));
        }
        for (start, end) in ranges {
            starts.push((*start as u32, 1));
            if *end < place.most() {
                starts.push((*end as u32 + 1, 0));
            }
        }
        let labels = [no.with(place), yes.with(place)];
        self.tree(&starts, &mut |_, id| labels[id])
    }

    /// Ranges of 64 bits: tests the high word and, if that does not decide, the low word.
    fn both(&mut self, offset: u32, ranges: &[(u64, u64)], yes: Entry, no: Entry) -> Entry {
        let high = Place::Word { offset: offset + 4, mask: u32::MAX };
        let (word, full) = (|value: u64| value & 0xffff_ffff, 0xffff_ffff);
        // Ranges of the low word for each run of high words.
        let mut parts: Vec<(u64, u64, Ranges)> = Vec::new();
        let mut add = |first: u64, last: u64, low: (u64, u64)| match parts.last_mut() {
            Some(part) if part.0 == first && part.1 == last => part.2.push(low),
            _ => parts.push((first, last, vec![low])),
        };
        for &(start, end) in ranges {
            let (mut first, mut last) = (start >> 32, end >> 32);
            if first == last {
                add(first, last, (word(start), word(end)));
                continue;
            }
            if word(start) != 0 {
                add(first, first, (word(start), full));
                first += 1;
            }
            let tail = (word(end) != full).then_some((last, word(end)));
            if tail.is_some() {
                last -= 1;
            }
            if first <= last {
                add(first, last, (0, full));
            }
            if let Some((high, end)) = tail {
                add(high, high, (0, end));
            }
        }
        let mut labels = vec![no.with(high)];
        let mut starts: Vec<(u32, usize)> = Vec::new();
        let mut next = 0;
        for (first, last, low) in parts {
            if first > next {
                starts.push((next as u32, 0));
            }
            labels.push(if low == [(0, full)] {
                yes.with(high)
            } else {
                self.word(offset, u32::MAX, &low, yes, no).with(high)
            });
            starts.push((first as u32, labels.len() - 1));
            next = last + 1;
        }
        if next <= full {
            starts.push((next as u32, 0));
        }
        let warm = self.tree(&starts, &mut |_, id| labels[id]);
        let cold = self.assembler.then(LOAD, offset + 4, warm);
        Entry { place: Some(high), warm, cold }
    }

    /// A balanced tree over the accumulator. `starts` contains the first value of each run and its leaf.
    fn tree(&mut self, starts: &[(u32, usize)], leaf: &mut impl FnMut(&mut Self, usize) -> Label) -> Label {
        self.subtree(starts, u64::from(u32::MAX) + 1, leaf)
    }

    /// `end` is the first value after the last run.
    fn subtree(
        &mut self,
        starts: &[(u32, usize)],
        end: u64,
        leaf: &mut impl FnMut(&mut Self, usize) -> Label,
    ) -> Label {
        if let [(_, only)] = starts {
            return leaf(self, *only);
        }
        if let Some((background, singles)) = singles(starts, end) {
            let mut label = leaf(self, background);
            let leaves: Vec<Label> = singles.iter().map(|(_, id)| leaf(self, *id)).collect();
            for ((value, _), found) in singles.iter().zip(leaves).rev() {
                label = self.assembler.branch(JEQ, *value, found, label);
            }
            return label;
        }
        let (left, right) = starts.split_at(starts.len() / 2);
        let yes = self.subtree(right, end, leaf);
        let no = self.subtree(left, u64::from(right[0].0), leaf);
        self.assembler.branch(JGE, right[0].0, yes, no)
    }
}

/// A few single values in front of a background are cheaper as separate comparisons.
fn singles(starts: &[(u32, usize)], end: u64) -> Option<(usize, Vec<(u32, usize)>)> {
    const FEW: usize = 3;
    if starts.len() > 2 * FEW + 1 {
        return None;
    }
    let width = |at: usize| starts.get(at + 1).map_or(end, |next| u64::from(next.0)) - u64::from(starts[at].0);
    [starts[0].1, starts[1].1].into_iter().find_map(|background| {
        let others: Vec<usize> = (0..starts.len()).filter(|at| starts[*at].1 != background).collect();
        let few = others.len() <= FEW && others.iter().all(|at| width(*at) == 1);
        few.then(|| (background, others.iter().map(|at| starts[*at]).collect()))
    })
}

fn too_long(profile: &Profile, outcomes: &Outcomes, length: usize) -> Error {
    let costs = outcomes.written.iter().enumerate().filter_map(|(id, written)| Some((written.as_ref()?.1, id)));
    let mut costs: Vec<(usize, usize)> = costs.filter(|(cost, _)| *cost > 1).collect();
    costs.sort_unstable_by(|left, right| right.cmp(left));
    let names = |id: usize| {
        let number = outcomes.ranges.iter().find(|range| range.1 == id).map_or(0, |range| range.0);
        profile.arch.name(number).unwrap_or("?")
    };
    Error::TooLong { length, most: costs.iter().take(5).map(|(cost, id)| (names(*id), *cost)).collect() }
}
