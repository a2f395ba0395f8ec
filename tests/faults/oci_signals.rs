//! Signals in the middle of commands about containers: the commands behave as without them.

use crate::common::bundle::ours;
use crate::common::confined::{Before, by, confined, plainly, prepare, said_in};
use crate::common::host::is_uml;
use crate::common::storm::{self, STORMS, times};
use crate::common::{inject, leaks, text};

/// A command: the state before it, its words, and whether it did what it reports.
type Given<'a> = (Before, &'a [&'a str], &'a dyn Fn() -> bool);

#[test]
fn a_storm_of_signals_changes_no_command_about_a_container() {
    ours(|_| {
        leaks::adopt_orphans();
        let Some(bundle) = confined() else { return };
        let plain: Vec<String> = plainly(&bundle).into_iter().filter(|line| !line.starts_with("ShdPnd:")).collect();
        let (path, id) = (text(bundle.dir.path()), bundle.id.as_str());
        let state = |status: &str| bundle.state()["status"] == status;
        let said = |file: &'static str| {
            inject::assert_whole(&storm::calm(&said_in(&bundle, file)), &plain, "a storm");
            said_in(&bundle, file).ends_with("whole\n")
        };
        let said_by = || std::fs::read_to_string(bundle.dir.join("said")).unwrap();
        let contains = |word: &str| said_by().contains(word);
        let limited = || {
            let files = bundle.cgroups().into_iter().map(|group| group.join("pids.max"));
            files.filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| text.trim() == "60")
        };
        let gone = || bundle.left() == (vec![], vec![], false);
        let ended = || {
            bundle.wait_for("stopped");
            true
        };
        let commands: [Given<'_>; 13] = [
            (Before::Nothing, &["create", "--bundle", path, id], &|| state("created")),
            (Before::Nothing, &["run", "--detach", "--bundle", path, id], &|| said("said") && state("running")),
            (Before::Created, &["start", id], &|| said("out") && state("running")),
            (Before::Running, &["exec", id, "sh", "-c", "echo inside; exit 0"], &|| contains("inside\n")),
            (Before::Running, &["pause", id], &|| state("paused")),
            (Before::Paused, &["resume", id], &|| state("running")),
            (Before::Running, &["update", "--pids-limit", "60", id], &limited),
            (Before::Running, &["state", id], &|| contains("\"running\"")),
            (Before::Running, &["ps", "--format", "json", id], &|| contains(&bundle.state()["pid"].to_string())),
            (Before::Running, &["events", "--stats", id], &|| contains("\"stats\"")),
            (Before::Running, &["kill", id, "KILL"], &ended),
            (Before::Stopped, &["delete", id], &gone),
            (Before::Running, &["delete", "--force", id], &gone),
        ];
        // UML has one slow processor: every command once, and every storm.
        let (every, rounds) = if is_uml() { (STORMS.len(), 1) } else { (1, times()) };
        for round in 0..rounds * STORMS.len() {
            for (before, words, holds) in commands.iter().skip(round % every).step_by(every) {
                let signals = STORMS[round % STORMS.len()];
                let name = format!("{words:?}, {signals:?}");
                eprintln!("{name}");
                prepare(&bundle, *before);
                if *before == Before::Running {
                    said_in(&bundle, "out"); // the container has reached its long-running part
                }
                by(&bundle, &storm::words(signals), words).expect(0);
                assert!(
                    holds(),
                    "{name}: it reports success without having done it: {}: {:?}",
                    bundle.state(),
                    said_by()
                );
            }
        }
        prepare(&bundle, Before::Nothing);
        bundle.expect_nothing_left("storms");
    });
}
