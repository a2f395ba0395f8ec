//! The documents about attacks are correct: each named test exists, each attack is in the evidence, and the build that can omit a
//! layer is not shipped.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common;
use crate::common::{Caller, Run};

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The ids of all attacks, from the list that runs them.
fn attacks() -> BTreeSet<String> {
    let text = file("tests/attack/attacks.py");
    let ids = text.lines().filter_map(|line| line.strip_prefix("    \"D")?.split_once("\": Attack("));
    ids.map(|(number, _)| format!("D{number}")).collect()
}

/// Whether a test `program::module::test`, or a module, of this name exists.
fn exists(name: &str) -> bool {
    let at = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{}.rs", name.replace("::", "/")));
    let (module, test) = name.rsplit_once("::").unwrap_or_else(|| panic!("program::module::test: {name}"));
    let source = std::fs::read_to_string(at(module)).unwrap_or_default();
    let is_test = |at: usize| source[..at].trim_end().ends_with("#[test]");
    at(name).exists() || source.find(&format!("fn {test}()")).is_some_and(is_test)
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of a table, as cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("|---"));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_test_that_the_walkthrough_names_exists() {
    let text = file("docs/cve-walkthrough.md");
    let (rows, attacks) = (rows(&text), attacks());
    assert!(rows.len() > 30, "rows are missing: {}", rows.len());
    for row in &rows[1..] {
        let proof = row.last().unwrap();
        let named: Vec<_> = in_backticks(proof).collect();
        for name in &named {
            assert!(exists(name), "there is no test {name}");
        }
        let words = proof.split(|c: char| !c.is_alphanumeric()).filter(|word| {
            word.len() == 3 && word.starts_with('D') && word[1..].bytes().all(|digit| digit.is_ascii_digit())
        });
        for id in words.clone() {
            assert!(attacks.contains(id), "there is no attack {id}");
        }
        assert!(!named.is_empty() || words.count() > 0, "no proof for {}", row[0]);
    }
}

#[test]
fn every_test_that_is_said_to_cover_a_fault_exists() {
    let text = file("docs/testing.md");
    let rows = rows(&text);
    let faults: Vec<_> = rows.iter().filter(|row| row.len() == 3 && row[0].starts_with('F')).collect();
    assert_eq!(faults.len(), 45, "each fault has a row");
    for row in faults {
        let named: Vec<_> = in_backticks(row[2]).filter(|name| name.contains("::")).collect();
        for name in &named {
            assert!(exists(name), "there is no test {name}");
        }
        assert!(!named.is_empty() || row[2].starts_with("not covered") || row[0] == "F39", "{}", row[0]);
    }
}

#[test]
fn the_evidence_knows_every_attack_and_no_other() {
    let text = file("docs/security-evidence.md");
    let told: BTreeSet<String> = rows(&text)
        .iter()
        .filter(|row| row[0].starts_with('D') && row[0].len() > 2 && row[0].as_bytes()[1].is_ascii_digit())
        .map(|row| row[0].to_owned())
        .collect();
    assert_eq!(told, attacks(), "tests/attack/evidence regenerates docs/security-evidence.md");
    assert!(!text.contains("ESCAPE"), "an escape is a bug, not evidence");
}

#[test]
fn nothing_can_be_left_out_of_the_program_that_ships() {
    let has = |program: &[u8], text: &[u8]| program.windows(text.len()).any(|window| window == text);
    for (path, contains) in [
        (env!("CARGO_BIN_EXE_stockade"), &b"stockade/report/v1"[..]),
        (env!("CARGO_BIN_EXE_stockade-oci"), b"ociVersion"),
    ] {
        let path = Path::new(path);
        let program = std::fs::read(path).unwrap();
        assert!(has(&program, contains), "the search misses a known string");
        let beside = path.parent().unwrap().join("../release").join(path.file_name().unwrap());
        for program in [Some(program), std::fs::read(beside).ok()].into_iter().flatten() {
            let name = path.display();
            assert!(!has(&program, b"STOCKADE_ABLATE"), "{name} was built with the feature that omits layers");
        }
    }
    let outcome = Run::new(Caller::Unprivileged)
        .via(["env", "STOCKADE_ABLATE=seccomp,landlock,caps"])
        .sh("grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status")
        .go()
        .expect(0);
    assert_eq!(outcome.text(), "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n");
}

/// The output of two programs that inspect privileges. They may not be installed.
#[test]
fn capsh_and_captest_see_no_privilege() {
    common::for_each_caller(|caller| {
        if common::has_program("capsh") {
            let outcome = Run::new(caller).cmd(["capsh", "--print"]).go().expect(0);
            for line in [
                "Current: =",
                "Bounding set =",
                "Ambient set =",
                "Securebits: 0357/0xef/",
                "(no-new-privs=1)",
                "uid=1000(sandbox) euid=1000(sandbox)",
                "gid=1000(sandbox)",
                " secure-noroot: yes (locked)",
                " secure-no-suid-fixup: yes (locked)",
                " secure-keep-caps: no (locked)",
                "Guessed mode: NOPRIV",
            ] {
                assert!(outcome.text().contains(line), "{line:?}: {outcome}");
            }
            let sets: Vec<_> = outcome
                .lines()
                .into_iter()
                .filter(|line| line.contains("cap_") && !line.starts_with("Current IAB"))
                .collect();
            assert!(sets.is_empty(), "{sets:?}");
        }
        if common::has_program("captest") {
            let outcome = Run::new(caller).cmd(["captest"]).go();
            let text = outcome.text() + &outcome.stderr;
            assert!(text.contains("User  credentials uid:1000 euid:1000 suid:1000"), "{outcome}");
            assert!(text.contains("Current capabilities: none"), "{outcome}");
        }
    });
}
