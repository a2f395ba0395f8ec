//! `--debug`: the steps of a start, in order, from the supervisor alone, and without secrets.

use super::common;
use super::common::for_each_caller;
use super::common::run::Run;

/// The steps of a start, in order, on every host.
const STEPS: [&str; 14] = [
    "plan",
    "ids",
    "mounts",
    "streams",
    "landlock",
    "seccomp",
    "cgroup",
    "clone",
    "id map",
    "namespaces",
    "released",
    "workload",
    "verified",
    "executed",
];

/// The steps that were printed: milliseconds, name and object.
fn steps(stderr: &str) -> Vec<(f64, &str, &str)> {
    fn step(line: &str) -> Option<(f64, &str, &str)> {
        let mut parts = line.splitn(3, "  ");
        let time = parts.next()?.strip_suffix(" ms")?.parse().ok()?;
        Some((time, parts.next()?, parts.next()?))
    }
    stderr.lines().filter_map(step).collect()
}

#[test]
fn the_steps_of_a_start_are_printed_in_order() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--debug"]).cmd(["true"]).go().expect(0);
        let found = steps(&outcome.stderr);
        let names: Vec<_> = found.iter().map(|(_, name, _)| *name).collect();
        assert_eq!(names, [&STEPS[..], &["ended"]].concat(), "{outcome}");
        assert!(found.is_sorted_by_key(|(time, ..)| *time), "{outcome}");
        let object = |name: &str| found.iter().find(|(_, found, _)| *found == name).unwrap().2;
        assert!(object("clone").contains("user,mnt,pid"), "{outcome}");
        assert_eq!((object("executed"), object("ended")), ("true", "exit code 0"), "{outcome}");
    });
}

#[test]
fn without_the_option_nothing_is_printed() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).cmd(["true"]).go().expect(0);
        assert_eq!(outcome.stderr, "", "{outcome}");
    });
}

#[test]
fn steps_contain_no_secret() {
    const SECRET: &str = "hunter2-of-the-test";
    for_each_caller(|caller| {
        let run = Run::new(caller).env("CALLERS", SECRET).env("ALSO", SECRET);
        let options =
            ["--debug", "--env", "CALLERS", "--keep-env", "--env", &format!("GIVEN={SECRET}")].map(str::to_owned);
        let script = r#"test "$CALLERS" = "$1" && test "$ALSO" = "$1" && test "$GIVEN" = "$1""#;
        let outcome = run.opts(options).cmd(["/bin/sh", "-c", script, "sh", SECRET]).go().expect(0);
        assert!(steps(&outcome.stderr).len() > STEPS.len(), "{outcome}");
        assert!(!outcome.stderr.contains(SECRET), "{outcome}");
    });
}

#[test]
fn a_failed_start_shows_its_last_step_before_the_error() {
    for_each_caller(|caller| {
        for (options, command, last) in
            [(&["--debug", "-v", "/nope:/x"][..], "true", "ids"), (&["--debug"][..], "/nope", "released")]
        {
            let outcome = Run::new(caller).opts(options).cmd([command]).go();
            let found = steps(&outcome.stderr);
            let names: Vec<_> = found.iter().map(|(_, name, _)| *name).filter(|name| *name != "ended").collect();
            let expected: Vec<_> = STEPS.into_iter().take(names.len()).collect();
            assert_eq!((names.as_slice(), names.last()), (expected.as_slice(), Some(&last)), "{outcome}");
            let error = outcome.stderr.lines().position(|line| line.starts_with("stockade: ")).unwrap();
            assert!(steps(&outcome.stderr.lines().skip(error).collect::<Vec<_>>().join("\n")).is_empty(), "{outcome}");
        }
    });
}

#[test]
fn the_child_prints_no_step() {
    if !common::has_program("strace") {
        return common::skip("there is no strace");
    }
    for_each_caller(|caller| {
        let strace = ["strace", "-f", "-o", "../trace", "-e", "trace=write,writev"];
        let outcome = Run::new(caller).via(strace).opts(["--debug"]).cmd(["true"]).go().expect(0);
        let trace = std::fs::read_to_string(outcome.home.join("trace")).unwrap();
        let writers: Vec<_> =
            trace.lines().filter(|line| line.contains(" ms  ")).map(|line| line.split_whitespace().next()).collect();
        assert_eq!(writers.len(), STEPS.len() + 1, "{trace}");
        assert!(writers.iter().all(|writer| *writer == writers[0]), "{trace}");
    });
}
