//! The place of a session, with real directories.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Base(PathBuf);

impl Base {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-place-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
    fn home(&self) -> Result<Home> {
        Home::below(&self.0, "stockade", true).map(Option::unwrap)
    }
    fn at(&self, name: &str) -> PathBuf {
        self.0.join("stockade").join(name)
    }
    fn refusal(&self) -> String {
        self.home().and_then(|home| home.claim("web")).unwrap_err().to_string()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_name_has_one_session_until_it_is_over() {
    let base = Base::new("one");
    assert!(Home::below(&base.0, "stockade", false).unwrap().is_none(), "reading makes nothing");
    let held = base.home().unwrap().claim("web").unwrap();
    assert!(held.place.is_alive().unwrap());
    assert!(base.refusal().contains("runs"));
    assert!(base.home().unwrap().hold("web").unwrap().is_none());
    held.write_record(br#"{"end":null}"#).unwrap();
    let _socket = held.listen().unwrap();
    drop(held); // as if it were killed
    assert!(!base.home().unwrap().place("web").unwrap().is_alive().unwrap());
    let held = base.home().unwrap().claim("web").unwrap();
    assert!(!base.at("web/socket").exists() && !base.at("web/record.json").exists(), "what was left is cleared");
    held.write_record(br#"{"end":{}}"#).unwrap();
    drop(held);
    assert!(base.refusal().contains("has ended and was not removed"));
    assert_eq!(base.home().unwrap().names().unwrap(), ["web"]);
    base.home().unwrap().hold("web").unwrap().unwrap().remove().unwrap();
    assert_eq!(base.home().unwrap().names().unwrap(), [""; 0]);
    assert!(base.home().unwrap().place("web").is_err() && base.home().unwrap().place("../web").is_err());
}

#[test]
fn of_many_at_once_exactly_one_gets_the_name() {
    let base = Base::new("many");
    drop(base.home().unwrap());
    for _ in 0..20 {
        let claims: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| base.home().unwrap().claim("web"))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut won: Vec<_> = claims.into_iter().filter_map(|claim| claim.ok()).collect();
        assert_eq!(won.len(), 1);
        won.remove(0).remove().unwrap();
    }
}

#[test]
fn what_others_planted_is_refused_by_name() {
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let base = Base::new("planted");
    let home = base.0.join("stockade");
    symlink("/tmp", &home).unwrap();
    assert!(base.refusal().contains("is not a directory"));
    std::fs::remove_file(&home).unwrap();
    std::fs::create_dir(&home).unwrap();
    mode(&home, 0o750);
    assert!(base.refusal().contains("has mode 750"));
    mode(&home, 0o700);
    symlink(&home, base.at("web")).unwrap();
    assert!(base.refusal().contains("is not a directory"));
    std::fs::remove_file(base.at("web")).unwrap();
    std::fs::create_dir(base.at("web")).unwrap();
    mode(&base.at("web"), 0o777);
    assert!(base.refusal().contains("has mode 777"));
    mode(&base.at("web"), 0o700);
    symlink("/dev/null", base.at("web/lock")).unwrap();
    assert!(base.refusal().contains("lock"));
    std::fs::remove_file(base.at("web/lock")).unwrap();
    nix::unistd::mkfifo(&base.at("web/lock"), Mode::S_IRWXU).unwrap();
    assert!(base.refusal().contains("is not a regular file"));
    std::fs::remove_file(base.at("web/lock")).unwrap();
    std::fs::write(base.at("web/socket"), "").unwrap();
    assert!(base.home().unwrap().place("web").unwrap().connect().unwrap_err().to_string().contains("not a socket"));
    if geteuid().is_root() {
        std::os::unix::fs::chown(base.at("web"), Some(1), None).unwrap();
        assert!(base.refusal().contains("belongs to another user"));
    }
    mode(&base.0, 0o777);
    assert!(base.refusal().contains("other users can rename"));
}

#[test]
fn the_output_is_kept_whole_or_not_at_all() {
    let base = Base::new("output");
    let held = base.home().unwrap().claim("web").unwrap();
    let streams: [[&[u8]; 2]; 2] = [[b"o", b"ut"], [b"err", b""]];
    held.write_output(streams).unwrap();
    let kept = held.place.output().unwrap().map(|file| crate::sys::file::content(&file).unwrap());
    assert_eq!(kept, [b"out", b"err"]);
    assert_eq!(held.write_output(streams), Err(Errno::EEXIST), "nothing is written over");
    assert!(!base.at("web/stdout").exists() && !base.at("web/stderr").exists());
    let elsewhere = base.0.join("elsewhere");
    symlink(&elsewhere, base.at("web/stderr")).unwrap();
    assert_eq!(held.write_output(streams), Err(Errno::EEXIST));
    assert!(!base.at("web/stdout").exists() && !elsewhere.exists(), "a link is not followed");
    held.write_output(streams).unwrap();
    std::fs::remove_file(base.at("web/stderr")).unwrap();
    symlink(base.at("web/stdout"), base.at("web/stderr")).unwrap();
    assert!(held.place.output().unwrap_err().to_string().contains("stderr: is not a regular file"));
    std::fs::remove_file(base.at("web/stderr")).unwrap();
    nix::unistd::mkfifo(&base.at("web/stderr"), Mode::S_IRWXU).unwrap();
    assert!(held.place.output().unwrap_err().to_string().contains("stderr: is not a regular file"));
    held.remove().unwrap();
    assert!(!base.at("web").exists());
}

#[test]
fn names_lead_nowhere_else() {
    for name in ["web", "a.b", "A_+-1", &"x".repeat(64)] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", ".", "..", "-x", "a/b", "a b", "a\n", "é", &"x".repeat(65)] {
        assert!(!is_name(name), "{name}");
    }
}
