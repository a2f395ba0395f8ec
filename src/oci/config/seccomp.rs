//! The system call filter: `linux.seccomp`, or what crun's annotations say instead.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use stockade_seccomp::oci::{UNKNOWN_CALL, read as read_profile};
use stockade_seccomp::{Arch, Context};

use super::document::{Read, wrong};
use crate::plan::{Seccomp, SeccompProfile, hex};

/// A compiled program in base64, which replaces the profile.
const PROGRAM: &str = "run.oci.seccomp_bpf_data";
/// A profile that names an unknown system call is refused, except with the value `0`.
const FAIL_UNKNOWN: &str = "run.oci.seccomp_fail_unknown_syscall";

/// The filter. Its text is checked when it is compiled.
pub fn read(profile: Option<String>, annotations: &BTreeMap<String, String>) -> Read<Option<Seccomp>> {
    if let Some(program) = annotations.get(PROGRAM) {
        return Ok(Some(planned(SeccompProfile::Encoded(program.clone()), program)));
    }
    let Some(text) = profile else { return Ok(None) };
    if annotations.get(FAIL_UNKNOWN).is_some_and(|value| value != "0") {
        let context = Context { arch: Arch::NATIVE, kernel: (0, 0), capabilities: &[], strict: false };
        let warnings = read_profile(text.as_bytes(), &context).map_or_else(|_| Vec::new(), |(_, warnings)| warnings);
        if let Some(unknown) = warnings.iter().find(|warning| warning.text.ends_with(UNKNOWN_CALL)) {
            return Err(wrong(
                &format!("linux.seccomp.{}", unknown.path),
                format!("{}, and {FAIL_UNKNOWN} is set", unknown.text),
            ));
        }
    }
    Ok(Some(planned(SeccompProfile::Inline(text.clone()), &text)))
}

fn planned(profile: SeccompProfile, text: &str) -> Seccomp {
    Seccomp { profile, sha256: hex(&Sha256::digest(text)), allow: Vec::new(), strict: false }
}
