//! Mounts have the requested flags, limits and owners, and nothing is created or changed on the host for them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use crate::common;
use crate::common::host::{busybox_rootfs, fingerprint, idmappable_dir, is_uml};
use crate::common::{
    Caller, Run, TempDir, attack, for_each_caller, has_program, is_root, outside, skip, skip_part, text,
};

#[test]
fn a_volume_is_writable_unless_it_says_ro() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        dir.file("there", "before");
        let path = text(dir.path());
        let run = |option: String| Run::new(caller).opts(["-v".to_owned(), option]);
        let script = "cat /data/there; echo after > /data/there && echo new > /data/new";
        run(format!("{path}:/data")).sh(script).go().expect(0);
        assert_eq!(fs::read_to_string(dir.join("there")).unwrap(), "after\n");
        assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "new\n");
        run(format!("{path}:/data:rw")).sh(script).go().expect(0);
        let read_only = run(format!("{path}:/data:ro")).sh("cat /data/there; echo x > /data/there").go();
        assert!(read_only.stderr.contains("Read-only file system"), "{read_only}");
        assert_eq!(read_only.text(), "after\n");
        run(path.to_owned()).sh(&format!("cat {path}/there")).go().expect(0);
        let file = dir.join("there");
        run(format!("{}:/data/one", text(&file))).sh("cat /data/one; echo changed > /data/one").go().expect(0);
        assert_eq!(fs::read_to_string(file).unwrap(), "changed\n");
    });
}

#[test]
fn ro_and_rw_keep_the_path() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (ro, rw) = (dir.dir("ro"), dir.dir("rw"));
        let outcome = Run::new(caller)
            .opts(["--ro", text(&ro), "--rw", text(&rw)])
            .sh(&format!("touch {0}/x && echo written; touch {1}/x || echo refused", text(&rw), text(&ro)))
            .go()
            .expect(0);
        assert_eq!(outcome.text(), "written\nrefused\n");
        assert!(rw.join("x").exists() && !ro.join("x").exists());
    });
}

/// `/var/tmp` is a symlink in a sandbox, below which nothing could be mounted.
#[test]
fn a_directory_below_var_tmp_can_be_bound() {
    for_each_caller(|caller| {
        let Ok(dir) = nix::unistd::mkdtemp("/var/tmp/stockade-XXXXXX") else { return skip_part("", "no /var/tmp") };
        fs::write(dir.join("file"), "content\n").unwrap();
        common::set_mode(&dir, 0o755);
        let script = format!("cat {}/file; echo x >/var/tmp/made && ls /var/tmp | wc -l; ls /tmp", text(&dir));
        let outcome = Run::new(caller).opts(["--ro", text(&dir)]).sh(&script).go();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(outcome.expect(0).text(), "content\n2\n");
        let outcome = Run::new(caller).sh("readlink /var/tmp").go().expect(0);
        assert_eq!(outcome.text(), "../tmp\n", "it costs no mount otherwise");
        let outcome = Run::new(caller).opts(["-v", "/usr:/etc/mtab/x:ro"]).cmd(["true"]).go().expect(125);
        assert!(outcome.stderr.contains("symlink") && outcome.stderr.contains("hint: "), "{outcome}");
    });
}

#[test]
fn the_workspace_is_writable_and_where_one_is() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let outcome =
            Run::new(caller).opts(["--workspace", text(dir.path())]).sh("pwd; echo x > made; id -u").go().expect(0);
        assert_eq!(outcome.text(), "/workspace\n1000\n");
        let made = fs::metadata(dir.join("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), caller.ids(), "new files belong to the workspace's owner");
    });
}

#[test]
fn a_workspace_that_is_not_a_directory_is_reported() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("job.py", "");
        let outcome = Run::new(caller).opts(["--workspace", text(&file)]).cmd(["true"]).go().expect(125);
        assert!(outcome.stderr.contains(text(&file)), "{outcome}");
    });
}

