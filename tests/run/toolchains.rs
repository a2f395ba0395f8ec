//! Programs outside /usr: the hint names all that is missing, and works when followed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{Caller, Outcome, Run, TempDir, for_each_caller, set_mode, skip_part, text};

fn script(dir: &TempDir, path: &str, content: &str) -> std::path::PathBuf {
    fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
    let file = dir.join(path);
    fs::write(&file, content).unwrap();
    set_mode(&file, 0o755);
    file
}

/// The options that a hint names.
fn options(hint: &str) -> Vec<String> {
    let words: Vec<&str> = hint.split([' ', ';']).collect();
    let pairs = words.windows(2).filter(|pair| pair[0] == "--ro");
    pairs.flat_map(|pair| [pair[0].to_owned(), pair[1].to_owned()]).collect()
}

fn hint(outcome: &Outcome) -> String {
    outcome.report()["error"]["hint"].as_str().unwrap_or_default().to_owned()
}

fn go(caller: Caller, options: &[String], cwd: &Path, command: &str) -> Outcome {
    Run::new(caller).opts(options.iter().cloned()).cwd(cwd).cmd([command]).go()
}

#[test]
fn a_hint_names_links_and_interpreters_at_once() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        // A tool that is a link to a version of it, whose first line names an interpreter of another tree, which is a script too.
        let one = script(&dir, "b/versions/2.1/bin/one", "#!/bin/sh\ncat $(dirname $0)/../lib/part; echo ran \"$1\"\n");
        script(&dir, "b/versions/2.1/lib/part", "part\n");
        symlink("2.1", dir.join("b/versions/current")).unwrap();
        let tool =
            script(&dir, "a/versions/1.0/bin/tool", &format!("#!{}/b/versions/current/bin/one\n", text(dir.path())));
        fs::create_dir(dir.join("bin")).unwrap();
        symlink(&tool, dir.join("bin/tool")).unwrap();
        assert!(one.exists());
        let command = text(&dir.join("bin/tool")).to_owned();
        let outcome = go(caller, &[], Path::new("/"), &command).expect(127);
        let hint = hint(&outcome);
        let options = options(&hint);
        for tree in ["bin", "a/versions/1.0", "b/versions/2.1"] {
            assert!(options.iter().any(|option| *option == text(&dir.join(tree))), "{tree}: {hint}");
        }
        let added = go(caller, &options, Path::new("/"), &command).expect(0);
        assert!(added.text().starts_with("part\nran /"), "{added}");
    });
}

#[test]
fn a_missing_interpreter_of_a_file_that_is_there_is_named() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        script(&dir, "tools/bin/interpreter", "#!/bin/sh\necho ran\n");
        let program = script(&dir, "work/program", &format!("#!{}/tools/bin/interpreter\n", text(dir.path())));
        let work = ["--ro".to_owned(), text(program.parent().unwrap()).to_owned()];
        let outcome = go(caller, &work, Path::new("/"), text(&program)).expect(126);
        let hint = hint(&outcome);
        assert!(hint.contains(&format!("--ro {}", text(&dir.join("tools/bin")))), "{hint}");
        go(caller, &[&work[..], &options(&hint)].concat(), Path::new("/"), text(&program)).expect(0);
        // One that the host lacks as well.
        script(&dir, "work/program", "#!/nowhere/at/all\n");
        let outcome = go(caller, &work, Path::new("/"), text(&program)).expect(126);
        assert!(outcome.stderr.contains("the host has no /nowhere/at/all"), "{outcome}");
    });
}

#[test]
fn a_relative_program_is_named_by_its_path_inside() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        script(&dir, "prog", "#!/bin/sh\necho ran\n");
        let there = ["--ro".to_owned(), text(dir.path()).to_owned()];
        let outcome = go(caller, &there, dir.path(), "./prog").expect(127);
        let said = hint(&outcome);
        assert!(said.contains(text(&dir.join("prog"))) && said.contains("-w ") && !said.contains("--ro"), "{said}");
        let directory = text(dir.path()).to_owned();
        go(caller, &[&there[..], &["-w".to_owned(), directory]].concat(), dir.path(), "./prog").expect(0);
    });
}

/// The environment of Python's venv: a link out of the workspace.
#[test]
fn the_target_of_a_link_in_a_workspace_is_named() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let base = script(&dir, "base/versions/3/bin/python", "#!/bin/sh\necho ran\n");
        fs::create_dir_all(dir.join("work/.venv/bin")).unwrap();
        fs::write(dir.join("work/.venv/pyvenv.cfg"), "").unwrap();
        symlink(&base, dir.join("work/.venv/bin/python")).unwrap();
        let work = ["-v".to_owned(), format!("{}:/workspace:ro", text(&dir.join("work")))];
        let outcome = go(caller, &work, Path::new("/"), "/workspace/.venv/bin/python").expect(127);
        let hint = hint(&outcome);
        assert_eq!(options(&hint), ["--ro".to_owned(), text(&dir.join("base/versions/3")).to_owned()], "{hint}");
        go(caller, &[&work[..], &options(&hint)].concat(), Path::new("/"), "/workspace/.venv/bin/python").expect(0);
    });
}

