//! The structure of the source: imports point downward and form no circle, layers do not import each other, and `unsafe`
//! occurs only in `sys`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rooms (top-level modules), lowest storey first. A room imports from itself and from lower storeys only.
const STOREYS: [&[&str]; 9] = [
    &["error", "sys"],
    &["failure", "file", "plan"],
    &["args", "report"],
    &["rootfs", "confine", "cgroup", "egress", "audit"],
    &["launch"],
    &["run", "container"],
    &["policy", "oci", "doctor", "session"],
    &["cli", "main", "bin"],
    &["fuzzing"],
];

/// The room that holds the layers.
const LAYERS: &str = "confine";

fn storey(room: &str) -> Option<usize> {
    STOREYS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn imports_point_downward_only() {
    let files = sources();
    let rooms: Vec<_> = files.iter().map(|file| file.room().to_owned()).collect();
    for room in rooms.iter().filter(|room| *room != "lib") {
        assert!(storey(room).is_some(), "add src/{room} to STOREYS in tests/tools/architecture.rs");
    }
    let wrong: Vec<_> = files.iter().flat_map(upward_edges).collect();
    assert!(wrong.is_empty(), "these imports point upward or across:\n{}", wrong.join("\n"));
}

/// A file imports another if it names a path in it. A module and the modules below it may import each other: a parent
/// module re-exports, and its children use what it defines.
#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles = circles(&sources());
    assert!(circles.is_empty(), "these files import each other in a circle: {circles:#?}");
}

#[test]
fn layers_do_not_import_each_other() {
    let files = sources();
    let names: Vec<_> = files.iter().filter_map(Source::layer).collect();
    assert!(names.contains(&"caps"), "the layers were not found: {names:?}");
    let wrong: Vec<_> = files.iter().flat_map(|file| cross_edges(file, &names)).collect();
    assert!(wrong.is_empty(), "these layers import each other:\n{}", wrong.join("\n"));
}

#[test]
fn only_sys_has_unsafe_code() {
    let files = sources();
    let has_unsafe = |file: &&Source| words(&file.code).any(|word| word == "unsafe" || word == "unsafe_code");
    let (floor, above): (Vec<_>, Vec<_>) = files.iter().filter(has_unsafe).partition(|file| file.room() == "sys");
    assert!(!floor.is_empty(), "the search finds nothing");
    let above: Vec<_> = above.iter().map(|file| file.path.display().to_string()).collect();
    assert!(above.is_empty(), "unsafe code outside of sys: {above:?}");
}

/// The other crates of the workspace only turn text into data and programs.
#[test]
fn the_other_crates_make_no_system_calls() {
    for name in ["json", "seccomp"] {
        let files = sources_below(&format!("{name}/src"));
        let lib = files.iter().find(|file| file.room() == "lib").unwrap();
        assert!(lib.code.contains("#![forbid(unsafe_code)]"), "{name}");
        let wrong: Vec<_> = files.iter().flat_map(host_edges).collect();
        assert!(wrong.is_empty(), "{name} makes system calls:\n{}", wrong.join("\n"));
    }
}

