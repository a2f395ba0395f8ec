//! Streams that the workload opens anew, by the links in `/dev`: each only as its descriptor is open.

use crate::common::{Caller, Run, TempDir, for_each_caller, text};

const ANEW: &str = "cat /dev/stdin; echo out >>/dev/stdout; echo err >>/dev/stderr";
/// The opposite directions.
const BACK: &str = "(: </dev/stdout) 2>/dev/null && echo read; (: >>/dev/stdin) 2>/dev/null && echo wrote; true";

/// The run with its streams redirected by a shell: the runtime is `"$@"`.
fn redirected(caller: Caller, redirections: &str, script: &str) -> Run {
    Run::new(caller).opts(["-i"]).sh(script).via(["sh", "-c", redirections, "sh"])
}

#[test]
fn pipes_can_be_opened_anew() {
    for_each_caller(|caller| {
        let pipes = "echo in | { \"$@\" 2>&1 >&3 | sed s/^/2:/; } 3>&1 | cat";
        let mut lines = redirected(caller, pipes, ANEW).go().expect(0).lines();
        lines.sort();
        assert_eq!(lines, ["2:err", "in", "out"]);
        // The pipes of a caller without privilege belong to the same user on the host.
        if caller == Caller::Root {
            assert_eq!(redirected(caller, pipes, BACK).go().expect(0).text(), "");
        }
    });
}

#[test]
fn pipes_of_the_supervisor_can_be_opened_anew() {
    for_each_caller(|caller| {
        let script = "echo out >>/dev/stdout; echo err >>/dev/stderr";
        let outcome = Run::new(caller).opts(["--output-limit", "1M"]).sh(script).go().expect(0);
        assert_eq!(outcome.text(), "out\n");
        assert!(outcome.to_string().contains("err"), "{outcome}");
    });
}

#[test]
fn files_and_the_null_device_can_be_opened_anew() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let at = text(dir.path());
        let files = format!("umask 0; echo in >{at}/in; \"$@\" <{at}/in >{at}/out 2>{at}/err; cat {at}/out {at}/err");
        assert_eq!(redirected(caller, &files, ANEW).go().expect(0).text(), "in\nout\nerr\n");
        assert_eq!(
            redirected(caller, &files, BACK).go().expect(0).text(),
            "",
            "every user may read and write the files"
        );
        let null = "\"$@\" </dev/null 2>/dev/null >/dev/null && echo ended";
        assert_eq!(redirected(caller, null, &format!("set -e; {ANEW}")).go().expect(0).text(), "ended\n");
    });
}

/// The files that a shell of root makes refuse every other user, and so the workload's. It writes to them by way of a pipe, which
/// leads to no other file of that owner, in no other mode.
#[test]
fn outputs_that_refuse_the_workloads_user_can_be_opened_anew() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let at = text(dir.path());
        for (mask, streams) in
            [("022", "2>{at}/err >{at}/out"), ("077", "2>{at}/err >{at}/out"), ("077", ">{at}/out 2>&1")]
        {
            let streams = streams.replace("{at}", at);
            let files =
                format!("umask {mask}; \"$@\" {streams}; code=$?; cat {at}/out {at}/err; rm -f {at}/*; exit $code");
            let script = "echo out >>/dev/stdout; echo err >>/dev/stderr";
            let outcome = redirected(caller, &files, script).go().expect(0);
            let mut lines = outcome.lines();
            lines.sort();
            assert_eq!(lines, ["err", "out"], "{mask} {streams}: {outcome}");
            if caller == Caller::Root {
                assert_eq!(redirected(caller, &files, BACK).go().expect(0).text(), "", "{mask} {streams}");
            }
        }
    });
}

#[test]
fn an_appended_file_can_be_opened_anew_and_keeps_its_content() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let log = text(&dir.file("log", "old\n")).to_owned();
        let appended = format!("\"$@\" >>{log} 2>&1; cat {log}");
        let script = "echo out >/dev/stdout; echo err >/dev/stderr";
        assert_eq!(redirected(caller, &appended, script).go().expect(0).text(), "old\nout\nerr\n");
    });
}
