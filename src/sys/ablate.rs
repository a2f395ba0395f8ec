//! Removes one protection, in a build made only to show what the other protections stop. Without the feature `ablate`, no
//! protection can be removed and none of this code is in the program.

/// A protection that can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[cfg_attr(not(feature = "ablate"), allow(dead_code))]
pub enum Layer {
    UserNamespace,
    NetworkNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    NamespaceLimits,
    /// The old root stays where `pivot_root(2)` puts it, one `..` above the new one.
    Root,
    ReadOnly,
    NoSuid,
    NoDevices,
    Masks,
    Capabilities,
    /// Together with the layers that depend on it in the kernel: the seccomp filters and Landlock.
    NoNewPrivileges,
    Seccomp,
    Guards,
    Landlock,
    /// The workload is the caller's root on the host.
    Identity,
    Keyring,
    Descriptors,
    Session,
    NotDumpable,
    Budget,
    ResourceLimits,
    ScratchLimit,
    /// Only containers.
    PidNamespace,
    /// Only containers: which device nodes may be used.
    DeviceRules,
}

/// Whether this protection is removed.
#[cfg(not(feature = "ablate"))]
pub const fn without(_: Layer) -> bool {
    false
}

/// These mount attributes, without the removed ones.
#[cfg(not(feature = "ablate"))]
pub const fn attributes(wanted: u64) -> u64 {
    wanted
}

#[cfg(feature = "ablate")]
pub use self::chosen::{attributes, without};

#[cfg(feature = "ablate")]
mod chosen {
    use std::sync::OnceLock;

    use super::Layer;

    const NAMES: [(&str, Layer); 26] = [
        ("user", Layer::UserNamespace),
        ("net", Layer::NetworkNamespace),
        ("ipc", Layer::IpcNamespace),
        ("uts", Layer::UtsNamespace),
        ("cgroupns", Layer::CgroupNamespace),
        ("nslimits", Layer::NamespaceLimits),
        ("root", Layer::Root),
        ("readonly", Layer::ReadOnly),
        ("nosuid", Layer::NoSuid),
        ("nodev", Layer::NoDevices),
        ("masks", Layer::Masks),
        ("caps", Layer::Capabilities),
        ("nnp", Layer::NoNewPrivileges),
        ("seccomp", Layer::Seccomp),
        ("guards", Layer::Guards),
        ("landlock", Layer::Landlock),
        ("ids", Layer::Identity),
        ("keyring", Layer::Keyring),
        ("fds", Layer::Descriptors),
        ("session", Layer::Session),
        ("dumpable", Layer::NotDumpable),
        ("budget", Layer::Budget),
        ("rlimits", Layer::ResourceLimits),
        ("scratch", Layer::ScratchLimit),
        ("pid", Layer::PidNamespace),
        ("devices", Layer::DeviceRules),
    ];

    static CHOSEN: OnceLock<u32> = OnceLock::new();

    /// Whether this protection is removed. The parent asks first, and the child inherits the answer.
    pub fn without(layer: Layer) -> bool {
        let mask = CHOSEN.get_or_init(|| {
            let text = std::env::var("STOCKADE_ABLATE").unwrap_or_default();
            text.split(',').filter(|word| !word.is_empty()).fold(0, |mask, word| {
                if stockade_egress::ablate::NAMES.iter().any(|(name, _)| *name == word) {
                    return mask;
                }
                let found = NAMES.iter().find(|(name, _)| *name == word);
                mask | 1 << found.unwrap_or_else(|| panic!("STOCKADE_ABLATE: there is no layer {word}")).1 as u32
            })
        });
        mask >> layer as u32 & 1 == 1
    }

    /// These mount attributes, without the removed ones.
    pub fn attributes(wanted: u64) -> u64 {
        let left_out = [
            (Layer::ReadOnly, libc::MOUNT_ATTR_RDONLY),
            (Layer::NoSuid, libc::MOUNT_ATTR_NOSUID),
            (Layer::NoDevices, libc::MOUNT_ATTR_NODEV),
        ];
        left_out.iter().filter(|(layer, _)| without(*layer)).fold(wanted, |left, (_, bit)| left & !bit)
    }
}