#[test]
fn the_checks_find_violations() {
    let file = |path: &str, code: &str| Source { path: path.into(), code: without_comments(code) };
    let edges = |path: &str, code: &str| upward_edges(&file(path, code)).len();
    assert_eq!(edges("plan.rs", "use crate::run::run;"), 1);
    assert_eq!(edges("plan.rs", "use crate::{error::Error, run::{run, stop}, confine};"), 3);
    assert_eq!(edges("confine/seccomp/mod.rs", "fn f() { crate::policy::load() }"), 1);
    assert_eq!(edges("confine/seccomp/mod.rs", "use super::super::cli;"), 1);
    assert_eq!(edges("policy/mod.rs", "use crate::oci::config;"), 1);
    assert_eq!(edges("main.rs", "use stockade::cli; // see [`crate::cli`]"), 0);
    assert_eq!(edges("plan.rs", "/// See [`crate::run`].\nuse crate::error::Error; /* crate::cli */"), 0);
    assert_eq!(edges("run/prepare.rs", "use super::child; use crate::confine::caps;"), 0);
    let names = ["caps", "seccomp", "user"];
    let across = |path: &str, code: &str| cross_edges(&file(path, code), &names).len();
    assert_eq!(across("confine/caps.rs", "use super::user::Users;"), 1);
    assert_eq!(across("confine/seccomp/listen.rs", "use crate::confine::{seccomp, user::Users};"), 1);
    assert_eq!(across("confine/seccomp/listen.rs", "use super::super::caps;"), 1);
    assert_eq!(across("confine/seccomp/listen.rs", "use super::rules; use crate::confine::seccomp::install;"), 0);
    let of = |files: &[(&str, &str)]| circles(&files.iter().map(|(path, code)| file(path, code)).collect::<Vec<_>>());
    let apart = [("a.rs", "use crate::b::c::X;"), ("b/c.rs", "use super::d::Y;"), ("b/d.rs", "use super::e;")];
    assert_eq!(of(&apart), [[""; 0]; 0]);
    let closed = [&apart[..], &[("b/e/mod.rs", "fn f() { crate::a::g() }"), ("f.rs", "use crate::a;")]].concat();
    assert_eq!(of(&closed), [["a", "b::c", "b::d", "b::e"]]);
    let family = [("a/mod.rs", "use self::b::X; use crate::a::b;"), ("a/b.rs", "use super::Y; use crate::a::Z;")];
    assert_eq!(of(&family), [[""; 0]; 0]);
    let host = |code: &str| host_edges(&file("lib.rs", code)).len();
    assert_eq!(host("use std::fs::File; fn f() { std::process::exit(libc::EPERM) }"), 3);
    assert_eq!(host("use std::fmt::Write; // std::fs"), 0);
    assert_eq!(
        words(&without_comments("// unsafe\nlet s = \"unsafe\"; let c = '\"'; /* unsafe */ x"))
            .filter(|w| *w == "unsafe")
            .count(),
        0
    );
    assert_eq!(words(&without_comments("let c = '\"'; unsafe { f() }")).filter(|w| *w == "unsafe").count(), 1);
}

struct Source {
    /// Below `src`.
    path: PathBuf,
    /// Without comments and literals.
    code: String,
}

impl Source {
    /// The module path: `confine/seccomp/listen.rs` is `[confine, seccomp, listen]`, `confine/mod.rs` is `[confine]`.
    fn module(&self) -> Vec<&str> {
        let names = self.path.with_extension("");
        let mut names: Vec<_> = names.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        names.retain(|name| name != "mod");
        names.iter().map(|name| leak(name)).collect()
    }

    fn room(&self) -> &str {
        self.module()[0]
    }

    fn layer(&self) -> Option<&str> {
        let module = self.module();
        (module[0] == LAYERS).then(|| module.get(1).copied()).flatten()
    }
}

/// Gives a text the lifetime of the test program.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn sources() -> Vec<Source> {
    sources_below("src")
}