#[test]
fn a_workspace_of_root_is_idmapped() {
    if !is_root() {
        return skip("not root");
    }
    let dir = idmappable_dir(Caller::Root);
    // Another user's project, in which root runs a program.
    let project = dir.dir("project");
    dir.file("project/theirs", "x");
    let (uid, gid) = (4321, 8765);
    for path in [&project, &project.join("theirs")] {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
    }
    let roots = dir.file("project/roots", "x");
    std::os::unix::fs::chown(&roots, Some(0), Some(0)).unwrap();
    let outcome = Run::new(Caller::Root)
        .opts(["--workspace", text(&project)])
        .sh("stat -c '%u:%g' . theirs; stat -c %u roots; echo y >> theirs; mkdir sub; touch sub/new; \
             echo y >> roots || echo refused; chmod 777 roots || echo refused; chown 0:0 theirs || echo refused")
        .go();
    assert_eq!(outcome.lines(), ["1000:1000", "1000:1000", "65534", "refused", "refused", "refused"], "{outcome}");
    for name in ["theirs", "sub", "sub/new"] {
        let meta = fs::metadata(project.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (uid, gid), "{name}");
    }
    assert_eq!(fs::read_to_string(&roots).unwrap(), "x");
    assert_eq!(fs::metadata(&roots).unwrap().mode() & 0o7777, 0o644);
}

#[test]
fn a_file_system_without_idmapping_is_a_named_error() {
    if !is_root() {
        return skip("not root");
    }
    // A guest's working tree is on a hostfs, which has no idmapped mounts; nor has procfs anywhere.
    let place = if is_uml() { env!("CARGO_MANIFEST_DIR") } else { "/proc/sys" };
    let outcome = Run::new(Caller::Root).opts(["-v", &format!("{place}:/data:rw")]).cmd(["true"]).go().expect(125);
    assert!(outcome.stderr.contains(place), "{outcome}");
}

#[test]
fn a_tmpfs_is_bounded_in_size_and_files() {
    for_each_caller(|caller| {
        let inside = Run::new(caller)
            .opts(["--tmpfs", "/data:size=1M,nr_inodes=50,mode=1755"])
            .sh("stat -c %a /data; cd /data; head -c 2M /dev/zero > big; stat -c %s big; rm big; \
                 i=0; while [ $i -lt 100 ]; do (: > f$i) || break; i=$((i+1)); done 2>/dev/null; ls | wc -l")
            .go();
        let lines = inside.lines();
        assert!(inside.stderr.contains("No space left"), "{inside}");
        assert_eq!(lines[0], "1755");
        assert_eq!(lines[1], (1 << 20).to_string());
        let files: u32 = lines[2].trim().parse().unwrap();
        assert!((40..50).contains(&files), "{files}");
        let exec = |options: &str| {
            let run = Run::new(caller).opts(["--tmpfs", &format!("/data:{options}")]);
            run.sh("cp /bin/true /data/t; /data/t").go().code()
        };
        assert_eq!(exec("size=4M"), 126, "noexec unless asked");
        assert_eq!(exec("size=4M,exec"), 0);
    });
}

#[test]
fn scratch_space_is_bounded_in_size_and_files_together() {
    for_each_caller(|caller| {
        let inside = Run::new(caller)
            .opts(["--scratch-size", "2M", "--scratch-inodes", "64"])
            .sh("head -c 1M /dev/zero > /tmp/a; head -c 5M /dev/zero > ~/b; \
                 echo $(( $(stat -c %s /tmp/a) + $(stat -c %s ~/b) )); rm /tmp/a ~/b; \
                 i=0; while [ $i -lt 200 ]; do (: > /dev/shm/f$i) || break; i=$((i+1)); done 2>/dev/null; ls /dev/shm | wc -l")
            .go();
        assert!(inside.stderr.contains("No space left"), "{inside}");
        let lines = inside.lines();
        assert!(lines[0].parse::<u32>().unwrap() <= 2 << 20, "{inside}");
        assert!((30..64).contains(&lines[1].trim().parse::<u32>().unwrap()), "{inside}");
        let disk = &inside.report()["usage"]["disk"];
        assert_eq!(disk["scratch_limit_bytes"], 2 << 20);
        assert!(disk["inodes_used"].as_u64().is_some_and(|used| (30..=64).contains(&used)), "{disk}");
    });
}