/// A home with a version manager's layout. The programs are scripts.
fn home(caller: Caller) -> TempDir {
    let home = TempDir::new(caller);
    let tool = "#!/bin/sh\necho $(basename $0) in $(cat $(dirname $0)/../part)\n";
    for (tree, programs) in [
        (".pyenv/versions/3.12.1", &["python3", "python"][..]),
        (".nvm/versions/node/v20.1.0", &["node"]),
        (".rustup/toolchains/stable-x86_64-unknown-linux-gnu", &["cargo", "rustc"]),
        (".asdf/installs/java/openjdk-21", &["java"]),
        ("sdk/go1.22", &["go"]),
    ] {
        for program in programs {
            script(&home, &format!("{tree}/bin/{program}"), tool);
        }
        home.file(&format!("{tree}/part"), tree);
    }
    for (path, content) in [
        (".pyenv/version", "3.12.1\n"),
        (".tool-versions", "nodejs 1\njava openjdk-21\n"),
        (".secret", "s"),
        (".cargo/credentials.toml", "s"),
    ] {
        fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
        home.file(path, content);
    }
    home.file(".rustup/settings.toml", "default_toolchain = \"stable\"\n");
    let shim = "#!/bin/sh\necho shim\n";
    for path in
        [".pyenv/shims/python3", ".pyenv/shims/python", ".asdf/shims/java", ".cargo/bin/rustup", ".cargo/bin/cargo"]
    {
        script(&home, path, shim);
    }
    symlink("rustup", home.join(".cargo/bin/rustc")).unwrap();
    home
}

#[test]
fn a_toolchain_is_what_the_version_manager_chooses_and_nothing_else_of_the_home() {
    for_each_caller(|caller| {
        let home = home(caller);
        let place = text(home.path());
        let directories =
            [".pyenv/shims", ".nvm/versions/node/v20.1.0/bin", ".asdf/shims", ".cargo/bin", "sdk/go1.22/bin"];
        let path: Vec<String> = directories.iter().map(|directory| format!("{place}/{directory}")).collect();
        let path = format!("{}:/usr/bin:/bin", path.join(":"));
        let run = |options: &[&str], script: &str| {
            let run = Run::new(caller).env("HOME", place).env("PATH", &path).opts(options.iter().copied());
            run.cmd(["/bin/sh", "-c", script, "sh", place]).go()
        };
        let all = "for p in python3 node cargo rustc java go; do $p; done";
        let outcome = run(&["--toolchain", "auto"], all).expect(0);
        let expected = "python3 in .pyenv/versions/3.12.1\nnode in .nvm/versions/node/v20.1.0\n\
                        cargo in .rustup/toolchains/stable-x86_64-unknown-linux-gnu\n\
                        rustc in .rustup/toolchains/stable-x86_64-unknown-linux-gnu\n\
                        java in .asdf/installs/java/openjdk-21\ngo in sdk/go1.22\n";
        assert_eq!(outcome.text(), expected, "{outcome}");
        let listed = run(&["--toolchain", "auto"], "find $1 -name '*secret*' -o -name '*credentials*' -o -name shims; touch $1/.nvm/versions/node/v20.1.0/x 2>/dev/null; true").text();
        assert_eq!(listed, "", "only the trees are shown");
        let one = run(&["--toolchain", "go"], "go; ls -A $1").expect(0);
        assert_eq!(one.text(), "go in sdk/go1.22\nsdk\n", "{one}");
        let policy = home.file("policy.toml", "version = 1\ntoolchains = ['java']\n");
        let by_policy = run(&["-p", text(&policy)], "java").expect(0);
        assert_eq!(by_policy.text(), "java in .asdf/installs/java/openjdk-21\n", "{by_policy}");
        // The hint is not the proxy's directory, which would not do.
        if fs::metadata("/usr/bin/cargo").is_ok() {
            return skip_part("the hint for cargo", "it is in /usr too");
        }
        let cargo = |options: &[&str]| {
            Run::new(caller).env("HOME", place).env("PATH", &path).opts(options.iter().copied()).cmd(["cargo"]).go()
        };
        let hint = hint(&cargo(&[]));
        assert!(hint.contains("--toolchain rust would add it"), "{hint}");
        assert!(cargo(&["--toolchain", "rust"]).expect(0).text().starts_with("cargo in .rustup"));
    });
}

#[test]
fn a_toolchain_that_is_not_there_is_an_error() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller); // the tests need setpriv, and nothing else is on PATH
        symlink("/usr/bin/setpriv", dir.join("setpriv")).unwrap();
        let refused =
            Run::new(caller).env("PATH", text(dir.path())).opts(["--toolchain", "go"]).cmd(["true"]).go().expect(125);
        assert!(refused.stderr.contains("go") && refused.stderr.contains("is not on PATH"), "{refused}");
        Run::new(caller).env("PATH", text(dir.path())).opts(["--toolchain", "auto"]).cmd(["true"]).go().expect(0);
        let unknown = Run::new(caller).opts(["--toolchain", "perl"]).cmd(["true"]).go().expect(125);
        assert!(unknown.stderr.contains("python, node, rust, java, go or auto"), "{unknown}");
    });
}
