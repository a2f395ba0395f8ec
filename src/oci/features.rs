//! `features`: what this runtime can do, as engines read it.

use serde_json::json;
use stockade_seccomp::Flags;

use super::{Runtime, config, print};
use crate::error::Result;
use crate::plan::Capability;
use crate::plan::container::{NamespaceKind, OCI_VERSION};

/// Prints it.
pub fn features(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(0)?;
    let (modes, flags) = config::memory_modes();
    let namespaces: Vec<&str> = NamespaceKind::ALL.iter().map(|kind| kind.name()).collect();
    let features = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": config::mount_options(),
        "linux": {
            "namespaces": namespaces,
            "capabilities": Capability::all(),
            "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true },
            "seccomp": {
                "enabled": true,
                "actions": ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
                    "SCMP_ACT_KILL_THREAD", "SCMP_ACT_LOG", "SCMP_ACT_NOTIFY", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP"],
                "operators": ["SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT",
                    "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE"],
                "archs": [stockade_seccomp::Arch::NATIVE.oci_name()],
                "knownFlags": Flags::NAMES,
                "supportedFlags": Flags::NAMES,
            },
            "apparmor": { "enabled": true },
            "selinux": { "enabled": true },
            "intelRdt": { "enabled": true, "schemata": true, "monitoring": true },
            "memoryPolicy": { "modes": modes, "flags": flags },
            "mountExtensions": { "idmap": { "enabled": true } },
            "netDevices": { "enabled": true },
        },
        "annotations": { "org.stockade.version": env!("CARGO_PKG_VERSION") },
        "potentiallyUnsafeConfigAnnotations": [],
    });
    let text = serde_json::to_string_pretty(&features).unwrap_or_default();
    print(&format!("{text}\n")).map(|()| 0)
}
