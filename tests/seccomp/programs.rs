//! A compiled program implements its profile for every call that could show a difference: for the built-in profiles, the
//! unmodified ones of Docker and Podman if this machine has them, and random ones. Independent compilers agree.

use std::collections::HashMap;

use crate::{common, oracles};
use proptest::prelude::*;
use stockade::plan::{Capability, Network};
use stockade::seccomp::compiled;
use stockade_seccomp::builtin::{Builtin, Group, Guard, refuse};
use stockade_seccomp::compare::{calls, difference};
use stockade_seccomp::interpret::run;
use stockade_seccomp::{
    Action, Arch, Call, Condition, Context, Flags, Format, Instruction, Operator, Origin, Profile, Program, Rule,
    Stage, Width, load, validate,
};

fn context(arch: Arch, capabilities: &'static [&'static str]) -> Context<'static> {
    Context { arch, kernel: (6, 1), capabilities, strict: true }
}

fn all_capabilities() -> &'static [&'static str] {
    let names: Vec<&str> = Capability::all().iter().map(|one| &*one.to_string().leak()).collect();
    names.leak()
}

/// Compiles a profile and compares the program with it.
#[track_caller]
fn prove(profile: &Profile, what: &str) -> Program {
    let program = Program::compile(profile).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(validate(&program.instructions), Ok(()), "{what}");
    assert_eq!(difference(profile, &program.instructions), None, "{what}");
    program
}

#[test]
fn built_in_profiles_do_what_they_mean() {
    let mut groups: Vec<Vec<Group>> = Group::ALL.iter().map(|group| vec![*group]).collect();
    groups.extend([Vec::new(), Group::ALL.to_vec()]);
    for arch in [Arch::X86_64, Arch::Aarch64] {
        for capabilities in [&[][..], all_capabilities()] {
            let context = context(arch, capabilities);
            for builtin in Builtin::ALL {
                if *builtin != Builtin::Docker && !capabilities.is_empty() {
                    continue;
                }
                for network in [Network::None, Network::Host] {
                    for groups in &groups {
                        let what = format!("{builtin:?} {network:?} {groups:?} {arch:?}");
                        for guards in [&[], Guard::STANDING] {
                            let what = format!("{what} {guards:?}");
                            let mut profile = builtin.profile(network != Network::None, groups, &context).expect(&what);
                            refuse(&mut profile, guards, &context).expect(&what);
                            let program = prove(&profile, &what);
                            let ready = compiled::program(*builtin, network, groups, guards, &context);
                            let ready = ready.map_err(|error| error.to_string());
                            assert_eq!(ready, Ok(program), "{what}: the build script compiled another program");
                        }
                    }
                }
            }
        }
    }
}

/// Docker's and Podman's own files: from `STOCKADE_SECCOMP_PROFILES` (a directory of JSON), or where packages install them.
fn real_profiles() -> Vec<(String, Vec<u8>)> {
    let mut paths: Vec<std::path::PathBuf> = vec![
        "/usr/share/containers/seccomp.json".into(),
        "/usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json".into(),
    ];
    let directory = std::env::var("STOCKADE_SECCOMP_PROFILES").ok();
    let directory = directory.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/target/seccomp-profiles").into());
    paths.extend(std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()));
    paths.sort();
    let files = paths.into_iter().filter_map(|path| Some((path.display().to_string(), std::fs::read(&path).ok()?)));
    files.collect()
}

#[test]
fn the_profiles_of_docker_and_podman_load_unmodified() {
    let files = real_profiles();
    if files.is_empty() {
        return common::skip("no profile of Docker or Podman on this machine; tests/fetch-seccomp-profiles gets them");
    }
    for (path, bytes) in files {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            for capabilities in [&[][..], &["CAP_SYS_ADMIN"], all_capabilities()] {
                let context = context(arch, capabilities);
                // Strict: no unknown name, key without effect, or contradiction.
                let (profile, warnings) =
                    load(&bytes, None, &context).unwrap_or_else(|error| panic!("{path}: {error}"));
                assert_eq!(warnings, []);
                let program = prove(&profile, &path);
                eprintln!(
                    "{path} {arch:?} {} capabilities: {} instructions",
                    capabilities.len(),
                    program.instructions.len()
                );
            }
        }
    }
}

