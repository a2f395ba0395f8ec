//! A sandbox never gets the caller's terminal: it has a terminal of its own, or none.

use std::thread::sleep;
use std::time::Duration;

use crate::common::terminal::Terminal;
use crate::common::{Live, Run, attack, for_each_caller};
use nix::sys::signal::Signal;

/// A run in front of the terminal, which is the controlling terminal of its session.
fn in_front_of(terminal: &Terminal, run: Run) -> Live {
    run.via(["setsid", "--ctty"]).streams(terminal.slave(), terminal.slave(), terminal.slave()).spawn()
}

#[test]
fn a_terminal_is_given_on_request_only() {
    for_each_caller(|caller| {
        let script = "for n in 0 1 2; do test -t $n && echo yes || echo no; done; tty";
        let terminal = Terminal::open(30, 100);
        in_front_of(&terminal, Run::new(caller).opts(["-t", "-i"]).sh(script)).finish().expect(0);
        terminal.wait_for("/dev/pts/0\r\n");
        assert_eq!(terminal.shown(), "yes\r\nyes\r\nyes\r\n/dev/pts/0\r\n");
        let piped = Run::new(caller).opts(["-t"]).sh(script).go().expect(0);
        assert_eq!(piped.text(), "yes\r\nyes\r\nyes\r\n/dev/pts/0\r\n", "it is not the caller's");
    });
}

#[test]
fn the_terminals_size_is_the_callers_and_follows_it() {
    for_each_caller(|caller| {
        let terminal = Terminal::open(33, 77);
        let script = "trap 'stty size; exit 4' WINCH; stty size; echo ready; while :; do sleep 0.05; done";
        let run = in_front_of(&terminal, Run::new(caller).opts(["-t", "-i"]).sh(script));
        terminal.wait_for("33 77\r\nready");
        terminal.resize(44, 88);
        run.finish().expect(4);
        terminal.wait_for("44 88");
    });
}

#[test]
fn typed_input_arrives_and_control_c_is_a_signal_inside() {
    for_each_caller(|caller| {
        let mut terminal = Terminal::open(24, 80);
        let script = "trap 'echo interrupted; exit 6' INT; read line; echo got $line; while :; do sleep 0.05; done";
        let run = in_front_of(&terminal, Run::new(caller).opts(["-t", "-i"]).sh(script));
        sleep(Duration::from_millis(300));
        terminal.type_text("hello\r");
        terminal.wait_for("got hello");
        terminal.type_text("\x03");
        run.finish().expect(6);
        terminal.wait_for("interrupted");
    });
}

#[test]
fn the_callers_terminal_is_restored_however_the_run_ends() {
    for_each_caller(|caller| {
        let ends: [(&str, &[&str], &str, i32); 5] = [
            ("normally", &[], "exit 0", 0),
            ("by a signal", &[], "kill -9 $$", 137),
            ("by the deadline", &["--timeout", "300ms"], "stty raw -echo; sleep 100", 124),
            ("not found", &[], "", 127),
            ("signalled", &[], "echo ready; exec sleep 100", 143),
        ];
        for (name, options, script, code) in ends {
            let terminal = Terminal::open(24, 80);
            let before = terminal.modes();
            let run = Run::new(caller).opts(["-t", "-i"]).opts(options.iter().copied());
            let run = if script.is_empty() { run.cmd(["no-such-command"]) } else { run.sh(script) };
            let run = in_front_of(&terminal, run);
            if name == "signalled" {
                terminal.wait_for("ready");
                assert_ne!(terminal.modes(), before, "it is not raw during the run");
                run.signal(Signal::SIGTERM);
            }
            run.finish().expect(code);
            assert_eq!(terminal.modes(), before, "{name}");
        }
    });
}

#[test]
fn large_amounts_come_through_the_terminal() {
    for_each_caller(|caller| {
        let terminal = Terminal::open(24, 80);
        in_front_of(&terminal, Run::new(caller).opts(["-t"]).sh("stty -onlcr; seq 1 40000; echo end"))
            .finish()
            .expect(0);
        terminal.wait_for("end");
        let expected: String = (1..=40_000).map(|number| format!("{number}\n")).collect();
        assert!(terminal.shown().replace('\r', "").starts_with(&expected));
    });
}

const INJECT: &str = r#"
import fcntl, termios
for fd in (0, 1, 2):
    for name, request in [("TIOCSTI", 0x5412), ("TIOCSTI_high", 0x5412 | 1 << 32), ("TIOCLINUX", 0x541C), ("TIOCSCTTY", 0x540E)]:
        buffer = ctypes.create_string_buffer(b"x")
        result = libc.ioctl(fd, ctypes.c_ulong(request), buffer if name != "TIOCSCTTY" else ctypes.c_long(0))
        print(f"{name}{fd}={'OK' if result == 0 else word(ctypes.get_errno())}", flush=True)
attempt("devtty", lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
"#;

#[test]
fn keys_cannot_be_pressed_on_the_callers_terminal() {
    for_each_caller(|caller| {
        let terminal = Terminal::open(24, 80);
        in_front_of(&terminal, Run::new(caller).python(&attack(INJECT))).finish().expect(0);
        terminal.wait_for("devtty=ENXIO");
        let shown = terminal.shown();
        assert!(!shown.contains("=OK"), "{shown}");
    });
}

#[test]
fn input_typed_by_the_caller_cannot_be_read() {
    // Standard output is the terminal, opened for reading and writing.
    let steal = attack(
        r#"
import select
print("ready", flush=True)
for fd in (1, 2):
    def steal(fd=fd):
        if not select.select([fd], [], [], 0.5)[0]: raise OSError(errno.EAGAIN, "")
        print("stole", os.read(fd, 100), flush=True)
    attempt(f"read{fd}", steal)
    def reopen(fd=fd):
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
        print("stole", os.read(again, 100), flush=True)
    attempt(f"reopen{fd}", reopen)
"#,
    );
    for_each_caller(|caller| {
        let mut terminal = Terminal::open(24, 80);
        terminal.type_text("secret\r");
        let run = in_front_of(&terminal, Run::new(caller).python(&steal));
        run.finish().expect(0);
        terminal.wait_for("reopen2=");
        let shown = terminal.shown();
        assert!(!shown.contains("stole b'secret"), "{shown}");
    });
}

#[test]
fn the_sandboxes_terminal_is_not_the_callers() {
    for_each_caller(|caller| {
        let terminal = Terminal::open(24, 80);
        // The sandbox's own terminal accepts its keys.
        in_front_of(&terminal, Run::new(caller).opts(["-t", "-i"]).python(&attack(INJECT))).finish().expect(0);
        terminal.wait_for("devtty=OK");
    });
}