fn sources_below(directory: &str) -> Vec<Source> {
    fn walk(path: &Path, top: &Path, found: &mut Vec<Source>) {
        for entry in std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()) {
            if entry.is_dir() {
                walk(&entry, top, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let code = without_comments(&std::fs::read_to_string(&entry).unwrap());
                found.push(Source { path: entry.strip_prefix(top).unwrap().to_owned(), code });
            }
        }
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut found = Vec::new();
    walk(&top, &top, &mut found);
    assert!(found.len() > 10 || directory != "src", "the sources were not found");
    found
}

/// Modules of the standard library that make system calls, and crates for system calls, that a file names.
fn host_edges(file: &Source) -> Vec<String> {
    const HOST: [&str; 7] = ["env", "fs", "io", "net", "os", "process", "thread"];
    let tokens = tokens(&file.code);
    let std =
        tokens.windows(3).filter(|three| three[..2] == ["std", "::"] && HOST.contains(&three[2])).map(|three| three[2]);
    let crates = tokens.iter().copied().filter(|token| ["libc", "nix"].contains(token));
    std.chain(crates).map(|name| format!("{} names {name}", file.path.display())).collect()
}

fn upward_edges(file: &Source) -> Vec<String> {
    let own = file.room();
    if own == "lib" {
        return Vec::new(); // it names every room
    }
    let level = storey(own);
    let wrong = |target: &str| target != own && storey(target).is_some() && storey(target) >= level;
    let targets = references(file).into_iter().filter_map(|path| path.first().copied().filter(|target| wrong(target)));
    targets.map(|target| format!("{} imports {target}", file.path.display())).collect()
}

fn cross_edges(file: &Source, layers: &[&str]) -> Vec<String> {
    let Some(own) = file.layer() else { return Vec::new() };
    let of_layers = references(file).into_iter().filter(|path| path.len() > 1 && path[0] == LAYERS);
    let others = of_layers.filter(|path| layers.contains(&path[1]) && path[1] != own);
    others.map(|path| format!("{} imports the layer {}", file.path.display(), path[1])).collect()
}

/// Groups of files of which each imports every other, directly or through files of the group. By module, sorted.
fn circles(files: &[Source]) -> Vec<Vec<String>> {
    let names: Vec<Vec<&str>> = files.iter().map(Source::module).collect();
    let target =
        |path: &[&str]| (1..=path.len()).rev().find_map(|end| names.iter().position(|name| *name == path[..end]));
    let imports = |from: usize| {
        let found = references(&files[from]).into_iter().filter_map(|path| target(&path)).collect::<BTreeSet<_>>();
        let family = |to: usize| names[from].starts_with(&names[to]) || names[to].starts_with(&names[from]);
        found.into_iter().filter(|to| !family(*to)).collect::<Vec<_>>()
    };
    let imports: Vec<_> = (0..files.len()).map(imports).collect();
    let reached = |from: usize| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(imports[file].iter().copied().filter(|to| reached.insert(*to)));
        }
        reached
    };
    let reached: Vec<_> = (0..files.len()).map(reached).collect();
    let with = |from: usize| {
        let both = |to: &usize| reached[from].contains(to) && reached[*to].contains(&from);
        (0..files.len()).filter(both).map(|file| names[file].join("::")).collect::<BTreeSet<_>>()
    };
    let groups: BTreeSet<_> = (0..files.len()).map(with).filter(|group| group.len() > 1).collect();
    groups.into_iter().map(|group| group.into_iter().collect()).collect()
}

/// Every path that begins with `crate` or `super`, resolved to a path from the crate's root, groups taken apart.
fn references(file: &Source) -> Vec<Vec<&str>> {
    let module = file.module();
    let tokens: Vec<&str> = tokens(&file.code);
    let mut found = Vec::new();
    for (at, &token) in tokens.iter().enumerate() {
        let continues = at >= 2 && tokens[at - 1] == "::";
        let base = match token {
            "crate" if !continues => Vec::new(),
            "super" if !continues => module[..module.len() - 1].to_vec(),
            _ => continue,
        };
        expand(&tokens[at + 1..], base, &mut found);
    }
    found
}

/// Follows `::name::{a, b::c}` from the front of the tokens; returns how many it took.
fn expand<'a>(tokens: &[&'a str], mut path: Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) -> usize {
    let mut at = 0;
    while tokens.get(at) == Some(&"::") {
        match tokens.get(at + 1) {
            Some(&"{") => {
                at += 2;
                while let Some(&token) = tokens.get(at).filter(|token| **token != "}") {
                    at += 1;
                    if token != "," {
                        let inner = path.iter().copied().chain([token]).collect();
                        at += expand(&tokens[at..], inner, found);
                    }
                }
                return at + 1;
            }
            Some(&"super") => {
                path.pop();
            }
            Some(name) => path.push(name),
            None => break,
        }
        at += 2;
    }
    found.push(path);
    at
}

fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if rest.starts_with("::") => 2,
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    tokens(code).into_iter()
}

/// The code with comments and literals blanked out.
fn without_comments(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if rest.starts_with("r#\"") => rest[3..].find("\"#").map_or(rest.len(), |end| end + 5),
            '"' => string_length(rest),
            '\'' => char_length(rest),
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        out.push(' ');
        rest = &rest[length..];
    }
    out
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Of a character literal; a lifetime's is its quote alone.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 3),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}