#[test]
fn noexec_is_enforced() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        fs::copy("/bin/true", dir.join("t")).unwrap();
        common::set_mode(&dir.join("t"), 0o755);
        let run = |options: &str| Run::new(caller).opts(["-v", &format!("{}:/data:{options}", text(dir.path()))]);
        run("ro").cmd(["/data/t"]).go().expect(0);
        run("ro,noexec").cmd(["/data/t"]).go().expect(126);
        run("ro,noexec").sh("/data/t").go().expect(126);
        let shm = Run::new(caller).sh("cp /bin/true /dev/shm/t; /dev/shm/t").go();
        shm.expect(126);
    });
}

#[test]
fn an_optional_source_may_be_missing_and_another_may_not() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let missing = dir.join("missing");
        let volume = |options: &str| format!("{}:/data:{options}", text(&missing));
        Run::new(caller).opts(["-v", &volume("ro,optional")]).cmd(["/usr/bin/test", "!", "-e", "/data"]).go().expect(0);
        let outcome = Run::new(caller).opts(["-v", &volume("ro")]).cmd(["true"]).go().expect(125);
        assert!(outcome.stderr.contains(text(&missing)), "{outcome}");
        assert_eq!(outcome.report()["error"]["step"], "source");
        assert!(!missing.exists(), "it was created on the host");
    });
}

#[test]
fn the_long_form_of_a_mount_means_the_same() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        dir.file("a:b,c", "content");
        let path = text(dir.path());
        Run::new(caller)
            .opts(["--mount", &format!("type=bind,source={path},destination=/data,readonly")])
            .sh("cat '/data/a:b,c' && ! touch /data/x")
            .go()
            .expect(0);
        Run::new(caller)
            .opts(["--mount", &format!("type=bind,source={path},destination=/data")])
            .sh("touch /data/x")
            .go()
            .expect(0);
        let tmpfs = Run::new(caller)
            .opts(["--mount", "type=tmpfs,destination=/data,size=1M"])
            .sh("stat -f -c '%T %b %S' /data")
            .go();
        let text = tmpfs.expect(0).text();
        let numbers: Vec<u64> = text.split_ascii_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
        assert_eq!((text.starts_with("tmpfs"), numbers[0] * numbers[1]), (true, 1 << 20));
    });
}

#[test]
fn mounts_below_mounts_are_in_order() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (outer, inner) = (dir.dir("outer"), dir.dir("inner"));
        dir.dir("outer/sub");
        dir.file("outer/sub/covered", "");
        dir.file("inner/shown", "");
        let inner_first = [format!("{}:/data/sub:ro", text(&inner)), format!("{}:/data:ro", text(&outer))];
        let options = inner_first.iter().flat_map(|volume| ["-v", volume]);
        let outcome = Run::new(caller).opts(options).cmd(["/bin/ls", "/data/sub"]).go().expect(0);
        assert_eq!(outcome.text(), "shown\n");
    });
}

#[test]
fn a_missing_mount_point_inside_a_bind_is_an_error_that_makes_nothing() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (outer, inner) = (dir.dir("outer"), dir.dir("inner"));
        for mode in ["ro", "rw"] {
            let before = fingerprint(dir.path());
            let options = [format!("{}:/data:{mode}", text(&outer)), format!("{}:/data/not/there:ro", text(&inner))];
            let outcome =
                Run::new(caller).opts(options.iter().flat_map(|volume| ["-v", volume])).cmd(["true"]).go().expect(125);
            assert!(outcome.stderr.contains("/data/not/there"), "{outcome}");
            assert_eq!(fingerprint(dir.path()), before);
        }
    });
}

#[test]
fn symlinks_of_a_workspace_lead_nowhere_outside() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (host, workspace) = (dir.dir("host"), dir.dir("workspace"));
        dir.file("host/canary", "untouched");
        for (name, target) in
            [("absolute", text(&host)), ("relative", "../host"), ("up", "../../../../../../.."), ("etc", "/etc")]
        {
            symlink(target, workspace.join(name)).unwrap();
        }
        let before = fingerprint(&host);
        let script = format!(
            "cat absolute/canary relative/canary up{0}/canary; echo x > absolute/canary; echo x > relative/canary; \
             echo x > up{0}/new; echo x > etc/hosts; echo x > etc/new; rm -rf absolute/* relative/*; mv absolute/canary . ; true",
            text(&host)
        );
        let outcome = Run::new(caller).opts(["--workspace", text(&workspace)]).sh(&script).go();
        assert_eq!(outcome.text(), "", "{outcome}");
        assert_eq!(fingerprint(&host), before);
    });
}

