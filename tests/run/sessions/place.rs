//! Where a session is, and who may use it.

use super::*;
use std::os::fd::OwnedFd;

use crate::common::{is_root, set_mode, skip};

#[test]
fn of_many_sessions_of_one_name_one_is_made() {
    for_each_caller(|caller| {
        let session = Session::planned(caller);
        let children: Vec<Child> = (0..6)
            .map(|_| {
                let mut command = session.command(&["run", "-d", "--name", &session.name]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let outcomes: Vec<Outcome> =
            children.into_iter().map(|child| outcome(child.wait_with_output().unwrap())).collect();
        assert_eq!(outcomes.iter().filter(|one| one.code == Some(0)).count(), 1, "{outcomes:?}");
        let refused =
            outcomes.iter().filter(|one| one.code == Some(125) && one.err.contains("a session of this name runs"));
        assert_eq!(refused.count(), 5, "{outcomes:?}");
        session.sh("echo one").is(0, "one\n");
    });
}

#[test]
fn a_planted_place_is_refused_by_name() {
    let session = Session::planned(Caller::Unprivileged);
    let home = session.home.join("run/stockade");
    std::os::unix::fs::symlink("/tmp", &home).unwrap();
    let refused = session.make(&[]);
    assert!(refused.code == Some(125) && refused.err.contains("run/stockade: is not a directory"), "{refused:?}");
    std::fs::remove_file(&home).unwrap();
    if is_root() {
        std::fs::create_dir(&home).unwrap(); // of root
        set_mode(&home, 0o700);
        let refused = session.make(&[]);
        assert!(refused.code == Some(125) && refused.err.contains("belongs to another user"), "{refused:?}");
        std::fs::remove_dir(&home).unwrap();
    }
    session.home.dir("run/stockade");
    set_mode(&home, 0o755);
    let refused = session.make(&[]);
    assert!(refused.code == Some(125) && refused.err.contains("has mode 755"), "{refused:?}");
}

#[test]
fn no_sandbox_reaches_the_sessions() {
    for_each_session(&[], |session| {
        let home = session.place().parent().unwrap().to_owned();
        let bind = format!("{}:/mnt:ro", home.display());
        let refused = session.ask(&["run", "-d", "--name", &unique(), "-v", &bind]);
        assert!(refused.code == Some(125) && refused.err.contains("the directory of the sessions"), "{refused:?}");
        // A run of the same user may bind it. Its processes have the user's id, but another user namespace.
        let bind = format!("{}:/mnt", session.place().display());
        let script = "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ntry:\n s.connect('/mnt/socket')\n \
                      print(s.recv(1000) or 'closed')\nexcept OSError as error:\n print('closed')";
        let tried = session.ask(&["run", "-v", &bind, "--landlock", "off", "--", PYTHON, "-c", script]);
        tried.is(0, "closed\n");
        let outside = outcome(
            session
                .caller
                .command(PYTHON)
                .args(["-c", &script.replace("/mnt", session.place().to_str().unwrap())])
                .output()
                .unwrap(),
        );
        assert!(outside.out.contains("stockade/session/v1"), "the test itself: {outside:?}");
        session.sh("echo alive").is(0, "alive\n");
    });
}

#[test]
fn only_the_owner_and_root_may_connect() {
    if !is_root() {
        return skip("not root");
    }
    let session = Session::new(Caller::Root, &[]);
    // The directory keeps others away. Even if it did not, the socket would.
    let script = "import socket, os, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\nf = os.open(sys.argv[1], \
                  os.O_PATH)\nos.setuid(int(sys.argv[2]))\ntry:\n s.connect(f'/proc/self/fd/{f}')\n print(len(s.recv(1000)) > \
                  0)\nexcept OSError:\n print(False)";
    let socket = session.place().join("socket");
    set_mode(&socket, 0o777);
    for (user, admitted) in [("0", "True\n"), ("1", "False\n")] {
        let tried = Command::new(PYTHON).args(["-c", script]).arg(&socket).arg(user).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&tried.stdout), admitted, "{tried:?}");
    }
}

/// A directory without a socket, with a record that has no end, whose lock is held: between its last answer and its end.
fn in_its_last_steps(session: &Session) -> OwnedFd {
    let record = std::fs::read(session.place().join("record.json")).unwrap();
    session.verb(&["rm", "-f"]).is(0, "");
    let making = session.place().with_file_name(format!("{}~", session.name)); // no name of a session
    std::fs::create_dir(&making).unwrap();
    std::fs::write(making.join("record.json"), record).unwrap();
    let lock = std::fs::File::create(making.join("lock")).unwrap();
    let whole = libc::flock { l_type: libc::F_WRLCK as _, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&lock, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole)).unwrap();
    let (uid, gid) = session.caller.ids();
    for (path, mode) in [(making.clone(), 0o700), (making.join("record.json"), 0o600), (making.join("lock"), 0o600)] {
        set_mode(&path, mode);
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
    }
    std::fs::rename(&making, session.place()).unwrap();
    lock.into()
}

#[test]
fn a_session_that_ends_is_shown_as_ending_and_rm_waits_for_it() {
    for_each_session(&[], |session| {
        let lock = in_its_last_steps(session);
        assert_eq!(session.row().unwrap()["state"], "ending");
        let mut removal = session.command(&["rm", &session.name]).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(removal.try_wait().unwrap().is_none(), "it waits");
        drop(lock);
        outcome(removal.wait_with_output().unwrap()).is(0, "");
        assert!(!session.place().exists());
    });
    for_each_session(&["--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], |session| {
        let mut stop = session.command(&["stop", "-t", "1m", &session.name]).spawn().unwrap();
        assert!(eventually(|| session.row().unwrap()["state"] == "ending"));
        session.verb(&["rm"]).refuses("the session runs");
        session.verb(&["kill"]).is(0, "");
        stop.wait().unwrap();
    });
}