/// Our version of Docker's profile decides as an original of the same age. It allows no call that the original of Debian 12
/// refuses, except those that later versions allow.
#[test]
fn the_docker_profile_is_not_wider_than_dockers() {
    let Some((_, bytes)) = real_profiles().into_iter().find(|(path, _)| path.contains("docker")) else {
        return common::skip("Docker's profile is not on this machine; tests/fetch-seccomp-profiles gets it");
    };
    let later = [
        "cachestat",
        "fchmodat2",
        "futex_requeue",
        "futex_wait",
        "futex_wake",
        "getxattrat",
        "listmount",
        "listxattrat",
        "map_shadow_stack",
        "memfd_secret",
        "mseal",
        "name_to_handle_at",
        "process_mrelease",
        "removexattrat",
        "setxattrat",
        "statmount",
        "uretprobe",
        "pkey_alloc",
        "pkey_free",
        "pkey_mprotect",
        "futex_waitv",
        "set_mempolicy_home_node",
        "landlock_add_rule",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "process_vm_readv",
        "process_vm_writev",
    ];
    let context = context(Arch::X86_64, &[]);
    let (theirs, _) = load(&bytes, None, &context).unwrap_or_else(|error| panic!("{error}"));
    let ours = Builtin::Docker.profile(false, &[], &context).unwrap_or_else(|error| panic!("{error}"));
    for call in calls(&ours).chain(calls(&theirs)) {
        let (our, their) = (ours.decide(&call), theirs.decide(&call));
        if our == Action::Allow && their != Action::Allow {
            let name = Arch::X86_64.name(call.number).unwrap_or("?");
            assert!(later.contains(&name), "{name} {call:?}: {our} here, {their} there");
        }
    }
}

#[test]
fn the_default_profile_has_an_answer_for_every_known_call() {
    for builtin in [Builtin::Default, Builtin::Strict] {
        let profile = builtin.profile(false, &[], &context(Arch::X86_64, &[]));
        let profile = profile.unwrap_or_else(|error| panic!("{error}"));
        let silent: Vec<&str> = Arch::X86_64
            .all()
            .filter(|(_, number)| !profile.rules().any(|rule| rule.numbers.contains(number)))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(silent, Vec::<&str>::new(), "{builtin:?}");
    }
}

/// The comparison must be able to fail: a change of one bit or offset in a program is either noticed or has no effect.
#[test]
fn the_comparison_notices_changed_programs() {
    let profile = Builtin::Default.profile(true, &[], &context(Arch::X86_64, &[]));
    let profile = profile.unwrap_or_else(|error| panic!("{error}"));
    let program = prove(&profile, "default").instructions.into_owned();
    let (mut noticed, mut equivalent) = (0, 0);
    for at in (0..program.len()).step_by(5) {
        let one = program[at];
        let wrong = [
            Instruction { k: one.k ^ 1, ..one },
            Instruction { k: one.k.wrapping_add(1), ..one },
            Instruction { jt: one.jt.wrapping_add(1), ..one },
            Instruction { jf: one.jf.wrapping_add(1), ..one },
        ];
        for (kind, wrong) in wrong.into_iter().enumerate().filter(|(kind, _)| one.code & 7 == 5 || *kind < 2) {
            let mut changed = program.clone();
            changed[at] = wrong;
            if validate(&changed).is_err() {
                continue;
            }
            if difference(&profile, &changed).is_some() {
                noticed += 1;
                continue;
            }
            // A changed comparison whose branches have the same result may have no effect. The two programs then agree at all
            // values that they compare with.
            equivalent += 1;
            let call = probes(&program, &changed).find(|call| run(&program, call).0 != run(&changed, call).0);
            assert_eq!(call, None, "instruction {at}, change {kind}: {one:?} to {wrong:?} goes unnoticed");
        }
    }
    assert!(noticed > 5 * equivalent, "{noticed} changes noticed, {equivalent} said to change nothing");
}

