//! `stockade cp`: what lands where, equal trees, and hostile ones.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

/// Prints type, mode, time, target and content of everything below the working directory.
pub(super) const LISTING: &str =
    "find . -mindepth 1 -printf '%P %y %m %T@ %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0r sha256sum";

pub(super) fn listing(directory: &Path) -> String {
    let listed = Command::new("sh").args(["-c", LISTING]).current_dir(directory).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

impl Session {
    pub(super) fn cp(&self, words: &[&str]) -> Outcome {
        self.ask(&[&["cp"], words].concat())
    }

    /// A path in this session.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.name)
    }

    fn as_caller(&self, script: &str) {
        let made = self.caller.command("sh").args(["-c", script]).current_dir(self.home.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
}

/// A tree with modes, times, links, odd names, an empty and a large file.
const TREE: &str = r#"umask 022; mkdir -p tree/sub/deep tree/empty tree/locked; cd tree
    echo hello >a; : >'new
line'; head -c 3000000 /dev/urandom >large; ln -s ../nowhere link; ln -s sub dirlink; echo x >sub/deep/x; chmod 640 a
    for n in $(seq 300); do echo $n >sub/$n; done; printf odd >"$(printf '\377')"; echo y >locked/y; chmod 555 locked; chmod 400 locked/y
    touch -hd '2001-02-03 04:05:06.789' a link sub/deep; chmod 1777 empty"#;

#[test]
fn trees_are_equal_both_ways_and_as_archives() {
    for_each_session(&[], |session| {
        session.as_caller(TREE);
        let home = session.home.path();
        let expected = listing(&home.join("tree"));
        session.cp(&["tree", &session.at("/tmp/new")]).is(0, "");
        let inside = session.sh(&format!("cd /tmp/new && {LISTING}"));
        assert_eq!(inside.out, expected);
        session.cp(&[&session.at("/tmp/new"), "back"]).is(0, "");
        assert_eq!(listing(&home.join("back")), expected);
        let archived = session.command(&["cp", &session.at("/tmp/new"), "-"]).output().unwrap();
        assert!(archived.status.success(), "{archived:?}");
        std::fs::write(home.join("new.tar"), &archived.stdout).unwrap();
        let names = Command::new("tar").arg("tf").arg(home.join("new.tar")).output().unwrap();
        assert!(String::from_utf8_lossy(&names.stdout).starts_with("new/\n"));
        session.sh("mkdir /tmp/unpacked").is(0, "");
        let mut unpack = session.command(&["cp", "-", &session.at("/tmp/unpacked")]);
        let unpacked = unpack.stdin(std::fs::File::open(home.join("new.tar")).unwrap()).output().unwrap();
        assert!(unpacked.status.success(), "{unpacked:?}");
        let [one, other] = ["new", "unpacked/new"].map(|path| session.sh(&format!("cd /tmp/{path} && {LISTING}")).out);
        assert_eq!(one, other);
        session.sh("chmod -R u+w /tmp/new /tmp/unpacked; rm -r /tmp/new /tmp/unpacked").is(0, "");
        session.as_caller("chmod -R u+w tree back");
    });
}

/// Hard links in and across directories, holes at the beginning, between and at the end, many pieces, and times of every kind.
const ODD_TREE: &str = r#"umask 022; mkdir -p odd/d; cd odd; echo one >a; ln a b; ln a d/c; echo two >d/x; ln d/x y
    truncate -s 5M holes; for at in 1 2 3 4; do printf x | dd of=holes bs=1 seek=${at}000000 conv=notrunc status=none; done
    truncate -s 3M empty; printf y | dd of=many bs=1 seek=8000000 status=none
    for at in $(seq 60); do printf z | dd of=many bs=1 seek=${at}00000 conv=notrunc status=none; done
    touch -d '2001-02-03 04:05:06.123456789' a; touch -d '1969-12-31 23:59:58.5 UTC' y; touch -d '2040-01-01 00:00:00.000000001' holes"#;

/// Which names are of one file, times, and how much space each file takes. Content takes no more than twice its space.
const ODD: &str = r#"find . -type f -printf '%n %T@ %s %p
' | sort; for f in holes empty many; do
        [ $(($(stat -c %b $f) * 512)) -lt $(($(stat -c %s $f) / 2)) ] && echo $f has holes; done
    [ a -ef b ] && [ a -ef d/c ] && [ d/x -ef y ] && echo linked; sha256sum holes empty many d/c y"#;

#[test]
fn hard_links_holes_and_times_are_kept_both_ways() {
    for_each_session(&["--scratch-size", "200M"], |session| {
        session.as_caller(ODD_TREE);
        let home = session.home.path();
        let of = |directory: &Path| {
            let seen = Command::new("sh").args(["-c", ODD]).current_dir(directory).output().unwrap();
            String::from_utf8_lossy(&seen.stdout).into_owned()
        };
        let expected = of(&home.join("odd"));
        assert!(expected.contains("many has holes\nlinked\n"), "{expected}");
        session.cp(&["odd", &session.at("/tmp/odd")]).is(0, "");
        let inside = |path: &str| session.sh(&format!("cd {path} && {ODD}")).out;
        assert_eq!(inside("/tmp/odd"), expected, "into the session");
        session.cp(&[&session.at("/tmp/odd"), "back"]).is(0, "");
        assert_eq!(of(&home.join("back")), expected, "out of it");
        // Through archives: ours, and one of tar.
        let archived = session.command(&["cp", &session.at("/tmp/odd"), "-"]).output().unwrap();
        assert!(archived.status.success() && archived.stdout.len() < 3_000_000, "{} bytes", archived.stdout.len());
        std::fs::write(home.join("ours.tar"), &archived.stdout).unwrap();
        session.as_caller("mkdir -p ours; tar xf ours.tar -C ours; tar cSf theirs.tar odd");
        assert_eq!(of(&home.join("ours/odd")), expected, "by tar out of our archive");
        for (archive, whole_seconds) in [("ours.tar", false), ("theirs.tar", true)] {
            session.sh("rm -rf /tmp/new; mkdir /tmp/new").is(0, "");
            let mut unpack = session.command(&["cp", "-", &session.at("/tmp/new")]);
            let file = std::fs::File::open(home.join(archive)).unwrap();
            let unpacked = outcome(unpack.stdin(file).output().unwrap());
            unpacked.is(0, "");
            let (seen, wanted) = (inside("/tmp/new/odd"), &expected);
            assert!(whole_seconds || seen == *wanted, "{archive}: {seen}, not {wanted}");
            assert!(seen.contains("many has holes\nlinked\n"), "{archive}: {seen}");
            assert_eq!(
                seen.lines().rev().take(5).collect::<Vec<_>>(),
                wanted.lines().rev().take(5).collect::<Vec<_>>()
            );
        }
    });
}

#[test]
fn what_lands_where_is_as_with_docker() {
    for_each_session(&[], |session| {
        session.as_caller("mkdir -p dir/in; echo f >f; echo g >dir/in/g; ln -s f link; mkdir here");
        let at = |path: &str| session.at(path);
        // A file: to a new name, over a file, into a directory.
        session.cp(&["f", &at("/tmp/x")]).is(0, "");
        session.cp(&["f", &at("/tmp/x")]).is(0, "");
        session.cp(&["f", &at("/tmp")]).is(0, "");
        session.cp(&["./f", &at("tmp/")]).is(0, "");
        session.sh("cat /tmp/x /tmp/f").is(0, "f\nf\n");
        assert_eq!(session.cp(&["f", &at("/tmp/none/")]).code, Some(125));
        assert_eq!(session.cp(&["f", &at("/tmp/none/x")]).code, Some(125));
        assert_eq!(session.cp(&["f", &at("/tmp/x/")]).code, Some(125));
        // A directory: as a new one, into one, its content.
        session.cp(&["dir", &at("/tmp/d")]).is(0, "");
        session.cp(&["dir", &at("/tmp/d")]).is(0, "");
        session.cp(&["dir/.", &at("/tmp/d")]).is(0, "");
        session.cp(&["dir/in/", &at("/tmp/e")]).is(0, "");
        session.sh("cd /tmp && find d e | sort").is(0, "d\nd/dir\nd/dir/in\nd/dir/in/g\nd/in\nd/in/g\ne\ne/g\n");
        assert_eq!(session.cp(&["dir", &at("/tmp/x")]).code, Some(125));
        assert_eq!(session.cp(&["dir", &at("/tmp/none/d")]).code, Some(125));
        // Links: themselves, or with -L what they point to.
        session.cp(&["link", &at("/tmp/l")]).is(0, "");
        session.cp(&["-L", "link", &at("/tmp/m")]).is(0, "");
        session.sh("readlink /tmp/l; test -L /tmp/m || cat /tmp/m").is(0, "f\nf\n");
        // The other way.
        session.cp(&[&at("/tmp/d"), "here"]).is(0, "");
        session.cp(&[&at("/tmp/d/."), "here"]).is(0, "");
        session.cp(&[&at("/tmp/d"), "there"]).is(0, "");
        session.cp(&[&at("/tmp/x"), "here/y"]).is(0, "");
        session.cp(&[&at("/tmp/x"), "."]).is(0, "");
        session.cp(&[&at("/tmp/l"), "l"]).is(0, "");
        session.cp(&["-L", &at("/tmp/l"), "m"]).is(0, "");
        let found = session
            .caller
            .command("sh")
            .args(["-c", "find here there x l m | sort"])
            .current_dir(session.home.path())
            .output()
            .unwrap();
        let expected = "here here/d here/d/dir here/d/dir/in here/d/dir/in/g here/d/in here/d/in/g here/dir here/dir/in here/dir/in/g \
                        here/in here/in/g here/y l m there there/dir there/dir/in there/dir/in/g there/in there/in/g x";
        assert_eq!(String::from_utf8_lossy(&found.stdout).split_whitespace().collect::<Vec<_>>().join(" "), expected);
        assert_eq!(session.cp(&[&at("/tmp/d"), "x"]).code, Some(125));
        assert_eq!(session.cp(&[&at("/tmp/none"), "n"]).code, Some(125));
        for words in [["f", "x"], ["-", "f"], [&at("/a"), &at("/b")]] {
            assert_eq!(session.cp(&words).code, Some(125), "{words:?}");
        }
    });
}

/// A destination on the host that a workload prepared, and a tree that it made.
#[test]
fn a_hostile_tree_stays_below_its_destination() {
    for_each_session(&[], |session| {
        session.as_caller("mkdir dst outside; echo kept >outside/file; ln -s ../outside dst/t; ln -s ../outside/file dst/f; mkfifo dst/p");
        let script = "umask 0; mkdir -p /tmp/t /tmp/s/t; echo evil >/tmp/t/file; echo evil >/tmp/f; echo evil >/tmp/p
            ln -s /etc /tmp/s/out; ln -s ../../outside /tmp/s/up; mkfifo /tmp/s/fifo; chmod 777 /tmp/s";
        session.sh(script).is(0, "");
        let kept = || {
            let found = std::fs::read_to_string(session.home.join("outside/file")).unwrap();
            assert_eq!(found, "kept\n");
            assert_eq!(std::fs::read_dir(session.home.join("outside")).unwrap().count(), 1);
        };
        // A link where a directory is to be: refused by its name. Links and a FIFO where files are to be: replaced.
        let refused = session.cp(&[&session.at("/tmp/t"), "dst"]);
        assert!(refused.code == Some(125) && refused.err.contains("t: "), "{refused:?}");
        kept();
        session.cp(&[&session.at("/tmp/f"), "dst"]).is(0, "");
        session.cp(&[&session.at("/tmp/f"), "dst/f"]).is(0, "");
        session.cp(&[&session.at("/tmp/p"), "dst"]).is(0, "");
        kept();
        let copied = session.cp(&[&session.at("/tmp/s"), "new"]);
        assert!(copied.code == Some(0) && copied.err.contains("fifo is a FIFO"), "{copied:?}");
        assert_eq!(std::fs::read_link(session.home.join("new/out")).unwrap(), Path::new("/etc"));
        kept();
        // A second copy through the links that the first one made.
        session.sh("rm /tmp/s/up /tmp/s/fifo; mkdir /tmp/s/up; echo evil >/tmp/s/up/file").is(0, "");
        assert_eq!(session.cp(&[&session.at("/tmp/s/."), "new"]).code, Some(125));
        kept();
        // An archive that leads out.
        let evil = session.home.join("evil.tar");
        let python = "import tarfile, io, sys\nwith tarfile.open(sys.argv[1], 'w') as tar:\n    tar.addfile(tarfile.TarInfo('../x'), io.BytesIO())";
        assert!(Command::new(PYTHON).args(["-I", "-c", python]).arg(&evil).status().unwrap().success());
        let unpacked = session
            .command(&["cp", "-", &session.at("/tmp")])
            .stdin(std::fs::File::open(&evil).unwrap())
            .output()
            .unwrap();
        assert!(outcome(unpacked).err.contains("leads out of the archive"));
    });
}

#[test]
fn no_set_user_id_bit_reaches_the_host() {
    for_each_session(&["--seccomp-allow", "setuid-bits"], |session| {
        session
            .sh("cp /bin/true /tmp/s && chmod 6755 /tmp/s && mkdir /tmp/d && chmod 3777 /tmp/d && stat -c %a /tmp/s")
            .is(0, "6755\n");
        session.cp(&[&session.at("/tmp/s"), "s"]).is(0, "");
        session.cp(&[&session.at("/tmp/d"), "d"]).is(0, "");
        for (name, mode) in [("s", 0o755), ("d", 0o1777)] {
            let found = std::fs::metadata(session.home.join(name)).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode, "{name}");
        }
    });
}

/// A workload that grows a file, swaps a directory for links and removes files while they are copied.
#[test]
fn a_tree_that_changes_all_the_time_is_copied_or_refused() {
    for_each_session(&[], |session| {
        let race = r#"
import os, threading
os.makedirs("/tmp/r/d")
for n in range(50):
    open(f"/tmp/r/d/{n}", "w").write("inside")
os.symlink("/proc/self/cwd/etc", "/tmp/r/l")
print("ready", flush=True)
grow = open("/tmp/r/grow", "w")
count = 0
while True:
    count += 1
    if grow.tell() < 8 << 20:
        grow.write("x" * 65536)
        grow.flush()
    os.rename("/tmp/r/d", "/tmp/r/e"); os.rename("/tmp/r/l", "/tmp/r/d"); os.rename("/tmp/r/d", "/tmp/r/l"); os.rename("/tmp/r/e", "/tmp/r/d")
    os.unlink(f"/tmp/r/d/{count % 50}")
    open(f"/tmp/r/d/{count % 50}", "w").write("inside")
"#;
        let mut racing = session.background(&[&session.name, PYTHON, "-I", "-c", race]);
        let mut ready = [0; 6];
        std::io::Read::read_exact(racing.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let clock = Clock::start();
        for number in 0..4 {
            let copied = session.cp(&[&session.at("/tmp/r"), &format!("r{number}")]);
            assert!(matches!(copied.code, Some(0 | 1 | 125)), "{copied:?}");
            let found = Command::new("grep")
                .args(["-rL", "-e", "^inside$", "-e", "^x*$", "-e", "^$"])
                .arg(session.home.join(&format!("r{number}")))
                .output()
                .unwrap();
            let others = String::from_utf8_lossy(&found.stdout).into_owned();
            let others = others.lines().filter(|path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0));
            assert_eq!(others.collect::<Vec<_>>(), [""; 0], "nothing of the host");
        }
        assert!(!clock.is_past(Duration::from_secs(120)));
        session.ask(&["kill", "-s", "KILL", "--command", "c1", &session.name]);
        racing.wait().unwrap();
    });
}

/// As many files as a checkout of Linux has, in directories of its depth. `STOCKADE_LINUX_TREE=1` makes 50,000 of them, otherwise 2,000.
#[test]
fn a_large_tree_is_copied_both_ways() {
    for_each_session(&["--scratch-size", "2G", "--scratch-inodes", "200000"], |session| {
        let files = if std::env::var_os("STOCKADE_LINUX_TREE").is_some() { 50_000 } else { 2_000 };
        let script = format!(
            "import os, random\nrandom.seed(7)\nfor n in range({files}):\n    d = f'big/{{n % 40}}/{{n // 40 % 10}}/{{n // 400 % 12}}'\n    \
             os.makedirs(d, exist_ok=True)\n    with open(f'{{d}}/file{{n}}.c', 'wb') as f:\n        f.write(random.randbytes(min(200000, int(random.expovariate(1 / 12000)))))"
        );
        let made = session.caller.command(PYTHON).args(["-I", "-c", &script]).current_dir(session.home.path()).status();
        assert!(made.unwrap().success());
        let hash = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum";
        let of = |path: &Path| Command::new("sh").args(["-c", hash]).current_dir(path).output().unwrap().stdout;
        let expected = of(&session.home.join("big"));
        let began = std::time::Instant::now();
        session.cp(&["big", &session.at("/tmp/big")]).is(0, "");
        let into = began.elapsed();
        let began = std::time::Instant::now();
        session.cp(&[&session.at("/tmp/big"), "back"]).is(0, "");
        eprintln!("{files} files: {into:.1?} into the session, {:.1?} out of it", began.elapsed());
        assert_eq!(session.sh(&format!("cd /tmp/big && {hash}")).out.as_bytes(), expected);
        assert_eq!(of(&session.home.join("back")), expected);
    });
}