#[test]
fn a_destination_below_a_symlink_stays_inside() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (canary, workspace, source) = (dir.dir("canary"), dir.dir("workspace"), dir.dir("source"));
        dir.file("source/file", "x");
        // The mount points would be behind links that the workload controls.
        symlink(text(&canary), workspace.join("link")).unwrap();
        symlink("/proc/1/root/tmp", workspace.join("magic")).unwrap();
        let before = fingerprint(&canary);
        for link in ["link", "link/below", "magic", "magic/below"] {
            let volume = format!("{}:/workspace/{link}:ro", text(&source));
            let outcome = Run::new(caller).opts(["--workspace", text(&workspace), "-v", &volume]).cmd(["true"]).go();
            assert_ne!(outcome.code(), 0, "{link}: {outcome}");
            assert_eq!(fingerprint(&canary), before, "{link}");
        }
    });
}

#[test]
fn a_bind_source_may_be_a_symlink_of_the_hosts() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        dir.file("real", "content");
        symlink("real", dir.join("link")).unwrap();
        let outcome = Run::new(caller)
            .opts(["-v", &format!("{}:/data:ro", text(&dir.join("link")))])
            .cmd(["/bin/cat", "/data"])
            .go();
        assert_eq!(outcome.expect(0).text(), "content");
    });
}

#[test]
fn a_busybox_root_runs_read_only() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let Some(root) = busybox_rootfs(&dir) else { return };
        let before = fingerprint(&root);
        // The caller may write to its own files; only the mounts forbid it.
        let alone = Run::new(caller).opts(["--rootfs", text(&root), "--landlock", "off"]);
        let alone = alone.cmd(["sh", "-c", "for d in / /bin /etc; do touch $d/x && echo made; done; echo end"]).go();
        assert_eq!(alone.text(), "end\n", "{alone}");
        let outcome = Run::new(caller)
            .opts(["--rootfs", text(&root)])
            .cmd(["sh", "-c", "id -u; ls /; touch /x || touch /bin/x || echo refused; echo y > /tmp/y && cat /tmp/y; ls /dev | grep -c null; cat /etc/passwd | grep -c user; readlink /proc/self"])
            .go();
        let lines = outcome.lines();
        assert_eq!(outcome.code(), 0, "{outcome}");
        assert_eq!(lines[0], "1000");
        for name in ["bin", "dev", "etc", "proc", "tmp"] {
            assert!(lines.contains(&name.to_owned()), "{name}: {outcome}");
        }
        assert!(!lines.contains(&"usr".to_owned()), "the host's /usr is visible: {outcome}");
        let tail = &lines[lines.len() - 5..];
        assert_eq!(&tail[..4], ["refused", "y", "1", "1"], "{outcome}");
        assert_eq!(fingerprint(&root), before, "the rootfs lacked /proc, /dev and /tmp, and still does");
    });
}

#[test]
fn a_rootfs_that_has_its_mount_points_is_used_as_it_is() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let Some(root) = busybox_rootfs(&dir) else { return };
        for name in ["proc", "dev", "tmp", "home", "home/sandbox"] {
            dir.dir(&format!("rootfs/{name}"));
        }
        dir.file("rootfs/tmp/below", "");
        let before = fingerprint(&root);
        let outcome =
            Run::new(caller).opts(["--rootfs", text(&root)]).cmd(["sh", "-c", "ls -A /tmp; touch /tmp/x; pwd"]).go();
        assert_eq!(outcome.expect(0).text(), "/\n", "the content of its own /tmp is visible");
        // The mount alone, without Landlock: otherwise the caller could write to its own files.
        let alone = Run::new(caller).opts(["--rootfs", text(&root), "--landlock", "off"]);
        let alone = alone.cmd(["sh", "-c", "for d in / /bin /etc; do touch $d/x && echo made; done; echo end"]).go();
        assert_eq!(alone.text(), "end\n", "{alone}");
        assert_eq!(fingerprint(&root), before);
    });
}