/// Calls around every number that two programs compare with, at every pair of places, independent of any profile.
fn probes(left: &[Instruction], right: &[Instruction]) -> impl Iterator<Item = Call> {
    let mut values: Vec<u64> = left.iter().chain(right).map(|one| u64::from(one.k)).collect();
    values.extend(values.clone().iter().flat_map(|value| [value.wrapping_sub(1), value + 1, !value]));
    values.sort_unstable();
    values.dedup();
    let step = values.len() / 2 + 1;
    (0..=480u32).flat_map(move |number| {
        let values = values.clone();
        (0..values.len() * 3).map(move |at| {
            let value = |shift: usize| values[(at + shift * step) % values.len()];
            let args = match at / values.len() {
                0 => [value(0); 6],
                1 => [value(1), value(0), value(2), value(0), 0, 0],
                _ => [2, 1, value(0), value(0), value(1), 0],
            };
            Call { arch: Arch::X86_64.audit(), number, args }
        })
    })
}

#[test]
fn a_profile_that_is_too_long_says_what_costs_most() {
    let rules = |number: u32, count: u64| {
        (0..count).map(move |value| Rule {
            numbers: vec![number],
            // Odd bits, which are never adjacent, so that nothing can be joined.
            conditions: vec![
                Condition { argument: 0, width: Width::Whole, operator: Operator::Equal, value: value * 2 + 1 },
                Condition { argument: 1, width: Width::Int, operator: Operator::Equal, value: value * value },
            ],
            action: Action::Allow,
            origin: Origin("syscalls", 0),
        })
    };
    let socket = Arch::X86_64.number("socket").unwrap_or_default();
    let stage = Stage { name: String::new(), rules: rules(socket, 2000).chain(rules(16, 10)).collect() };
    let error = Program::compile(&profile_of(vec![stage])).expect_err("fits").to_string();
    assert!(error.contains("more than the 4096 the kernel takes; the most go to socket ("), "{error}");
}

fn profile_of(stages: Vec<Stage>) -> Profile {
    Profile {
        format: Format::Oci,
        arch: Arch::X86_64,
        default: Action::Errno(1),
        beyond: Action::Errno(38),
        stages,
        flags: Flags::default(),
        listener: None,
    }
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Allow),
        2 => (0u16..4096).prop_map(Action::Errno),
        1 => prop_oneof![
            Just(Action::KillProcess), Just(Action::KillThread), Just(Action::Trap), Just(Action::Notify), Just(Action::Log),
            any::<u16>().prop_map(Action::Trace),
        ],
    ]
}

/// Interesting values: small, at word boundaries, negative.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..8,
        (0u32..64).prop_map(|bit| 1u64 << bit),
        (0u32..64).prop_map(|bit| (1u64 << bit) - 1),
        (0u64..8).prop_map(|low| low.wrapping_neg()),
        (0u64..4, 0u64..4).prop_map(|(high, low)| high << 32 | low),
        (0u64..4).prop_map(|low| 0xffff_fff0 | low),
        any::<u64>(),
    ]
}

