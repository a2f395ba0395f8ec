//! The scripts of `docs/cookbook.md` and the tour of `README.md`, as they stand there, each in an empty directory.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Caller, PATH, TempDir, for_each_caller, has_program, set_mode};

const COOKBOOK: &str = include_str!("../../docs/cookbook.md");
const README: &str = include_str!("../../README.md");

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let open = format!("```{language}\n");
    page.split(&open).skip(1).map(|rest| rest.split_once("```").expect("a block ends").0).collect()
}

/// A directory with the tested program, which the caller can execute.
fn programs(caller: Caller) -> TempDir {
    let programs = TempDir::new(caller);
    let stockade = programs.join("stockade");
    std::fs::copy(env!("CARGO_BIN_EXE_stockade"), &stockade).unwrap();
    set_mode(&stockade, 0o755);
    programs
}

/// bash with a script, in this directory and with nothing of the tests' environment.
fn bash(caller: Caller, programs: &TempDir, place: &Path, options: &str, script: &str) -> Command {
    let mut bash = caller.command("/bin/bash");
    bash.args([options, script]).current_dir(place).env_clear().stdin(Stdio::null());
    bash.env("PATH", format!("{}:{PATH}", programs.path().display())).env("HOME", place);
    bash
}

#[test]
fn every_script_of_the_cookbook_works() {
    let scripts = blocks(COOKBOOK, "sh");
    assert!(scripts.len() >= 7, "{} scripts", scripts.len());
    for_each_caller(|caller| {
        let programs = programs(caller);
        for script in &scripts {
            if script.contains("-- make") && !has_program("make") {
                continue;
            }
            let place = TempDir::new(caller);
            let ended = bash(caller, &programs, place.path(), "-euc", script).output().unwrap();
            let error = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{}\n{script}{error}", ended.status);
        }
    });
}

/// What a command prints here may have more lines, such as a warning that this host cannot limit memory.
#[test]
fn the_tour_of_the_readme_prints_what_it_says() {
    let tour = blocks(README, "console");
    assert!(tour.len() >= 5, "{} blocks", tour.len());
    for_each_caller(|caller| {
        let programs = programs(caller);
        let place = TempDir::new(caller);
        for step in tour.iter().flat_map(|block| block.split("$ ").skip(1)) {
            let (command, shown) = step.split_once('\n').unwrap();
            let ended = bash(caller, &programs, place.path(), "-c", &format!("exec 2>&1; {command}")).output().unwrap();
            let printed = String::from_utf8_lossy(&ended.stdout);
            let mut lines = printed.lines();
            for line in shown.lines().filter(|line| !line.is_empty()) {
                assert!(lines.any(|one| one == line), "{command}: {line:?} is not in\n{printed}");
            }
        }
    });
}