#[test]
fn a_rootfs_whose_directories_are_symlinks_touches_nothing_outside() {
    for_each_caller(|caller| {
        for (name, target) in [
            ("absolute", "CANARY"),
            ("absolute, and there inside too", "CANARY"),
            ("relative", "../canary"),
            ("dangling", "/no/such/place"),
            ("loop", "dev"),
            ("up", "../../../../.."),
        ] {
            for place in ["proc", "dev", "tmp", "etc", "home", "sys", "dev/shm", "home/sandbox"] {
                let dir = idmappable_dir(caller);
                let Some(root) = busybox_rootfs(&dir) else { return };
                let canary = dir.dir("canary");
                dir.file("canary/file", "untouched");
                let link = root.join(place);
                if place == "etc" {
                    fs::remove_dir_all(&link).unwrap();
                }
                if let Some(parent) = Path::new(place).parent().filter(|parent| *parent != Path::new("")) {
                    dir.dir(&format!("rootfs/{}", text(parent)));
                }
                let target = if target == "CANARY" { text(&canary) } else { target };
                symlink(target, &link).unwrap();
                if name.ends_with("inside too") {
                    fs::create_dir_all(root.join(canary.strip_prefix("/").unwrap())).unwrap();
                }
                let before = (fingerprint(&canary), fingerprint(&root));
                let outcome = Run::new(caller)
                    .opts(["--rootfs", text(&root), "--sysfs"])
                    .cmd(["sh", "-c", "touch /tmp/x; touch /dev/x /etc/x /home/sandbox/x; cat /canary/file"])
                    .go();
                let what = format!("{place} is a {name} link: {outcome}");
                assert!(!outcome.text().contains("untouched"), "{what}");
                assert_eq!((fingerprint(&canary), fingerprint(&root)), before, "{what}");
            }
        }
    });
}

#[test]
fn a_rootfs_must_be_a_directory() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("file", "");
        for path in [text(&file), text(&dir.join("missing"))] {
            let outcome = Run::new(caller).opts(["--rootfs", path]).cmd(["true"]).go().expect(125);
            assert!(outcome.stderr.contains(path), "{outcome}");
        }
    });
}

#[test]
fn flags_that_are_locked_in_a_user_namespace_are_carried_over() {
    // A tmpfs with nosuid, nodev and noexec that the caller cannot clear, as /dev/shm has in many containers.
    let prepare =
        "mount -t tmpfs -o nosuid,nodev,noexec,mode=777 x $TMPDIR && cp /bin/true $TMPDIR/t && chmod 755 $TMPDIR/t";
    for_each_caller(|caller| {
        let wrapper = format!(
            "{prepare} && exec unshare -U --map-user=1000 --map-group=1000 \"$@\" -v $TMPDIR:/data:ro -- /bin/sh -c 'ls /data; /data/t; echo $?'"
        );
        let dir = idmappable_dir(caller);
        // TMPDIR is the run's own; the mounts exist as long as the outer namespaces.
        let outcome = Run::new(caller).cwd(dir.path()).via(["unshare", "-Urm", "/bin/sh", "-c", &wrapper, "sh"]).go();
        assert_eq!(outcome.text(), "t\n126\n", "{outcome}");
    });
}

#[test]
fn a_writable_mount_of_a_read_only_one_stays_read_only() {
    for_each_caller(|caller| {
        let wrapper = "mount -t tmpfs -o ro x $TMPDIR && exec unshare -U --map-user=1000 --map-group=1000 \"$@\" -v $TMPDIR:/data:rw -- /bin/sh -c 'touch /data/x || echo refused'";
        let outcome = Run::new(caller).via(["unshare", "-Urm", "/bin/sh", "-c", wrapper, "sh"]).go();
        assert!(outcome.code() == 125 || outcome.text() == "refused\n", "{outcome}");
    });
}

#[test]
fn mounts_below_a_read_only_bind_are_read_only_too() {
    for_each_caller(|caller| {
        let wrapper = "mount -t tmpfs x $TMPDIR && mkdir $TMPDIR/sub && mount -t tmpfs -o mode=777 y $TMPDIR/sub && \
                       exec unshare -U --map-user=1000 --map-group=1000 \"$@\" -v $TMPDIR:/data:ro -- /bin/sh -c 'touch /data/sub/x || echo refused'";
        // Landlock, the second layer, alone, and the mounts alone.
        for options in [&[][..], &["--landlock", "off"]] {
            let run = Run::new(caller).opts(options.iter().copied());
            let outcome = run.via(["unshare", "-Urm", "/bin/sh", "-c", wrapper, "sh"]).go();
            assert_eq!(outcome.text(), "refused\n", "{outcome}");
        }
    });
}