fn operator() -> impl Strategy<Value = Operator> {
    prop_oneof![
        3 => Just(Operator::Equal),
        1 => Just(Operator::NotEqual),
        1 => Just(Operator::Less),
        1 => Just(Operator::LessOrEqual),
        1 => Just(Operator::Greater),
        1 => Just(Operator::GreaterOrEqual),
        3 => value().prop_map(Operator::MaskedEqual),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let width = prop_oneof![4 => Just(Width::Whole), 4 => Just(Width::Int), 1 => Just(Width::Mode)];
    (0u8..6, width, operator(), value()).prop_map(|(argument, width, operator, value)| {
        // Mostly values that can match.
        let value = match operator {
            Operator::MaskedEqual(mask) if value & 7 != 7 => value & mask,
            _ => value,
        };
        Condition { argument, width, operator, value }
    })
}

fn rule(condition: impl Strategy<Value = Condition>) -> impl Strategy<Value = Rule> {
    let numbers = prop::collection::vec(prop_oneof![0u32..12, 0u32..480], 1..6);
    (numbers, prop::collection::vec(condition, 0..4), action()).prop_map(|(numbers, conditions, action)| Rule {
        numbers,
        conditions,
        action,
        origin: Origin("syscalls", 0),
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    let stage = prop::collection::vec(rule(condition()), 0..24).prop_map(|rules| Stage { name: String::new(), rules });
    let arch = prop_oneof![Just(Arch::X86_64), Just(Arch::Aarch64)];
    (arch, action(), action(), prop::collection::vec(stage, 1..4)).prop_map(|(arch, default, beyond, stages)| Profile {
        format: Format::Oci,
        arch,
        default,
        beyond,
        ..profile_of(stages)
    })
}

/// Many rules with one argument of one call: ranges, joins, trees.
fn crowded() -> impl Strategy<Value = Profile> {
    let rule = |argument: u8, width| {
        (operator(), value(), action()).prop_map(move |(operator, value, action)| Rule {
            numbers: vec![7],
            conditions: vec![Condition { argument, width, operator, value }],
            action,
            origin: Origin("syscalls", 0),
        })
    };
    let width = prop_oneof![Just(Width::Whole), Just(Width::Int)];
    (0u8..6, width).prop_flat_map(move |(argument, width)| {
        prop::collection::vec(rule(argument, width), 1..40)
            .prop_map(|rules| profile_of(vec![Stage { name: String::new(), rules }]))
    })
}

/// Many calls with arguments of their own: long jumps.
fn long() -> impl Strategy<Value = Profile> {
    prop::collection::vec((0u32..480, condition(), condition(), action()), 100..400).prop_map(|list| {
        let rules = list.into_iter().map(|(number, first, second, action)| Rule {
            numbers: vec![number],
            conditions: vec![first, second],
            action,
            origin: Origin("syscalls", 0),
        });
        profile_of(vec![Stage { name: String::new(), rules: rules.collect() }])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_profiles_do_what_they_mean(profile in profile()) {
        prove(&profile, "random");
    }

    #[test]
    fn crowded_profiles_do_what_they_mean(profile in crowded()) {
        prove(&profile, "crowded");
    }

    #[test]
    fn long_profiles_do_what_they_mean(profile in long()) {
        match Program::compile(&profile) {
            Ok(program) => {
                prop_assert_eq!(validate(&program.instructions), Ok(()));
                prop_assert_eq!(difference(&profile, &program.instructions), None);
            }
            Err(error) => prop_assert!(error.to_string().contains("more than the 4096"), "{}", error),
        }
    }
}

/// The first call that two programs for x86_64 answer differently, except for numbers without a call that the other compilers do
/// not treat as x32: see `compare::calls`.
fn disagreement(profile: &Profile, ours: &[Instruction], theirs: &[Instruction], x32: bool) -> Option<String> {
    calls(profile).filter(|call| call.number < 0x4000_0000 || x32 && call.number < 0x8000_0000).find_map(|call| {
        let (our, their) = (run(ours, &call).0, run(theirs, &call).0);
        (our != their).then(|| format!("{call:?}: {our} from us, {their} from them"))
    })
}

/// The profile as libseccomp can express it: one stage, whole registers, no rule for higher numbers, no contradictions. If a
/// profile both allows and refuses a call (Podman's does so with `setns`), libseccomp keeps the first rule; ours uses the
/// stricter one.
fn for_libseccomp(profile: &Profile, name: &str) -> Profile {
    let mut profile = profile.clone();
    profile.stages.retain(|stage| stage.name.is_empty());
    let certain = |rule: &&Rule| rule.conditions.is_empty();
    let strictest: HashMap<u32, Action> = profile.rules().filter(certain).fold(HashMap::new(), |mut map, rule| {
        for number in &rule.numbers {
            let action = map.entry(*number).or_insert(rule.action);
            *action = if rule.action.leniency() < action.leniency() { rule.action } else { *action };
        }
        map
    });
    let podmans = ["podman", "containers"].iter().any(|whose| name.contains(whose)); // names of the fetched and of the installed file
    for rule in profile.stages[0].rules.iter_mut().filter(|rule| rule.conditions.is_empty()) {
        rule.numbers.retain(|number| {
            let stays = strictest[number].leniency() == rule.action.leniency();
            let call = Arch::X86_64.name(*number);
            assert!(stays || podmans && call == Some("setns"), "{name} contradicts itself on {call:?}");
            stays
        });
    }
    profile.beyond = profile.default;
    for rule in &mut profile.stages[0].rules {
        rule.conditions.iter_mut().for_each(|condition| condition.width = Width::Whole);
    }
    profile
}

#[test]
fn libseccomp_agrees_on_the_built_in_and_real_profiles() {
    let tool = match oracles::libseccomp_tool() {
        Ok(tool) => tool,
        Err(reason) => return common::skip(&reason),
    };
    let context = context(Arch::X86_64, &[]);
    let mut profiles: Vec<(String, Profile)> = Vec::new();
    for builtin in Builtin::ALL {
        let profile = builtin.profile(false, &[], &context).unwrap_or_else(|error| panic!("{error}"));
        profiles.push((builtin.name().to_owned(), profile));
    }
    for (path, bytes) in real_profiles() {
        profiles.push((path.clone(), load(&bytes, None, &context).unwrap_or_else(|error| panic!("{path}: {error}")).0));
    }
    for (name, profile) in profiles {
        let profile = for_libseccomp(&profile, &name);
        let ours = prove(&profile, &name);
        for optimize in [1, 2] {
            let rules = oracles::libseccomp_rules(&profile, optimize);

            let theirs = oracles::libseccomp(&tool, &rules).unwrap_or_else(|error| panic!("{name}: {error}"));
            eprintln!(
                "{name}: {} instructions, libseccomp (optimize {optimize}) {}",
                ours.instructions.len(),
                theirs.len()
            );
            assert_eq!(disagreement(&profile, &ours.instructions, &theirs, true), None, "{name}");
        }
    }
    drop(std::fs::remove_file(tool));
}

#[test]
fn seccompiler_agrees_on_the_built_in_and_real_profiles() {
    let context = context(Arch::X86_64, &[]);
    let mut profiles: Vec<(String, Profile)> = Vec::new();
    for builtin in Builtin::ALL {
        let profile = builtin.profile(false, &[], &context).unwrap_or_else(|error| panic!("{error}"));
        profiles.push((builtin.name().to_owned(), profile));
    }
    for (path, bytes) in real_profiles() {
        profiles.push((path.clone(), load(&bytes, None, &context).unwrap_or_else(|error| panic!("{path}: {error}")).0));
    }
    for (name, mut profile) in profiles {
        // seccompiler has one action beside the default: keep the allowing stage.
        profile.stages.retain(|stage| stage.name.is_empty());
        profile.stages[0].rules.retain(|rule| rule.action == Action::Allow);
        profile.beyond = profile.default;
        let ours = prove(&profile, &name);
        let theirs = oracles::seccompiler(&profile).unwrap_or_else(|| panic!("{name} cannot be expressed"));
        eprintln!("{name}: {} instructions, seccompiler {}", ours.instructions.len(), theirs.len());
        assert_eq!(disagreement(&profile, &ours.instructions, &theirs, false), None, "{name}");
    }
}

/// Random rules that every compiler can express: for each call one action, each argument tested once in a rule. If two rules
/// about one call have different actions, libseccomp uses the order in which they were added, and seccompiler has only one
/// action.
fn for_all_compilers() -> impl Strategy<Value = Profile> {
    let width = prop_oneof![Just(Width::Whole), Just(Width::Int)];
    let condition = (0u8..6, width, operator(), value()).prop_map(|(argument, width, operator, value)| {
        let value = if let Operator::MaskedEqual(mask) = operator { value & mask } else { value };
        Condition { argument, width, operator, value: value & width.mask() }
    });
    let rule = (prop_oneof![0u32..6, 0u32..330], prop::collection::vec(condition, 0..4));
    let actions = prop::collection::vec(action().prop_filter("no listener", |one| *one != Action::Notify), 5);
    (prop::collection::vec(rule, 1..24), actions).prop_map(|(list, actions)| {
        let rules = list.into_iter().map(|(number, mut conditions)| {
            let mut seen = [false; 6];
            conditions.retain(|one| !std::mem::replace(&mut seen[usize::from(one.argument)], true));
            let action = actions[number as usize % 4];
            Rule { numbers: vec![number], conditions, action, origin: Origin("syscalls", 0) }
        });
        let stage = Stage { name: String::new(), rules: rules.collect() };
        Profile { default: actions[4], beyond: actions[4], ..profile_of(vec![stage]) }
    })
}

/// Removes the rules that libseccomp up to 2.6.0 is known to compile wrongly, and returns their number. There is one such shape,
/// *several ordered comparisons of one argument*: two rules about one call compare the same argument by operators other than EQ
/// and MASKED_EQ. libseccomp merges their two halves of 64 bits so that some calls pass that no rule allows
/// (GHSA-4q85-33p6-j5g6). The first of such rules stays.
fn without_known_shapes(profile: &mut Profile) -> usize {
    let ordered = |rule: &Rule| -> Vec<u8> {
        let conditions = rule.conditions.iter();
        let ordered = conditions.filter(|one| !matches!(one.operator, Operator::Equal | Operator::MaskedEqual(_)));
        ordered.map(|condition| condition.argument).collect()
    };
    let mut seen = std::collections::HashSet::new();
    let before = profile.stages[0].rules.len();
    profile.stages[0].rules.retain(|rule| {
        let places: Vec<(u32, u8)> = ordered(rule).into_iter().map(|argument| (rule.numbers[0], argument)).collect();
        let known = places.iter().any(|place| seen.contains(place));
        seen.extend(if known { Vec::new() } else { places });
        !known
    });
    before - profile.stages[0].rules.len()
}

/// No difference on whole registers, which is all that libseccomp compares, with both of its optimisation levels. The known wrong
/// shape is removed first, and the rest of the profile is still compared.
#[test]
fn libseccomp_agrees_on_random_profiles() {
    let tool = match oracles::libseccomp_tool() {
        Ok(tool) => tool,
        Err(reason) => return common::skip(&reason),
    };
    let (mut taken_out, mut differed) = (0, 0);
    for (round, mut profile) in random(for_all_compilers(), 400).enumerate() {
        for condition in profile.stages[0].rules.iter_mut().flat_map(|rule| &mut rule.conditions) {
            condition.width = Width::Whole;
        }
        let compare = |profile: &Profile| {
            let ours = prove(profile, "random");
            let rules = oracles::libseccomp_rules(profile, 1 + round as u32 % 2);
            let theirs = oracles::libseccomp(&tool, &rules).unwrap_or_else(|error| panic!("{error}\n{profile:#?}"));
            disagreement(profile, &ours.instructions, &theirs, true)
        };
        let whole = profile.clone();
        let known = without_known_shapes(&mut profile);
        if known > 0 {
            taken_out += known;
            differed += usize::from(compare(&whole).is_some());
        }
        assert_eq!(compare(&profile), None, "{profile:#?}");
    }
    eprintln!(
        "400 profiles agree; {taken_out} rules of the known shape were taken out, {differed} profiles differed with them"
    );
    drop(std::fs::remove_file(tool));
}

/// The same for seccompiler, which has one action beside the default. The second argument is compared as a mode of 16 bits, which
/// it does not support.
#[test]
fn seccompiler_agrees_on_random_profiles() {
    let mut compared = 0;
    for mut profile in random(for_all_compilers(), 600) {
        let action = profile.stages[0].rules[0].action;
        let conditions = profile.stages[0].rules.iter_mut().flat_map(|rule| &mut rule.conditions);
        conditions.filter(|one| one.argument == 1).for_each(|one| one.width = Width::Mode);
        profile.stages[0].rules.retain(|rule| rule.action == action);
        // seccompiler refuses a filter whose two actions are the same.
        if action == profile.default {
            continue;
        }
        let ours = prove(&profile, "random");
        let theirs = oracles::seccompiler(&profile).unwrap_or_else(|| panic!("cannot be expressed: {profile:#?}"));
        assert_eq!(disagreement(&profile, &ours.instructions, &theirs, false), None, "{profile:#?}");
        compared += 1;
    }
    eprintln!("{compared} profiles agree");
    assert!(compared > 300, "only {compared} could be compared");
}

fn random<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, count: usize) -> impl Iterator<Item = T> {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    (0..count).map(move |_| match strategy.new_tree(&mut runner) {
        Ok(tree) => tree.current(),
        Err(reason) => panic!("{reason}"),
    })
}
