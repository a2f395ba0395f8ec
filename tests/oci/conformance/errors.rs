//! Configurations and command lines that are wrong, and the messages that tools search for.

use serde_json::json;

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("an_empty_configuration").host(": >config.json; run").fails("config.json"),
        case("a_configuration_that_is_not_json").host("echo nonsense >config.json; run").fails("config.json"),
        case("a_configuration_that_is_cut").host("head -c 100 config.json >c && mv c config.json; run")
            .fails("config.json"),
        case("a_configuration_with_more_behind").host("echo '{' >>config.json; run").fails("config.json")
            .but(Runc, |seen| seen.exits(0), "it ignores what follows the object"),
        case("a_configuration_that_is_an_array").host("echo '[]' >config.json; run").fails("config.json"),
        case("a_configuration_that_is_an_empty_object").host("echo '{}' >config.json; run").fails("config.json"),
        case("a_configuration_that_is_a_directory")
            .host("rm config.json; mkdir config.json; run; c=$?; rmdir config.json; exit $c").fails("config.json"),
        case("a_configuration_with_a_byte_order_mark")
            .host("printf '\\357\\273\\277' >c; cat config.json >>c; mv c config.json; run").fails("config.json"),
        case("a_configuration_behind_a_link").host("mv config.json real.json; ln -s real.json config.json; run")
            .inside("echo x").prints("x\n"),
        case("an_unknown_field").set("nonsense", json!({"a": 1})).inside("echo x").prints("x\n"),
        case("an_unknown_field_of_the_process").set("process.nonsense", json!(1)).inside("echo x").prints("x\n"),
        case("an_unknown_field_of_linux").set("linux.nonsense", json!([])).inside("echo x").prints("x\n"),
        case("a_field_of_the_wrong_type").set("process.args", json!("sh")).fails("process.args"),
        case("a_number_as_text").set("process.user.uid", json!("0")).fails("uid")
            .but(Crun, |seen| seen.exits(0), "it ignores the field"),
        case("a_fraction").set("process.user.uid", json!(0.5)).fails("uid"),
        case("a_number_that_is_too_large").set("process.user.uid", json!(4294967296u64)).fails("uid"),
        case("no_version").without("ociVersion").fails("ociVersion")
            .but(Runc, |seen| seen.exits(0), "1.1 does not check the version"),
        case("an_empty_version").set("ociVersion", json!("")).fails("ociVersion")
            .but(Runc, |seen| seen.exits(0), "1.1 does not check the version"),
        case("a_version_that_is_none").set("ociVersion", json!("nonsense")).fails("ociVersion")
            .but(Runc, |seen| seen.exits(0), "1.1 does not check the version"),
        case("a_version_of_the_future").set("ociVersion", json!("2.0.0")).fails("ociVersion")
            .but(Runc, |seen| seen.exits(0), "1.1 does not check the version"),
        case("the_version_by_cruns_letter").host("rt -V | head -n 1 | grep -o version").prints("version\n")
            .but(Runc, |seen| seen.exits(1).prints(""), "it knows -v alone"),
        case("the_first_version").set("ociVersion", json!("1.0.0")).inside("echo x").prints("x\n"),
        case("a_version_with_a_suffix").set("ociVersion", json!("1.0.2-dev")).inside("echo x").prints("x\n"),
        case("a_later_minor_version").set("ociVersion", json!("1.3.0")).inside("echo x").prints("x\n")
            .but(Crun, |seen| seen.fails(), "1.8 knows 1.0 alone; minor versions are compatible"),
        case("no_process").without("process").fails("process"),
        case("create_without_a_process").without("process").host("create; echo $?").prints("1\n")
            .says("process is missing"),
        case("no_linux").without("linux").fails(""),
        case("a_null_for_linux").set("linux", json!(null)).fails(""),
        case("empty_annotations").set("annotations", json!({})).inside("echo x").prints("x\n"),
        case("null_everywhere").set("annotations", json!(null)).set("linux.resources", json!(null))
            .set("linux.sysctl", json!(null)).set("linux.devices", json!(null)).set("process.rlimits", json!(null))
            .set("process.user.additionalGids", json!(null)).inside("echo x").prints("x\n"),
        case("an_annotation_that_is_a_number").set("annotations", json!({"a": 1})).fails("annotations"),
        case("an_annotation_without_a_name").set("annotations", json!({"": "x"})).fails("annotations")
            .but(Runc, |seen| seen.exits(0), "the specification forbids it")
            .but(Crun, |seen| seen.exits(0), "the specification forbids it"),
        case("a_nul_in_an_argument").set("process.args", json!(["echo", "a\u{0}b"])).fails("args")
            .but(Crun, |seen| seen.exits(0).prints("a\n"), "it cuts the text there"),
        case("a_nul_in_the_environment").push("process.env", json!("A=\u{0}")).fails("env")
            .but(Crun, |seen| seen.exits(0), "it cuts the text there"),
        case("a_variable_without_a_value").push("process.env", json!("NOTHING")).inside("echo x").prints("x\n")
            .but(Runc, |seen| seen.fails(), "1.1 refuses it; newer versions and crun pass it on"),
        case("a_terminal_without_a_socket").set("process.terminal", json!(true)).host("create").fails("console"),
        case("a_terminal_of_run_detached_without_a_socket").set("process.terminal", json!(true)).host("run --detach")
            .fails("console"),
        case("a_socket_without_a_terminal").host("create --console-socket $B/console.sock").fails("console"),
        case("a_console_socket_that_is_missing").set("process.terminal", json!(true))
            .host("create --console-socket $B/console.sock").fails("console"),
        case("an_unknown_command").host("rt nonsense").fails("nonsense")
            .but(Runc, |seen| seen.exits(3), "it ends with another code"),
        case("an_unknown_option").host("rt run --nonsense --bundle $B $ID").fails("nonsense")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage")
            .but(Crun, |seen| seen.exits(64), "it ends with another code"),
        case("no_command").host("rt >/dev/null; true"),
        case("create_without_an_id").host("rt create --bundle $B").fails("")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        case("start_without_an_id").host("rt start").fails("")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        case("state_with_two_ids").host("rt state a b").fails("")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        case("kill_without_an_id").host("rt kill").fails("")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        case("an_option_without_its_value").host("rt run $ID --bundle").fails("bundle")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage"),
        case("preserved_descriptors_that_are_not_open").host("run --preserve-fds 5").fails("descriptor")
            .but(Crun, |seen| seen.exits(0), "it ignores the missing ones; the program would get fewer than were promised"),
        case("preserved_descriptors_that_are_not_a_number").host("run --preserve-fds x").fails("preserve-fds")
            .but(Runc, |seen| seen.prints_parts(&["USAGE"]), "it prints its usage")
            .but(Crun, |seen| seen.exits(0), "it takes the word as 0"),
        case("preserved_descriptors_below_zero").host("run --preserve-fds -1").fails("preserve-fds")
            .but(Runc, |seen| seen.exits(0), "it takes the number as 0")
            .but(Crun, |seen| seen.exits(0), "it takes the number as 0"),
        case("no_preserved_descriptors").host("exec 3</dev/null; run --preserve-fds 0").inside("ls /proc/self/fd")
            .prints("0\n1\n2\n3\n"),
        case("more_preserved_descriptors_than_can_be").host("run --preserve-fds 99999999999").fails("preserve-fds")
            .not_on(Crun, "it takes the number modulo 2^32"),
        case("a_pidfd_socket_that_is_missing").host("run --pidfd-socket /nonexistent/s").fails("--pidfd-socket /nonexistent/s")
            .not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        case("a_pidfd_socket_that_is_a_file").host("echo >f; run --pidfd-socket f").fails("--pidfd-socket f: Connection refused")
            .not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        case("no_pidfd_socket").host("run --pidfd-socket ''")
            .not_on(Runc, "1.1 does not have the option").not_on(Crun, "1.8 does not have the option"),
        case("a_user_outside_the_map").push("linux.namespaces", json!({"type": "user"}))
            .set("linux.uidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 10}]))
            .set("linux.gidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 20}]))
            .set("process.user", json!({"uid": 15, "gid": 15}))
            .host("chmod 755 .; chown 300000:300000 rootfs; run").fails("process.user.uid: 15"),
        case("a_group_outside_the_map").push("linux.namespaces", json!({"type": "user"}))
            .set("linux.uidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 10}]))
            .set("linux.gidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 10}]))
            .set("process.user", json!({"uid": 5, "gid": 15}))
            .host("chmod 755 .; chown 300000:300000 rootfs; run").fails("process.user.gid: 15"),
        case("additional_groups_outside_the_map").push("linux.namespaces", json!({"type": "user"}))
            .set("linux.uidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 10}]))
            .set("linux.gidMappings", json!([{"containerID": 0, "hostID": 300_000, "size": 10}]))
            .set("process.user", json!({"uid": 5, "gid": 5, "additionalGids": [7, 77]}))
            .host("chmod 755 .; chown 300000:300000 rootfs; run").fails("process.user.additionalGids: 77"),
        case("an_unknown_file_system").mount("/new", "nofs", "x", &[]).fails("/new: mounts[7].type: nofs"),
        case("a_file_system_with_an_option_that_it_does_not_take").mount("/new", "tmpfs", "x", &["size=x"])
            .fails("/new: mounts[7].options: size=x"),
        case("a_file_system_without_its_device").mount("/new", "ext4", "/nonexistent", &[])
            .fails("/new: mounts[7].source: /nonexistent"),
        case("an_error_is_in_the_log")
            .host("rt --log $B/log --log-format json start $ID; grep -c '\"level\":\"error\"' log || grep -c '\"level\": \"error\"' log")
            .prints("1\n").says("does not exist"),
        case("an_error_is_in_the_text_log").host("rt --log $B/log start $ID; grep -c 'does not exist' log")
            .prints("1\n").but(Crun, |seen| seen.exits(1).prints("0\n"), "it has its own words"),
        case("a_log_that_cannot_be_opened").host("rt --log /nonexistent/log list").fails("/nonexistent/log"),
        case("an_unknown_log_format").host("rt --log-format nonsense list").fails("nonsense"),
        case("a_version_is_printed").host("rt --version | head -1 | grep -c ' version [0-9]'").prints("1\n"),
        case("the_version_names_the_specification").host("rt --version | grep -c '^spec: 1'").prints("1\n"),
        case("help_is_printed").host("rt --help | grep -c -w create | grep -vcx 0").prints("1\n"),
        case("spec_writes_a_configuration").host("rm config.json; rt spec; ls config.json").prints("config.json\n"),
        case("spec_does_not_overwrite").host("rt spec").fails("config.json"),
        case("spec_for_a_bundle").host("mkdir new; rt spec --bundle new; ls new").prints("config.json\n"),
        case("spec_runs")
            .host("rm config.json; rt spec; sed -i 's/\"terminal\": *true/\"terminal\": false/; s/\"sh\"/\"true\"/' config.json; run"),
        case("spec_for_a_user").host("rm config.json; rt spec --rootless; grep -c uidMappings config.json")
            .prints("1\n").but(Crun, |seen| seen.exits(1).prints("0\n"), "it leaves the map to the caller"),
        case("features_are_json").host("rt features | tr -d ' \\n' | grep -c '\"ociVersionMin\":\"1.0.0'")
            .prints("1\n").but(Crun, |seen| seen.exits(1).prints("0\n"), "1.8 does not have the command"),
        case("features_list_mount_options").host("rt features | grep -c -w '\"rro\"'").prints("1\n")
            .but(Crun, |seen| seen.exits(1).prints("0\n"), "1.8 does not have the command"),
        case("list_of_a_missing_state_directory").host("rt list -q").fails("state")
            .but(Runc, |seen| seen.exits(0), "it lists nothing; newer versions of runc report the mistake")
            .but(Crun, |seen| seen.exits(0), "it lists nothing; newer versions of runc report the mistake"),
        case("list_of_nothing").host("mkdir state; rt list -q"),
        case("events_of_a_missing_container").host("rt events --stats $ID").fails("does not exist"),
        case("update_of_a_missing_container").host("rt update --pids-limit 5 $ID").fails("does not exist"),
    ]
}
