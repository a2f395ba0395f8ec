//! The Debian package: its files are complete, and work from where it installs them.

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{Caller, TempDir, has_program, is_root};

/// The output of a command, which must succeed.
fn said(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A package of the tested programs.
fn package(dir: &TempDir) -> Option<std::path::PathBuf> {
    for program in ["dpkg-deb", "cargo", "gzip"] {
        if Command::new(program).arg("--version").output().is_err() {
            common::skip(&format!("{program} is not installed"));
            return None;
        }
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_stockade")).parent().unwrap();
    let file = dir.join("stockade.deb");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/deb");
    said(Command::new(script).args(["--compression", "none", "--programs"]).arg(programs).arg(&file));
    Some(file)
}

#[test]
fn installed_files_work_in_place() {
    let dir = TempDir::new(Caller::Root);
    if !has_program("dpkg") {
        return;
    }
    let Some(file) = package(&dir) else { return };
    let root = dir.dir("root");
    said(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root));
    let version = said(Command::new(root.join("usr/bin/stockade")).arg("--version"));
    assert_eq!(version.trim(), concat!("stockade ", env!("CARGO_PKG_VERSION")));
    assert!(said(Command::new(root.join("usr/bin/stockade-oci")).arg("--version")).contains("spec"));
    let ran = said(Command::new(root.join("usr/bin/stockade")).args(["run", "--", "/bin/echo", "from the package"]));
    assert_eq!(ran, "from the package\n");

    // The installed profiles are the built-in ones.
    let share = root.join("usr/share/stockade/profiles");
    let ran = said(
        Command::new(root.join("usr/bin/stockade"))
            .args(["run", "-p"])
            .arg(share.join("strict.toml"))
            .arg("--seccomp")
            .arg(share.join("seccomp/docker.json"))
            .args(["--", "/bin/echo", "by its profiles"]),
    );
    assert_eq!(ran, "by its profiles\n");

    for page in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/man")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let section = name.rsplit('.').next().unwrap();
        let text =
            said(Command::new("gzip").arg("-dc").arg(root.join(format!("usr/share/man/man{section}/{name}.gz"))));
        for section in [".TH", "EXAMPLES"].into_iter().chain((section == "1").then_some("EXIT STATUS")) {
            assert!(text.contains(section), "{name} has no {section}");
        }
    }
    let bash = root.join("usr/share/bash-completion/completions/stockade");
    let offered = said(Command::new("bash").arg("-c").arg(format!(
        ". {}; COMP_WORDS=(stockade do); COMP_CWORD=1; _stockade stockade do stockade; echo ${{COMPREPLY[@]}}",
        bash.display()
    )));
    assert_eq!(offered.trim(), "doctor");
    for file in [
        "zsh/vendor-completions/_stockade",
        "fish/vendor_completions.d/stockade.fish",
        "doc/stockade/copyright",
        "doc/stockade/docs/startup.svg",
        "doc/stockade/examples/user-scope.sh",
        "stockade/apparmor/stockade",
    ] {
        assert!(root.join("usr/share").join(file).is_file(), "{file}");
    }
}

#[test]
fn dpkg_installs_the_package_and_takes_it_away_again() {
    if !is_root() {
        return common::skip("not root");
    }
    let dir = TempDir::new(Caller::Root);
    if !has_program("dpkg") {
        return;
    }
    let Some(file) = package(&dir) else { return };
    // Made again at another time, it is the same to the byte.
    let first = std::fs::read(&file).unwrap();
    let again = package(&dir).unwrap();
    assert!(std::fs::read(again).unwrap() == first, "two packages of one commit differ");
    let root = dir.dir("root");
    // As on Ubuntu, where AppArmor 4 restricts user namespaces.
    std::fs::create_dir_all(root.join("etc/apparmor.d/abi")).unwrap();
    dir.file("root/etc/apparmor.d/abi/4.0", "");
    for part in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
    }
    dir.file("root/var/lib/dpkg/status", "");
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(&root).arg("--force-not-root").args(["--force-script-chrootless", "--log=/dev/null"]);
        dpkg
    };
    said(dpkg().arg("--install").arg(&file));
    assert!(said(dpkg().args(["--status", "stockade"])).contains("Status: install ok installed"));
    assert!(said(Command::new(root.join("usr/bin/stockade")).arg("--version")).starts_with("stockade "));
    let profile = root.join("etc/apparmor.d/stockade");
    assert!(std::fs::read_to_string(&profile).unwrap().contains("userns,"));
    for unit in ["stockade-gc.service", "stockade-gc.timer"] {
        let text = std::fs::read_to_string(root.join("usr/lib/systemd/system").join(unit)).unwrap();
        assert!(
            text.lines()
                .filter_map(|line| line.strip_prefix("ExecStart="))
                .all(|line| { root.join(line.split(' ').next().unwrap().trim_start_matches('/')).exists() })
        );
    }
    said(dpkg().args(["--remove", "stockade"]));
    assert!(!root.join("usr/bin/stockade").exists());
    assert!(!profile.exists(), "nothing of the package stays");
}
