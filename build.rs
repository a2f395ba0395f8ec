//! Compiles the built-in seccomp profiles into tables of instructions, so that a start parses no JSON; and says how the
//! programs are to be laid out.
//!
//! The compiler is the crate's own: the same files, built a second time for this script.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "src/layers/seccomp/compiler/mod.rs"]
mod compiler;

use compiler::bpf::Instruction;
use compiler::names::Arch;
use compiler::oci::{Context, read, read_group};

/// The programs that are compiled: base profile, and whether it is for a run with a network. Those of the default are also
/// compiled with each group; more than one group is compiled at start.
const PROGRAMS: [(&str, bool); 4] = [("default", false), ("default", true), ("strict", false), ("docker", false)];
/// The guards that all of them contain, as `Guard::STANDING` says.
const GUARDS: [&str; 2] = ["core-limit", "init"];
const GROUPS: [&str; 7] = ["debug", "sysv", "aio", "splice", "nested", "setuid-bits", "nettools"];

fn main() {
    lay_out();
    println!("cargo::rerun-if-changed=profiles/seccomp");
    println!("cargo::rerun-if-changed=src/layers/seccomp/compiler");
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let arch = if target == "aarch64" { Arch::Aarch64 } else { Arch::X86_64 };
    // Docker's profile asks for a kernel of 4.8, which everything stockade runs on has, and for capabilities; a workload
    // that keeps some gets its program compiled at start.
    let context = Context { arch, kernel: (5, 0), capabilities: &[], strict: true };
    let mut text = String::from("[\n");
    for (name, network) in PROGRAMS {
        let groups: &[&str] = if name == "default" { &GROUPS } else { &[] };
        for group in std::iter::once("").chain(groups.iter().copied()) {
            let wrong = |error| -> ! { panic!("profiles/seccomp/{name}.json, {group}: {error}") };
            let (mut profile, _) = read(&json(name), &context).unwrap_or_else(|error| wrong(error));
            let parts = [if network { "inet" } else { "" }, group].into_iter().filter(|part| !part.is_empty());
            for part in parts.chain(GUARDS) {
                profile.prefer(read_group(&json(part), part, &context).unwrap_or_else(|error| wrong(error)));
            }
            let program = compiler::compile::compile(&profile).unwrap_or_else(|error| wrong(error));
            row(&mut text, (name, network, group), &program);
        }
    }
    text.push(']');
    write("seccomp.rs", &text);
    write("seccomp.sha256", &sha256_of_all());
}

/// Fewer pages to touch in a start, and fewer places to write an address to before it.
fn lay_out() {
    println!("cargo::rerun-if-changed=src/layout.ld");
    let layout = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("src/layout.ld");
    println!("cargo::rustc-link-arg-bins=-T{}", layout.display()); // not by -Wl, whose commas a path may have
    // A program without an interpreter relocates itself. An old musl cannot in this form, and the program would die of it: that
    // of Rust 1.95 can.
    let is_musl = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|name| name == "musl");
    if is_musl && rust_minor().is_some_and(|minor| minor >= 95) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The 95 of Rust 1.95.
fn rust_minor() -> Option<u32> {
    let said = std::process::Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?.stdout;
    String::from_utf8(said).ok()?.split('.').nth(1)?.parse().ok()
}

fn write(name: &str, text: &str) {
    let out = std::env::var_os("OUT_DIR").map(|dir| Path::new(&dir).join(name));
    let out = out.unwrap_or_else(|| panic!("OUT_DIR is not set"));
    std::fs::write(&out, text).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

/// Of every profile and group, in the order of their names: what a name means in this build.
fn sha256_of_all() -> String {
    let entries = std::fs::read_dir("profiles/seccomp").into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn json(name: &str) -> Vec<u8> {
    let path = Path::new("profiles/seccomp").join(name).with_extension("json");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn row(text: &mut String, (name, network, group): (&str, bool, &str), program: &[Instruction]) {
    let mut hash = Sha256::new();
    let _ = write!(text, "Compiled {{ name: {name:?}, network: {network}, group: {group:?}, instructions: &[");
    for one in program {
        hash.update(one.to_bytes());
        let _ = write!(text, "Instruction {{ code: {}, jt: {}, jf: {}, k: {} }}, ", one.code, one.jt, one.jf, one.k);
    }
    let _ = writeln!(text, "], sha256: {:?} }},", hex(&hash.finalize()));
}
