//! Terminals: `process.terminal`, `consoleSize`, console sockets, `exec --tty`.

use serde_json::{Value, json};

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

/// A container with a terminal, whose script's output comes through a console socket.
fn terminal(name: &'static str, script: &str) -> Case {
    case(name).set("process.terminal", json!(true)).inside(script)
        .host("console; create --console-socket $B/console.sock && start; console_ends")
}

/// The same with a size.
fn sized(name: &'static str, size: Value) -> Case {
    terminal(name, "busybox stty size").set("process.consoleSize", size)
}

/// A running container without a terminal, and a command with one.
fn exec(name: &'static str, host: &'static str) -> Case {
    case(name).inside("trap exit TERM; while :; do sleep 0.05; done").host(host)
}

pub(super) fn cases() -> Vec<Case> {
    let exec_tty = "up; console; rt exec --tty --detach --console-socket $B/console.sock $ID sh -c 'busybox tty; echo x'; console_ends";
    vec![
        terminal("a_terminal_shows_the_output", "echo x").prints("x\n"),
        terminal("the_terminal_has_a_name", "busybox tty").prints("/dev/pts/0\n"),
        terminal("all_streams_are_the_terminal", "for f in 0 1 2; do [ -t $f ] && echo $f; done").prints("0\n1\n2\n"),
        terminal("errors_go_to_the_terminal", "echo x >&2").prints("x\n"),
        terminal("the_terminal_is_the_controlling_one", "echo x >/dev/tty").prints("x\n"),
        terminal("the_program_leads_the_session_of_the_terminal", "busybox cut -d' ' -f6,8 /proc/1/stat")
            .prints("1 1\n"),
        terminal("the_program_is_in_the_foreground", "busybox awk '{ print ($7 != 0), $5 == $8 }' /proc/1/stat")
            .prints("1 1\n"),
        terminal("the_console_is_a_device", "stat -c %F /dev/console").prints("character special file\n"),
        terminal("a_terminal_is_of_the_containers_devpts", "ls /dev/pts | busybox tr '\\n' ' '").prints("0 ptmx "),
        terminal("a_terminal_belongs_to_its_user", "stat -c '%u %a' /dev/console")
            .set("process.user", json!({"uid": 1000, "gid": 1000})).prints("1000 620\n"),
        terminal("a_user_can_open_the_terminal", "echo x >/dev/console")
            .set("process.user", json!({"uid": 1000, "gid": 1000})).prints("x\n"),
        terminal("a_terminal_without_new_privileges", "echo x").set("process.noNewPrivileges", json!(true))
            .prints("x\n"),
        terminal("a_terminal_echoes_what_is_typed", "read line; echo got $line")
            .host("console 'hello\\n'; create --console-socket $B/console.sock && start; console_ends")
            .prints_parts(&["hello", "got hello\n"]),
        terminal("a_terminal_sends_an_interrupt", "trap 'echo interrupted; exit' INT; while :; do sleep 0.05; done")
            .host("console 'x'; create --console-socket $B/console.sock && start; sleep 0.5; rt kill $ID INT; console_ends")
            .prints_parts(&["interrupted\n"]),
        terminal("a_terminal_ends_with_the_container", "exit 3")
            .host("console; create --console-socket $B/console.sock && start; console_ends; await stopped; status")
            .prints("stopped\n"),
        sized("a_terminal_has_its_size", json!({"height": 40, "width": 100})).prints("40 100\n"),
        sized("a_terminal_without_a_size", json!(null)).prints("24 80\n")
            .but(Runc, |seen| seen.prints_parts(&["stty"]), "without a size it leaves the terminal at 0, where programs have no width to use")
            .but(Crun, |seen| seen.prints_parts(&["stty"]), "X24"),
        sized("a_terminal_of_size_zero", json!({"height": 0, "width": 0})).prints("24 80\n")
            .but(Runc, |seen| seen.prints_parts(&["stty"]), "without a size it leaves the terminal at 0, where programs have no width to use")
            .but(Crun, |seen| seen.prints_parts(&["stty"]), "X24"),
        sized("a_terminal_with_a_height_alone", json!({"height": 40, "width": 0})).prints("40 80\n")
            .but(Runc, |seen| seen.prints_parts(&["stty"]), "without a size it leaves the terminal at 0, where programs have no width to use")
            .but(Crun, |seen| seen.prints_parts(&["stty"]), "X24"),
        sized("a_size_without_its_width", json!({"height": 40})).fails("")
            .host("create --console-socket $B/console.sock"),
        sized("a_size_that_is_too_large", json!({"height": 65536, "width": 1})).fails("consoleSize")
            .host("create --console-socket $B/console.sock"),
        case("a_size_without_a_terminal").set("process.consoleSize", json!({"height": 40, "width": 100}))
            .inside("echo x").prints("x\n"),
        case("no_terminal_no_console").inside("ls /dev/console 2>/dev/null").exits(1),
        case("without_a_terminal_there_is_no_controlling_one").inside("echo x 2>/dev/null >/dev/tty && echo has")
            .exits(1),
        terminal("a_console_socket_by_relative_path", "echo x")
            .host("console; create --console-socket console.sock && start; console_ends").prints("x\n"),
        terminal("run_detached_with_a_terminal", "echo x")
            .host("console; run --detach --console-socket $B/console.sock; console_ends").prints("x\n"),
        terminal("a_console_socket_that_is_a_file", "echo x")
            .host("touch console.sock; create --console-socket $B/console.sock").fails("console"),
        terminal("the_descriptors_of_a_terminal", "ls /proc/self/fd | busybox tr '\\n' ' '").prints("0 1 2 3 "),
        terminal("a_terminal_in_a_user_namespace", "echo x; stat -c %u /dev/console")
            .push("linux.namespaces", json!({"type": "user"}))
            .set("linux.uidMappings", json!([{"containerID": 0, "hostID": 100_000, "size": 1000}]))
            .set("linux.gidMappings", json!([{"containerID": 0, "hostID": 100_000, "size": 1000}]))
            .host("chown -R 100000:100000 rootfs; console; create --console-socket $B/console.sock && start; console_ends")
            .prints("x\n0\n"),
        terminal("a_terminal_without_a_devpts", "echo x").set("mounts.2.type", json!("tmpfs"))
            .set("mounts.2.options", json!([])).host("create --console-socket $B/console.sock").fails(""),
        exec("exec_with_a_terminal", exec_tty).prints_parts(&["/dev/pts/0\n", "x\n"]),
        exec("exec_with_a_terminal_without_a_socket", "up; rt exec --tty --detach $ID true").exits(255)
            .says("console").but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        exec("exec_with_a_terminal_is_a_session", "up; console; rt exec --tty --detach --console-socket $B/console.sock $ID sh -c 'busybox awk \"{ print \\$6 == \\$1, \\$8 == \\$1 }\" /proc/$$/stat'; console_ends")
            .prints("1 1\n"),
        exec("exec_with_a_terminal_as_a_user", "up; console; rt exec --tty --detach -u 1000 --console-socket $B/console.sock $ID sh -c 'stat -L -c %u /proc/self/fd/0; echo x >/dev/tty'; console_ends")
            .prints("1000\nx\n").but(Crun, |seen| seen.prints("0\nx\n"), "its exec leaves the terminal to root"),
        exec("exec_with_a_terminal_and_a_size", "")
            .host("echo '{\"terminal\":true,\"consoleSize\":{\"height\":30,\"width\":90},\"args\":[\"busybox\",\"stty\",\"size\"],\"cwd\":\"/\",\"env\":[\"PATH=/bin\"],\"user\":{\"uid\":0,\"gid\":0}}' >p.json; up; console; rt exec --process p.json --detach --console-socket $B/console.sock $ID; console_ends")
            .prints("30 90\n").not_on(Crun, "its program may see the terminal before its size is set"),
        exec("exec_without_a_terminal_has_none", "up; inside 'for f in 0 1 2; do [ -t $f ] && echo $f; done; true'"),
    ]
}