/// Runs a script as root of a private mount namespace, in which `$RUN` is the run as the caller.
fn in_own_mounts(caller: Caller, script: &str) -> Run {
    let root = caller == Caller::Root && is_root();
    let (outer, inner): (&[&str], _) = match root {
        true => (&["unshare", "-m", "--propagation", "private"], "\"$@\""),
        false => (&["unshare", "-Urm"], "unshare -U --map-user=1000 --map-group=1000 \"$@\""),
    };
    let script = script.replace("$RUN", inner);
    Run::new(caller).via(outer.iter().copied()).via(["/bin/bash", "-c", &script, "bash"])
}

#[test]
fn later_mounts_outside_do_not_appear_inside() {
    for_each_caller(|caller| {
        let script = "mount -t tmpfs -o mode=777 x $TMPDIR && mount --make-shared $TMPDIR && mkdir $TMPDIR/sub && \
            { sleep 1; mount -t tmpfs y $TMPDIR/sub; touch $TMPDIR/sub/leaked $TMPDIR/done; } & \
            while [ ! -e $TMPDIR/sub ]; do sleep 0.02; done; exec $RUN -v $TMPDIR:/data:ro -- \
            /bin/sh -c 'echo ready; while [ ! -e /data/done ]; do sleep 0.02; done; ls /data/sub; echo end'";
        let outcome = in_own_mounts(caller, script).with_orphans().go();
        assert_eq!(outcome.text(), "ready\nend\n", "{outcome}");
    });
}

#[test]
fn a_device_that_is_not_what_its_name_says_is_refused() {
    for_each_caller(|caller| {
        let script = "mount --bind /dev/zero /dev/full && exec $RUN -- /bin/true";
        let outcome = in_own_mounts(caller, script).go().expect(125);
        assert!(outcome.stderr.contains("/dev/full: is not the device of that name"), "{outcome}");
    });
}

#[test]
fn subordinate_ids_come_from_the_callers_ranges() {
    if !is_root() {
        return skip("not root: only root can assign ranges");
    }
    if !has_program("newuidmap") {
        return;
    }
    // In a private mount namespace the two files have the content that the test needs.
    let (_, _, name) = common::UNPRIVILEGED;
    let dir = TempDir::new(Caller::Root);
    let ranges = dir.file("ranges", format!("{name}:700000:65536\nroot:800000:65536\n"));
    let prepare = format!(
        "mount --bind {0} /etc/subuid && mount --bind {0} /etc/subgid && exec setpriv --reuid=1 --regid=1 --clear-groups \"$@\"",
        text(&ranges)
    );
    let workspace = TempDir::new(Caller::Unprivileged);
    let binary = workspace.join("stockade");
    fs::copy(env!("CARGO_BIN_EXE_stockade"), &binary).unwrap();
    common::set_mode(&binary, 0o755);
    let outcome = outside(
        Caller::Root,
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            &prepare,
            "sh",
            text(&binary),
            "run",
            "--subuid",
            "--allow-degraded", // says nothing of memory that nothing limits
            "memory",
            "-u",
            "root",
            "--cap-add",
            "CHOWN",
            "--cap-add",
            "SETUID",
            "--cap-add",
            "SETGID",
            "--workspace",
            text(workspace.path()),
            "--",
            "sh",
            "-c",
            "id -u; cat /proc/self/uid_map; touch mine theirs; chown 5:5 theirs; /usr/bin/python3 -c 'import os; os.setgroups([]); os.setresgid(7, 7, 7); os.setresuid(7, 7, 7); print(os.getuid())'",
        ],
    );
    assert_eq!(outcome.0, 0, "{}", outcome.1);
    assert!(outcome.1.starts_with("0\n") && outcome.1.ends_with("7\n"), "{}", outcome.1);
    let owner = |name: &str| fs::metadata(workspace.join(name)).unwrap().uid();
    assert_eq!(owner("mine"), 1);
    assert_eq!(owner("theirs"), 700_004, "the other ids come from the caller's range");
}

