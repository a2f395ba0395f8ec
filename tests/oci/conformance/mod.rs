//! The conformance suite: each case is a configuration, commands, and what must be seen. It runs on ours, runc and crun, so that a
//! wrong expectation fails as well. A runtime that may differ has its own expectation, with the reason.
//!
//! `STOCKADE_CASE=part_of_a_name` runs these cases alone and shows what each runtime did.

use std::collections::HashSet;

use crate::common;
use crate::common::bundle::Runtime;

mod case;
mod engine;

macro_rules! areas {
    ($($area:ident: $least:literal,)*) => {
        $(mod $area;

        #[test]
        fn $area() {
            engine::run_all(&$area::cases());
        })*

        #[test]
        fn the_suite_has_its_size_and_every_case_has_its_own_name() {
            let areas = [$((stringify!($area), $area::cases(), $least)),*];
            let mut names = HashSet::new();
            for (area, cases, least) in &areas {
                assert!(cases.len() >= *least, "{area} has {} cases, and had {least}", cases.len());
                for case in cases {
                    assert!(names.insert(case.name), "two cases have the name {}", case.name);
                }
            }
            assert!(names.len() >= 250, "{} cases", names.len());
            let differing = areas.iter().flat_map(|(_, cases, _)| cases).filter(|case| case.differs(Runtime::Ours));
            let differing: Vec<_> = differing.map(|case| case.name).collect();
            assert_eq!(differing, [""; 0], "the expectation of a case is ours; a control may differ from it");
        }
    };
}

areas! {
    cgroups: 64,
    errors: 79,
    exec: 62,
    hooks: 49,
    lifecycle: 68,
    mounts: 103,
    namespaces: 57,
    process: 92,
    seccomp: 43,
    terminals: 36,
    update: 63,
}
