//! The standard streams of a container belong to its user, who can open them anew by the links in `/dev`.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime};
use serde_json::json;

const ANEW: &str = "cat /dev/stdin; echo out >>/dev/stdout && echo err >>/dev/stderr";

/// Runs the command with this standard input in a pipe, and pipes for its output.
fn with_input(mut command: Command, text: &str) -> Called {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the runtime");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Called(child.wait_with_output().unwrap())
}

fn of_user(runtime: Runtime, script: &str) -> Option<Bundle> {
    let mut bundle = Bundle::new(runtime, script)?;
    bundle.config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    Some(bundle)
}

#[test]
fn pipes_can_be_opened_anew_by_the_containers_user() {
    for_each_runtime(|runtime| {
        let Some(bundle) = of_user(runtime, ANEW) else { return };
        let run = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
        let said = with_input(run, "in\n").expect(0);
        assert_eq!((said.out().as_str(), said.err().as_str()), ("in\nout\n", "err\n"));
        let Some(bundle) = of_user(runtime, "sleep 60") else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        for user in ["1000", "4321"] {
            let exec = bundle.command(["exec", "--user", user, &bundle.id, "sh", "-c", ANEW]);
            let said = with_input(exec, "in\n").expect(0);
            assert_eq!((said.out().as_str(), said.err().as_str()), ("in\nout\n", "err\n"), "user {user}");
        }
    });
}

#[test]
fn a_file_for_output_is_given_to_the_user_and_one_for_input_is_not() {
    for_each_runtime(|runtime| {
        let Some(bundle) = of_user(runtime, "echo out >>/dev/stdout && echo err >>/dev/stderr && exec sleep 60") else {
            return;
        };
        let input = bundle.dir.file("input", "in\n");
        let path = common::text(bundle.dir.path()).to_owned();
        let out = File::create(bundle.dir.join("out")).unwrap();
        let mut run = bundle.command(["run", "--detach", "--bundle", &path, &bundle.id]);
        run.stdin(File::open(&input).unwrap()).stdout(out.try_clone().unwrap()).stderr(out);
        assert!(run.status().unwrap().success(), "{}", bundle.printed());
        bundle.wait_for_output("err");
        assert_eq!(bundle.printed(), "out\nerr\n");
        let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
        assert_eq!(owner(&bundle.dir.join("out")), 1000);
        // The owner of a file can open it for writing, though the descriptor is for reading only.
        assert_eq!(owner(&input), if runtime == Runtime::Ours { 0 } else { 1000 });
        // A node of our own: crun's `run` gives the host's null device away, and other tests call it meanwhile.
        let null = bundle.dir.join("null");
        assert!(Command::new("mknod").arg(&null).args(["c", "1", "3"]).status().unwrap().success());
        let Ok(stdin) = File::open(&null) else {
            return common::skip_part("null device", "not usable in this directory");
        };
        let mut exec = bundle.command(["exec", &bundle.id, "true"]);
        Called(exec.stdin(stdin).output().unwrap()).expect(0);
        assert_eq!(owner(&null), 0);
    });
}

/// The owner of the pipes has no number inside, so the kernel lets no process inside give them away.
#[test]
fn pipes_of_the_host_are_given_to_a_user_in_a_user_namespace() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = of_user(runtime, "stat -L -c %u /proc/self/fd/1; echo out >>/dev/stdout") else {
            return;
        };
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        let map = json!([{ "containerID": 0, "hostID": 300_000, "size": 65_536 }]);
        bundle.config["linux"]["uidMappings"] = map.clone();
        bundle.config["linux"]["gidMappings"] = map;
        common::set_mode(bundle.dir.path(), 0o755);
        std::os::unix::fs::chown(bundle.rootfs(), Some(300_000), Some(300_000)).unwrap();
        assert_eq!(bundle.run().expect(0).out(), "1000\nout\n");
    });
}