/// An empty or relative entry of PATH is the caller's working directory, and an entry may belong to another user.
#[test]
fn a_helper_is_only_looked_for_where_root_put_it() {
    if !is_root() {
        return skip("not root: only root can assign ranges");
    }
    if !has_program("newuidmap") {
        return;
    }
    let dir = TempDir::new(Caller::Root);
    let ranges = dir.file("ranges", format!("{}:700000:65536\n", common::UNPRIVILEGED.2));
    let place = TempDir::new(Caller::Unprivileged);
    let (here, theirs) = (place.dir("here"), place.dir("theirs"));
    for planted in [here.join("newuidmap"), here.join("bin/newuidmap"), theirs.join("newuidmap")] {
        fs::create_dir_all(planted.parent().unwrap()).unwrap();
        fs::write(
            &planted,
            format!("#!/bin/sh\ntouch {}/ran\nexec /usr/bin/newuidmap \"$@\"\n", place.path().display()),
        )
        .unwrap();
        common::set_mode(&planted, 0o755);
    }
    let binary = place.join("stockade");
    fs::copy(env!("CARGO_BIN_EXE_stockade"), &binary).unwrap();
    common::set_mode(&binary, 0o755);
    for path in [":/usr/bin", ".:/usr/bin", "bin:/usr/bin", "/usr/bin/../../THEIRS:/usr/bin", "THEIRS:/usr/bin"] {
        let path = path.replace("/THEIRS", text(&theirs)).replace("THEIRS", text(&theirs));
        let script = format!(
            "mount --bind {0} /etc/subuid && mount --bind {0} /etc/subgid && cd {1} && \
             exec setpriv --reuid=1 --regid=1 --clear-groups env \"PATH={path}\" {2} run --subuid -- /bin/true",
            text(&ranges),
            text(&here),
            text(&binary)
        );
        let (code, said) = outside(Caller::Root, ["unshare", "-m", "sh", "-c", &script]);
        assert_eq!(code, 0, "{path}: {said}");
        assert!(!place.join("ran").exists(), "{path}: the planted program ran");
    }
}

#[test]
fn subordinate_ids_that_the_caller_does_not_have_are_refused() {
    let ranges = fs::read_to_string("/etc/subuid").unwrap_or_default();
    if ranges.contains(common::UNPRIVILEGED.2) || (!is_root() && !ranges.is_empty()) {
        return skip("the caller has subordinate ids here");
    }
    let outcome = Run::new(Caller::Unprivileged).opts(["--subuid"]).cmd(["true"]).go().expect(125);
    assert!(outcome.stderr.contains("/etc/subuid") || outcome.stderr.contains("newuidmap"), "{outcome}");
}

#[test]
fn nothing_can_be_mounted_over_what_is_the_sandboxes_own() {
    for_each_caller(|caller| {
        for place in ["/", "/proc", "/proc/sys", "/proc/self", "/dev", "/dev/null", "/sys"] {
            let outcome = Run::new(caller).opts(["-v", &format!("/usr:{place}:ro")]).cmd(["true"]).go();
            assert_eq!(outcome.code(), 125, "{place}: {outcome}");
        }
    });
}

#[test]
fn a_device_that_was_asked_for_is_there_and_works() {
    for_each_caller(|caller| {
        let fuse = Path::new("/dev/fuse").exists();
        if !fuse {
            return skip_part("", "there is no /dev/fuse");
        }
        let inside =
            Run::new(caller).opts(["--device", "/dev/fuse"]).sh("stat -Lc %t:%T /dev/fuse; ls /dev | wc -l").go();
        assert_eq!(inside.expect(0).text(), "a:e5\n14\n");
        let refused = Run::new(caller).opts(["--device", "/dev/../etc/passwd"]).cmd(["true"]).go();
        assert_eq!(refused.code(), 125);
        let disk =
            ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0"].into_iter().find(|path| Path::new(path).exists());
        if let Some(disk) = disk {
            assert_eq!(Run::new(caller).opts(["--device", disk]).cmd(["true"]).go().code(), 125, "no block device");
        }
    });
}

#[test]
fn hard_links_cannot_carry_a_file_between_mounts() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let (ro, rw) = (dir.dir("ro"), dir.dir("rw"));
        dir.file("ro/file", "x");
        let program = format!(
            "attempt('link', lambda: os.link('{0}/file', '{1}/file'))\nattempt('rename', lambda: os.rename('{0}/file', '{1}/file'))",
            text(&ro),
            text(&rw)
        );
        let inside =
            Run::new(caller).opts(["--ro", text(&ro), "--rw", text(&rw)]).python(&attack(&program)).go().expect(0);
        assert!(!inside.text().contains("=OK"), "{inside}");
    });
}

