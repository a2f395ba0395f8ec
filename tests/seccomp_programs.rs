//! A compiled program does what its profile means, for every call that could tell them apart.
use stockade::layers::seccomp::compare::difference;
use stockade::layers::seccomp::compiler::{names::Arch, oci};
use stockade::layers::seccomp::program::{Program, validate};

#[test]
fn smoke() {
    for f in ["/tmp/scc/x/usr/share/containers/seccomp.json", "/tmp/scc/docker.json"] {
        let bytes = std::fs::read(f).unwrap();
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let context = oci::Context { arch, kernel: (6, 1), capabilities: &[], strict: false };
            let t = std::time::Instant::now();
            let (profile, warnings) = oci::read(&bytes, &context).unwrap();
            let read = t.elapsed();
            let program = Program::compile(&profile).unwrap();
            eprintln!(
                "{f} {arch:?} {} instrs, read {read:?} total {:?}, {warnings:?}",
                program.instructions.len(),
                t.elapsed()
            );
            validate(&program.instructions).unwrap();
            let t = std::time::Instant::now();
            assert_eq!(difference(&profile, &program.instructions), None);
            eprintln!("compare {:?}", t.elapsed());
        }
    }
}
