//! `mounts`, `root`, masked and read-only paths, devices.

use serde_json::json;

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

/// The options of the mount at a place, and its file system.
fn shows(place: &str) -> String {
    format!("busybox awk '$5 == \"{place}\" {{ o = $6; sub(/.* - /, \"\"); print o, $1 }}' /proc/self/mountinfo")
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_read_only_root").inside("touch /x").exits(1),
        case("a_writable_root").writable().inside("touch /x && ls /x").prints("/x\n"),
        case("a_root_is_writable_if_nothing_is_said").without("root.readonly").inside("touch /x && ls /x")
            .prints("/x\n"),
        case("a_root_by_absolute_path").set("root.path", json!("{dir}/rootfs")).inside("echo x").prints("x\n"),
        case("a_root_with_a_trailing_slash").set("root.path", json!("rootfs/")).inside("echo x").prints("x\n"),
        case("a_root_with_dots").set("root.path", json!("./rootfs/../rootfs/.")).inside("echo x").prints("x\n"),
        case("a_root_behind_a_link").set("root.path", json!("link")).host("ln -s rootfs link; run").inside("echo x")
            .prints("x\n").but(Runc, |seen| seen.fails(), "1.1 refuses a link; newer versions and crun follow it"),
        case("a_root_that_is_missing").set("root.path", json!("nonexistent")).fails("nonexistent"),
        case("a_root_that_is_a_file").set("root.path", json!("config.json")).fails("config.json"),
        case("a_root_without_a_path").set("root", json!({"readonly": true})).fails("root"),
        case("no_root").without("root").fails("root"),
        case("a_mount_point_is_made").mount("/new/deep", "tmpfs", "tmpfs", &[])
            .inside("grep -c ' /new/deep ' /proc/self/mountinfo; ls -a /new").prints("1\n.\n..\ndeep\n"),
        case("a_mount_point_with_a_trailing_slash").mount("/new/", "tmpfs", "tmpfs", &[])
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_point_with_dots").mount("/etc/../new/./x", "tmpfs", "tmpfs", &[])
            .inside("grep -c ' /new/x ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_point_above_the_root").mount("/../../new", "tmpfs", "tmpfs", &[])
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_relative_mount_point").mount("new", "tmpfs", "tmpfs", &[])
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_point_behind_a_link").mount("/link/x", "tmpfs", "tmpfs", &[])
            .host("ln -s /etc rootfs/link; run").inside("grep -c ' /etc/x ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_point_behind_a_link_out_of_the_root").mount("/link/x", "tmpfs", "tmpfs", &[])
            .host("ln -s ../../../../etc rootfs/link; run").inside("grep -c ' /etc/x ' /proc/self/mountinfo")
            .prints("1\n"),
        case("a_mount_point_behind_a_dangling_link").mount("/link/x", "tmpfs", "tmpfs", &[])
            .host("ln -s /later rootfs/link; run").inside("grep -c ' /later/x ' /proc/self/mountinfo").prints("1\n")
            .but(Crun, |seen| seen.fails(), "it makes no directory behind a link; runc does"),
        case("a_mount_point_that_is_a_link").mount("/link", "tmpfs", "tmpfs", &[])
            .host("ln -s /target rootfs/link; mkdir rootfs/target; run")
            .inside("grep -c ' /target ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_point_that_is_a_loop_of_links").mount("/link/x", "tmpfs", "tmpfs", &[])
            .host("ln -s link rootfs/link; run").fails("link"),
        case("a_mount_below_a_file").mount("/etc/passwd/x", "tmpfs", "tmpfs", &[]).fails("/etc/passwd"),
        case("two_mounts_in_one_place").mount("/new", "tmpfs", "tmpfs", &["mode=700"])
            .mount("/new", "tmpfs", "tmpfs", &["mode=755"])
            .inside("stat -c %a /new; grep -c ' /new ' /proc/self/mountinfo").prints("755\n2\n")
            .but(Runc, |seen| seen.prints("700\n2\n"), "it takes the mode of the first for the second, whose option says another"),
        case("a_mount_below_a_mount").mount("/a", "tmpfs", "tmpfs", &[]).mount("/a/b", "tmpfs", "tmpfs", &[])
            .inside("ls /a").prints("b\n"),
        case("a_mount_hides_an_earlier_one_below").mount("/a/b", "tmpfs", "tmpfs", &[])
            .mount("/a", "tmpfs", "tmpfs", &[]).inside("ls /a").prints(""),
        case("no_mounts").set("mounts", json!([])).inside("busybox ls /proc | busybox wc -l")
            .without("linux.maskedPaths").without("linux.readonlyPaths").prints("0\n")
            .but(Runc, |seen| seen.fails(), "it needs a procfs itself; the specification demands none")
            .but(Crun, |seen| seen.fails(), "it needs a procfs itself; the specification demands none"),
        case("mounts_that_are_missing").without("mounts").without("linux.maskedPaths").without("linux.readonlyPaths")
            .set("process.args", json!(["/bin/echo", "x"])).prints("x\n")
            .but(Runc, |seen| seen.fails(), "it needs a procfs or the field; the specification demands neither")
            .but(Crun, |seen| seen.fails(), "it needs a procfs or the field; the specification demands neither"),
        case("a_mount_without_options")
            .push("mounts", json!({"destination": "/new", "type": "tmpfs", "source": "tmpfs"}))
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_with_null_options")
            .push("mounts", json!({"destination": "/new", "type": "tmpfs", "source": "tmpfs", "options": null}))
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_without_a_source").push("mounts", json!({"destination": "/new", "type": "tmpfs"}))
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n"),
        case("a_mount_without_a_destination").push("mounts", json!({"type": "tmpfs", "source": "tmpfs"}))
            .fails("destination"),
        case("a_mount_of_an_unknown_type").mount("/new", "nonsensefs", "x", &[]).fails("/new"),
        case("a_mount_without_a_type")
            .push("mounts", json!({"destination": "/new", "source": "tmpfs", "options": []}))
            .fails("has neither a type nor the option bind"),
        case("a_bind_by_its_option_alone")
            .push("mounts", json!({"destination": "/new", "source": "/etc", "options": ["bind"]}))
            .inside("ls /new/hostname").prints("/new/hostname\n"),
        case("a_bind_whose_type_is_none").mount("/new", "none", "/etc", &["bind"]).inside("ls /new/hostname")
            .prints("/new/hostname\n"),
        case("a_bind_by_its_type_alone").mount("/new", "bind", "/etc", &[]).inside("ls /new/hostname")
            .prints("/new/hostname\n")
            .but(Runc, |seen| seen.fails(), "it takes bind as a file system; the type says clearly what is meant")
            .but(Crun, |seen| seen.fails(), "it takes bind as a file system; the type says clearly what is meant"),
        case("a_bind_of_a_file").bind("/new/file", "{dir}/source", &[]).host("echo content >source; run")
            .inside("cat /new/file").prints("content\n"),
        case("a_bind_over_a_mount_at_the_same_place").mount("/new", "tmpfs", "tmpfs", &[]).bind("/new", "{dir}/source", &[])
            .host("mkdir source; touch source/here; run").inside("ls /new").prints("here\n"),
        case("a_mount_over_a_bind_at_the_same_place").bind("/new", "{dir}/source", &[]).mount("/new", "tmpfs", "tmpfs", &[])
            .host("mkdir source; touch source/here; run").inside("ls /new; echo empty").prints("empty\n"),
        case("a_bind_over_a_file").bind("/etc/passwd", "{dir}/source", &[]).host("echo content >source; run")
            .inside("cat /etc/passwd").prints("content\n"),
        case("a_bind_of_a_file_over_a_directory").bind("/etc", "{dir}/source", &[]).host("echo content >source; run")
            .fails("/etc"),
        case("a_bind_of_a_directory_over_a_file").bind("/etc/passwd", "{dir}/source", &[]).host("mkdir source; run")
            .fails("/etc/passwd"),
        case("a_bind_by_relative_source").bind("/new", "source", &[])
            .host("mkdir source; touch source/here; cd /; run").inside("ls /new").prints("here\n"),
        case("a_bind_of_a_link_follows_it").bind("/new", "{dir}/link", &[])
            .host("mkdir source; touch source/here; ln -s source link; run").inside("ls /new").prints("here\n"),
        case("a_bind_of_a_missing_source").bind("/new", "{dir}/nonexistent", &[]).fails("nonexistent"),
        case("a_bind_of_a_socket").bind("/new", "{dir}/console.sock", &[]).host("console; run; kill $CONSOLE")
            .inside("stat -c %F /new").prints("socket\n"),
        case("a_bind_of_a_device").bind("/new", "/dev/zero", &[])
            .inside("stat -c %F /new; busybox head -c 2 /new | busybox wc -c").prints("character special file\n2\n"),
        case("a_bind_of_a_fifo").bind("/new", "{dir}/fifo", &[]).host("mkfifo fifo; run").inside("stat -c %F /new")
            .prints("fifo\n"),
        case("a_bind_is_writable").bind("/new", "{dir}/source", &[]).host("mkdir source; run; ls source")
            .inside("touch /new/x").prints("x\n"),
        case("a_read_only_bind").bind("/new", "{dir}/source", &["ro"]).host("mkdir source; run; echo $?; ls source")
            .inside("touch /new/x").prints("1\n"),
        case("the_last_of_ro_and_rw").bind("/new", "{dir}/source", &["ro", "rw"]).host("mkdir source; run; ls source")
            .inside("touch /new/x").prints("x\n")
            .but(Crun, |seen| seen.prints(""), "its rw does not take ro back; the later option decides for mount(8) and runc"),
        case("the_last_of_rw_and_ro").bind("/new", "{dir}/source", &["rw", "ro"]).host("mkdir source; run; echo $?")
            .inside("touch /new/x").prints("1\n"),
        case("a_plain_bind_leaves_mounts_below").bind("/new", "/sys", &[]).inside("ls /new/fs/cgroup").prints(""),
        case("a_recursive_bind_has_mounts_below").mount("/new", "bind", "/sys", &["rbind"])
            .inside("ls /new/fs/cgroup | busybox wc -l | busybox grep -vx 0 >/dev/null && echo some").prints("some\n"),
        case("a_recursive_bind_read_only_is_so_at_the_top_alone").mount("/new", "bind", "{dir}/s", &["rbind", "ro"])
            .inside("touch /new/x || echo top; touch /new/sub/x && echo below").prints("top\nbelow\n")
            .host("mkdir -p s/sub; unshare -m --propagation private sh -c 'mount -t tmpfs t s/sub; . ./prelude; run'"),
        case("recursive_read_only").mount("/new", "bind", "{dir}/s", &["rbind", "rro"])
            .inside("touch /new/x || echo top; touch /new/sub/x || echo below").prints("top\nbelow\n")
            .host("mkdir -p s/sub; unshare -m --propagation private sh -c 'mount -t tmpfs t s/sub; . ./prelude; run'"),
        case("attributes_of_a_bind").bind("/new", "{dir}/source", &["nosuid", "nodev", "noexec", "ro"])
            .host("mkdir source; run")
            .inside(&format!("{} | busybox tr , '\\n' | grep -c -E '^(ro|nosuid|nodev|noexec)$'", shows("/new")))
            .prints("4\n"),
        case("noexec_is_enforced").bind("/new", "{dir}/rootfs/bin", &["noexec"]).inside("/new/busybox true")
            .exits(126),
        case("attributes_of_a_tmpfs")
            .mount("/new", "tmpfs", "tmpfs", &["nosuid", "noatime", "size=1m", "mode=0711", "uid=5", "gid=6"])
            .inside("stat -c '%a %u %g' /new; busybox df -k /new | busybox awk 'END { print $2 }'")
            .prints("711 5 6\n1024\n"),
        case("an_unknown_option_goes_to_the_file_system").mount("/new", "tmpfs", "tmpfs", &["nonsense=1"])
            .fails("/new"),
        case("an_empty_option").mount("/new", "tmpfs", "tmpfs", &[""]).inside("grep -c ' /new ' /proc/self/mountinfo")
            .prints("1\n"),
        case("defaults_is_an_option").mount("/new", "tmpfs", "tmpfs", &["defaults"])
            .inside("grep -c ' /new ' /proc/self/mountinfo").prints("1\n")
            .but(Runc, |seen| seen.fails(), "1.1 passes it to the file system; newer versions and crun ignore it"),
        case("tmpcopyup").mount("/etc", "tmpfs", "tmpfs", &["tmpcopyup"]).inside("ls /etc; touch /etc/x")
            .prints("passwd\n"),
        case("a_tmpfs_is_1777_without_a_mode").mount("/new", "tmpfs", "tmpfs", &[]).inside("stat -c %a /new")
            .prints("1777\n"),
        case("a_tmpfs_on_a_directory_has_its_mode").mount("/old", "tmpfs", "tmpfs", &[])
            .host("mkdir -m 750 rootfs/old; run").inside("stat -c %a /old").prints("750\n")
            .but(Crun, |seen| seen.prints("1777\n"), "it does not look at the directory; images set its mode for a user"),
        case("a_procfs_elsewhere").mount("/proc2", "proc", "proc", &[]).inside("ls -d /proc2/self")
            .prints("/proc2/self\n"),
        case("a_sysfs_is_read_only").inside(&format!("{} | busybox cut -d, -f1", shows("/sys"))).prints("ro\n"),
        case("dev_shm_has_its_mode").inside("stat -c %a /dev/shm").prints("1777\n"),
        case("a_shared_root").set("linux.rootfsPropagation", json!("shared"))
            .inside("busybox awk '$5 == \"/\" { print $7 }' /proc/self/mountinfo | busybox cut -d: -f1")
            .prints("shared\n")
            .but(Runc, |seen| seen.prints("-\n"), "1.1 makes it private again before pivot_root(2)"),
        case("a_slave_root").set("linux.rootfsPropagation", json!("slave"))
            .inside("busybox awk '$5 == \"/\" { print $7 }' /proc/self/mountinfo | grep -c shared; true")
            .prints("0\n"),
        case("a_private_root").set("linux.rootfsPropagation", json!("private"))
            .inside("busybox awk '$5 == \"/\" { print $7 }' /proc/self/mountinfo").prints("-\n"),
        case("an_unbindable_root").set("linux.rootfsPropagation", json!("unbindable"))
            .inside("busybox awk '$5 == \"/\" { print $7 }' /proc/self/mountinfo").prints("unbindable\n")
            .not_on(Runc, "it fails where the root has no mount of its own, and else makes it private"),
        case("an_unknown_propagation").set("linux.rootfsPropagation", json!("nonsense")).fails("rootfsPropagation")
            .but(Crun, |seen| seen.exits(0), "it ignores unknown values"),
        case("a_shared_bind").bind("/new", "{dir}/source", &["shared"]).host("mkdir source; run")
            .inside("busybox awk '$5 == \"/new\" { print $7 }' /proc/self/mountinfo | busybox cut -d: -f1")
            .prints("shared\n").but(Crun, |seen| seen.prints("-\n"), "1.8 makes the bind private all the same"),
        case("a_private_bind").bind("/new", "{dir}/source", &["private"]).host("mkdir source; run")
            .inside("busybox awk '$5 == \"/new\" { print $7 }' /proc/self/mountinfo").prints("-\n"),
        case("mounts_inside_do_not_reach_the_host").set("linux.rootfsPropagation", json!("rslave"))
            .set("process.capabilities.effective", json!(["CAP_SYS_ADMIN"]))
            .set("process.capabilities.permitted", json!(["CAP_SYS_ADMIN"]))
            .set("process.capabilities.bounding", json!(["CAP_SYS_ADMIN"]))
            .inside("busybox mount -t tmpfs t /etc && echo mounted")
            .host("run; grep -c \" $B/rootfs/etc \" /proc/self/mountinfo").prints("mounted\n0\n").exits(1),
        case("a_masked_file_is_empty").host("echo secret >rootfs/etc/secret; run")
            .push("linux.maskedPaths", json!("/etc/secret")).inside("cat /etc/secret").prints(""),
        case("a_masked_directory_is_empty").push("linux.maskedPaths", json!("/etc")).inside("ls -A /etc").prints(""),
        case("a_masked_path_that_is_missing").push("linux.maskedPaths", json!("/nonexistent")),
        case("a_masked_path_twice").push("linux.maskedPaths", json!("/etc")).push("linux.maskedPaths", json!("/etc"))
            .inside("ls -A /etc").prints(""),
        case("a_masked_path_is_not_writable").writable().push("linux.maskedPaths", json!("/etc"))
            .inside("touch /etc/x").exits(1),
        case("a_masked_path_behind_a_link")
            .host("mkdir rootfs/real; touch rootfs/real/x; ln -s real rootfs/link; run")
            .push("linux.maskedPaths", json!("/link")).inside("ls /real").prints(""),
        case("a_masked_path_with_a_trailing_slash").push("linux.maskedPaths", json!("/etc/")).inside("ls -A /etc")
            .prints(""),
        case("a_read_only_path_behind_a_link").writable().host("mkdir rootfs/real; ln -s real rootfs/link; run")
            .push("linux.readonlyPaths", json!("/link")).inside("touch /real/x").exits(1),
        case("a_masked_path_behind_a_link_out_of_the_root")
            .host("ln -s ../../../../etc rootfs/link; run; ls -d /etc/passwd")
            .push("linux.maskedPaths", json!("/link")).inside("ls -A /etc").prints("/etc/passwd\n"),
        case("masked_paths_of_no_length").set("linux.maskedPaths", json!([])),
        case("a_read_only_path").writable().push("linux.readonlyPaths", json!("/etc"))
            .inside("touch /x && touch /etc/x").exits(1),
        case("a_read_only_file").writable().push("linux.readonlyPaths", json!("/etc/passwd"))
            .inside("echo x >>/etc/passwd").exits(1),
        case("a_read_only_path_that_is_missing").push("linux.readonlyPaths", json!("/nonexistent")),
        case("a_read_only_path_that_is_a_mount").mount("/new", "tmpfs", "tmpfs", &[])
            .push("linux.readonlyPaths", json!("/new")).inside("touch /new/x").exits(1),
        case("a_path_that_is_masked_and_read_only").push("linux.maskedPaths", json!("/etc"))
            .push("linux.readonlyPaths", json!("/etc")).inside("ls -A /etc").prints(""),
        case("proc_sys_is_read_only").inside("echo x >/proc/sys/kernel/hostname").exits(1),
        case("the_default_devices").inside("cd /dev; stat -c '%n %t:%T %a' null zero full random urandom tty")
            .prints("null 1:3 666\nzero 1:5 666\nfull 1:7 666\nrandom 1:8 666\nurandom 1:9 666\ntty 5:0 666\n"),
        case("the_links_of_dev").inside("cd /dev; for l in fd stdin stdout stderr ptmx; do readlink $l; done")
            .prints("/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx\n"),
        case("devices_work")
            .inside("echo x >/dev/null; busybox head -c 3 /dev/zero | busybox wc -c; echo x >/dev/full || echo full")
            .prints("3\nfull\n"),
        case("a_device")
            .push("linux.devices", json!({"path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 3, "gid": 4}))
            .inside("stat -c '%F %t:%T %a %u:%g' /dev/mine").prints("character special file 1:5 640 3:4\n"),
        case("a_device_outside_of_dev").writable()
            .push("linux.devices", json!({"path": "/mine", "type": "c", "major": 1, "minor": 5}))
            .inside("stat -c '%F %t:%T' /mine").prints("character special file 1:5\n"),
        case("a_device_in_a_new_directory")
            .push("linux.devices", json!({"path": "/dev/net/mine", "type": "c", "major": 1, "minor": 5}))
            .inside("stat -c '%F' /dev/net/mine").prints("character special file\n"),
        case("a_fifo_as_a_device").push("linux.devices", json!({"path": "/dev/fifo", "type": "p", "fileMode": 0o600}))
            .inside("stat -c '%F %a' /dev/fifo").prints("fifo 600\n"),
        case("a_block_device")
            .push("linux.devices", json!({"path": "/dev/block", "type": "b", "major": 7, "minor": 9}))
            .inside("stat -c '%F %t:%T' /dev/block").prints("block special file 7:9\n"),
        case("a_device_of_an_unknown_type")
            .push("linux.devices", json!({"path": "/dev/mine", "type": "x", "major": 1, "minor": 5})).fails("type")
            .but(Crun, |seen| seen.exits(0), "it ignores unknown values"),
        case("a_default_device_that_is_listed_too")
            .push("linux.devices", json!({"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}))
            .inside("echo x >/dev/null; stat -c %a /dev/null").prints("666\n")
            .but(Runc, |seen| seen.fails(), "its own device rules then refuse the standard streams' /dev/null"),
        case("no_devices_at_all").set("linux.devices", json!([])).inside("stat -c %a /dev/null").prints("666\n"),
    ]
}