#[test]
fn libraries_find_what_they_read_below_etc() {
    for_each_caller(|caller| {
        let program = attack(
            "import socket\nprint('port=%d' % socket.getservbyname('http'))\nprint('tcp=%d' % socket.getprotobyname('tcp'))",
        );
        let inside = Run::new(caller).python(&program).go().expect(0);
        for (name, file, value) in [("port", "/etc/services", "80"), ("tcp", "/etc/protocols", "6")] {
            if fs::metadata(file).is_ok() {
                assert_eq!(inside.value(name), value, "{inside}");
            }
        }
        for place in ["/etc/fonts/fonts.conf", "/etc/ld.so.conf", "/etc/ssl/openssl.cnf", "/etc/protocols"] {
            let Ok(outside) = fs::read(place) else { continue };
            let shown = Run::new(caller).cmd(["/bin/cat", place]).go().expect(0);
            assert_eq!(shown.stdout, outside, "{place}");
        }
        let mounts = Run::new(caller).sh("cmp /etc/mtab /proc/self/mounts && grep -c ' / ' /etc/mtab").go().expect(0);
        assert_eq!(mounts.text(), "1\n", "{mounts}");
    });
}

#[test]
fn secrets_and_names_of_the_host_are_not_below_etc() {
    for_each_caller(|caller| {
        let inside = Run::new(caller).sh("ls -a /etc /etc/ssl /etc/maven 2>/dev/null; cat /etc/passwd").go();
        let names: Vec<String> = inside.text().split_whitespace().map(str::to_owned).collect();
        for secret in [
            "shadow",
            "gshadow",
            "shadow-",
            "passwd-",
            "opasswd",
            "security",
            "sudoers",
            "sudoers.d",
            "ssh",
            "private",
            "machine-id",
            "fstab",
            "crontab",
            "cron.d",
            "docker",
            "containers",
            "environment",
            "profile.d",
            "npmrc",
            "pip.conf",
            "gitconfig",
            "wgetrc",
            "settings.xml",
            "apt",
            "subuid",
            "mysql",
            "postgresql",
            "krb5.keytab",
            "ldap",
        ] {
            assert!(!names.iter().any(|name| name == secret), "{secret}: {inside}");
        }
        assert!(!inside.text().contains("daemon"), "the host's users: {inside}");
    });
}

#[test]
fn what_not_every_user_may_read_below_etc_is_left_out() {
    if !is_root() || fs::metadata("/etc/fonts").is_err() || fs::metadata("/etc/services").is_err() {
        return skip("covering /etc/fonts and /etc/services takes root");
    }
    let dir = TempDir::new(Caller::Root);
    let (fonts, services) = (dir.dir("fonts"), dir.file("services", "secret 1/tcp\n"));
    for (mode, shown) in [(0o755, "yes"), (0o750, "no"), (0o751, "no")] {
        common::set_mode(&fonts, mode);
        common::set_mode(&services, mode & 0o666);
        let outer =
            format!("mount --bind {} /etc/fonts && mount --bind {} /etc/services", text(&fonts), text(&services));
        let script = "for f in fonts services; do test -e /etc/$f && echo $f=yes || echo $f=no; done";
        let outer = format!("{outer} && exec \"$@\"");
        let run = Run::new(Caller::Root).via(["unshare", "-m", "--propagation", "private", "sh", "-c", &outer, "sh"]);
        let outcome = run.sh(script).go().expect(0);
        let value = |name| outcome.value(name);
        assert_eq!((value("fonts"), value("services")), (shown.into(), shown.into()), "{mode:o} {outcome}");
    }
}

#[test]
fn a_bind_replaces_a_part_of_etc() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("services", "own 7/tcp\n");
        for place in ["/etc/services", "/etc/localtime", "/etc/new/one"] {
            let bind = format!("{}:{place}:ro", text(&file));
            let outcome = Run::new(caller).opts(["-v", &bind]).cmd(["/bin/cat", place]).go().expect(0);
            assert_eq!(outcome.text(), "own 7/tcp\n", "{place}");
        }
    });
}
