//! The scripts of `docs/cookbook.md`, as they stand there, each in an empty directory.

use std::process::Stdio;

use crate::common::{PATH, TempDir, for_each_caller, has_program, set_mode};

const COOKBOOK: &str = include_str!("../../docs/cookbook.md");

#[test]
fn every_script_of_the_cookbook_works() {
    let scripts: Vec<&str> =
        COOKBOOK.split("```sh\n").skip(1).map(|rest| rest.split_once("```").expect("a block ends").0).collect();
    assert!(scripts.len() >= 6, "{} scripts", scripts.len());
    for_each_caller(|caller| {
        let programs = TempDir::new(caller);
        let stockade = programs.join("stockade");
        std::fs::copy(env!("CARGO_BIN_EXE_stockade"), &stockade).unwrap();
        set_mode(&stockade, 0o755);
        for script in &scripts {
            if script.contains("make\n") && !has_program("make") {
                continue;
            }
            let place = TempDir::new(caller);
            let mut bash = caller.command("/bin/bash");
            bash.args(["-euc", script]).current_dir(place.path()).env_clear().stdin(Stdio::null());
            bash.env("PATH", format!("{}:{PATH}", programs.path().display())).env("HOME", place.path());
            let ended = bash.output().unwrap();
            let error = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{}\n{script}{error}", ended.status);
        }
    });
}
