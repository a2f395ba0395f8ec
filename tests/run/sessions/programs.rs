//! Programs that people use in sessions: a shell, an editor and an interpreter on a terminal, and a server with its client.

use super::*;
use crate::common::skip;

/// A terminal with what runs on it.
struct OnTerminal {
    terminal: Terminal,
    child: Child,
}

impl OnTerminal {
    fn start(session: &Session, words: &[&str]) -> Self {
        let terminal = Terminal::open(24, 80);
        let mut command = Command::new("setsid");
        let exec = session.command(&[&["exec", "-it", &session.name], words].concat());
        command.arg("--ctty").arg(exec.get_program()).args(exec.get_args()).env_clear();
        command.envs(exec.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
        command.stdin(terminal.slave()).stdout(terminal.slave()).stderr(terminal.slave());
        let child = command.spawn().unwrap();
        Self { terminal, child }
    }

    /// Types a text, and waits until another one is shown.
    #[track_caller]
    fn see(&mut self, text: &str, shown: &str) {
        self.terminal.type_text(text);
        self.terminal.wait_for(shown);
    }

    #[track_caller]
    fn ends(mut self, text: &str, code: i32) {
        self.terminal.type_text(text);
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.terminal.shown());
    }
}

#[test]
fn bash_has_line_editing_and_job_control() {
    for_each_session(&[], |session| {
        let mut bash = OnTerminal::start(session, &["env", "PS1=ready> ", "bash", "--norc", "-i"]);
        bash.see("", "ready> ");
        bash.see("echo abd\x1b[Dc\r", "abcd\r\n"); // the left arrow
        bash.see("\x1b[A\x7fxy\r", "abcxy\r\n"); // the last line again, without its last character
        bash.see("sleep 7531\r", "sleep 7531\r\n");
        assert!(eventually(|| session.sh("pgrep -x sleep || ps -C sleep").code == Some(0)));
        bash.see("\x1a", "Stopped");
        bash.see("bg\r", "sleep 7531 &");
        bash.see("jobs\r", "Running");
        bash.see("kill %1; wait %1; echo ended $?\r", "ended 143");
        bash.see("sleep 7532\r", "sleep 7532\r\n");
        assert!(eventually(|| session.sh("pgrep -f 'sleep 753[2]'").code == Some(0)));
        bash.see("\x03", "^C");
        bash.see("echo code $?\r", "code 130");
        bash.terminal.resize(44, 88);
        bash.see("stty size\r", "44 88");
        bash.ends("exit 5\r", 5);
    });
}

#[test]
fn python_reads_lines_from_a_terminal() {
    for_each_session(&[], |session| {
        let mut python = OnTerminal::start(session, &[PYTHON, "-I", "-q"]);
        python.see("", ">>> ");
        python.see("print(6 * 7)\r", "\n42\r\n");
        python.see("for i in range(2):\r    print('line', i * 11)\r\r", "line 11");
        python.see("while True: pass\r", "... ");
        python.see("\r\x03", "KeyboardInterrupt");
        python.see("import sys; sys.stdin.isatty(), sys.stdout.isatty()\r", "(True, True)");
        python.ends("\x04", 0);
    });
}

#[test]
fn vim_edits_a_file() {
    let Some(vim) = ["/usr/bin/vim", "/usr/bin/vim.basic", "/usr/bin/vim.tiny"]
        .into_iter()
        .find(|vim| std::fs::exists(vim).unwrap())
    else {
        return skip("vim is not installed");
    };
    for_each_session(&[], |session| {
        session.sh("printf 'one\\ntwo\\nthree\\n' >/tmp/text").is(0, "");
        let mut vim = OnTerminal::start(session, &[vim, "-u", "NONE", "-N", "/tmp/text"]);
        vim.see("", "three");
        vim.see("jcwzwei\x1b", "zwei");
        vim.terminal.resize(30, 100);
        vim.see("Gofour\x1b", "four");
        vim.ends(":wq\r", 0);
        session.sh("cat /tmp/text").is(0, "one\nzwei\nthree\nfour\n");
    });
}

#[test]
fn postgresql_serves_a_client_in_another_command() {
    let Some(bin) = std::fs::read_dir("/usr/lib/postgresql").ok().and_then(|mut all| Some(all.next()?.ok()?.path()))
    else {
        return skip("PostgreSQL is not installed");
    };
    let bin = bin.join("bin");
    let bin = bin.to_str().unwrap();
    let server = format!(
        "{bin}/initdb -D /tmp/data -A trust >/tmp/log 2>&1 && exec {bin}/postgres -D /tmp/data -k /tmp -c shared_memory_type=mmap -c \
         listen_addresses=127.0.0.1"
    );
    for_each_session(&["--", "sh", "-c", &server], |session| {
        let psql = |query: &str| {
            session.exec(&[&session.name, &format!("{bin}/psql"), "-h", "127.0.0.1", "-d", "postgres", "-qAtc", query])
        };
        assert!(eventually(|| psql("select 1").code == Some(0)), "{:?}", psql("select 1"));
        psql("create table t as select generate_series(1,100000) x").is(0, "");
        psql("select sum(x) from t").is(0, "5000050000\n");
        let others: Vec<Child> = (0..4)
            .map(|_| {
                let words = [
                    &session.name,
                    &format!("{bin}/psql"),
                    "-h",
                    "127.0.0.1",
                    "-d",
                    "postgres",
                    "-qAtc",
                    "insert into t values (1)",
                ];
                session.background(&words)
            })
            .collect();
        others.into_iter().for_each(|one| outcome(one.wait_with_output().unwrap()).is(0, ""));
        psql("select count(*) from t").is(0, "100004\n");
        session.verb(&["stop"]).is(0, "");
        session.verb(&["wait"]).is(0, "0\n");
    });
}

/// The files are the caller's alone, and refuse the workload's user.
#[test]
fn a_command_opens_its_redirected_outputs_anew() {
    for_each_session(&[], |session| {
        let script = "umask 077; \"$@\" >out 2>err; cat out err; rm out err; \"$@\" >/dev/null 2>&1 && echo opened";
        let words = ["exec", &session.name, "sh", "-c", "echo out >>/dev/stdout; echo err >/dev/stderr"];
        let mut shell = session.caller.command("sh");
        shell.args(["-c", script, "sh"]).arg(&session.binary).args(words).current_dir(session.home.path());
        let plain = session.command(&words);
        shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outcome(shell.output().unwrap()).is(0, "out\nerr\nopened\n");
    });
}
