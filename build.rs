//! Compiles the built-in seccomp profiles into tables of instructions, so that a start parses no JSON.

use std::fmt::Write as _;
use std::path::Path;

use stockade_seccomp::builtin::{self, Builtin, Group, Guard};
use stockade_seccomp::{Arch, Context, Error, Program};

/// The compiled programs: a base profile, and whether the run has a network. Those of the default profile are also compiled
/// with each group. A combination of groups is compiled at start. Every program contains the standing guards.
const PROGRAMS: [(Builtin, bool); 4] =
    [(Builtin::Default, false), (Builtin::Default, true), (Builtin::Strict, false), (Builtin::Docker, false)];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_relocations();
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let arch = if target == "aarch64" { Arch::Aarch64 } else { Arch::X86_64 };
    // Docker's profile depends on a kernel of 4.8, which every supported host has, and on capabilities. A workload that keeps
    // some gets a program that is compiled at start.
    let context = Context { arch, kernel: (5, 0), capabilities: &[], strict: true };
    let mut text = String::from("[\n");
    for (builtin, network) in PROGRAMS {
        let groups = if builtin == Builtin::Default { Group::ALL } else { &[] };
        for groups in std::iter::once(&[][..]).chain(groups.chunks(1)) {
            let program = compile(builtin, network, groups, &context);
            let program = program.unwrap_or_else(|error| panic!("{}, {groups:?}: {error}", builtin.name()));
            row(&mut text, builtin, network, groups, &program);
        }
    }
    text.push(']');
    write("seccomp.rs", &text);
    write("seccomp.sha256", &builtin::sha256_of_all());
}

fn compile(builtin: Builtin, network: bool, groups: &[Group], context: &Context) -> Result<Program, Error> {
    let mut profile = builtin.profile(network, groups, context)?;
    builtin::refuse(&mut profile, Guard::STANDING, context)?;
    Program::compile(&profile)
}

fn row(text: &mut String, builtin: Builtin, network: bool, groups: &[Group], program: &Program) {
    let (name, group) = (builtin.name(), groups.first().map_or("", |group| group.name()));
    let _ = write!(text, "Compiled {{ name: {name:?}, network: {network}, group: {group:?}, instructions: &[");
    for one in program.instructions.iter() {
        let _ = write!(text, "Instruction {{ code: {}, jt: {}, jf: {}, k: {} }}, ", one.code, one.jt, one.jf, one.k);
    }
    let _ = writeln!(text, "], sha256: {:?} }},", program.sha256);
}

/// Enables packed relocations. A program without an interpreter relocates itself, and touches fewer pages with this format. An
/// old musl cannot read the format, and the program would crash. The musl of Rust 1.95 can read it.
fn pack_relocations() {
    let is_musl = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|name| name == "musl");
    if is_musl && rust_minor().is_some_and(|minor| minor >= 95) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The minor version of rustc, for example 95 for 1.95.
fn rust_minor() -> Option<u32> {
    let said = std::process::Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?.stdout;
    String::from_utf8(said).ok()?.split('.').nth(1)?.parse().ok()
}

fn write(name: &str, text: &str) {
    let out = std::env::var_os("OUT_DIR").map(|dir| Path::new(&dir).join(name));
    let out = out.unwrap_or_else(|| panic!("OUT_DIR is not set"));
    std::fs::write(&out, text).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}
