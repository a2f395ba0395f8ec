//! `features`: prints the features of this runtime, for engines.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    ApparmorBuilder, CgroupBuilder, Features, FeaturesBuilder, IDMapBuilder, IntelRdtBuilder, LinuxFeatureBuilder,
    LinuxNamespaceType, LinuxSeccompAction as Action, LinuxSeccompOperator as Operator, MemoryPolicyBuilder,
    MountExtensionsBuilder, NetDevicesBuilder, SeccompBuilder, SelinuxBuilder,
};

use super::{Runtime, config, print};
use crate::error::{Error, Result, Step};
use crate::plan::Capability;
use crate::plan::container::{NamespaceKind, OCI_VERSION};
use stockade_seccomp::{Arch, Flags};

/// Prints the features as JSON.
pub fn features(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(0)?;
    let features = known().map_err(|error| Error::new(Step::Config, "features", error.to_string()))?;
    let text = serde_json::to_string_pretty(&features).unwrap_or_default();
    print(&format!("{text}\n")).map(|()| 0)
}

fn known() -> std::result::Result<Features, OciSpecError> {
    let hooks = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
    let actions = [
        Action::ScmpActAllow,
        Action::ScmpActErrno,
        Action::ScmpActKill,
        Action::ScmpActKillProcess,
        Action::ScmpActKillThread,
        Action::ScmpActLog,
        Action::ScmpActNotify,
        Action::ScmpActTrace,
        Action::ScmpActTrap,
    ];
    let operators = [
        Operator::ScmpCmpEq,
        Operator::ScmpCmpGe,
        Operator::ScmpCmpGt,
        Operator::ScmpCmpLe,
        Operator::ScmpCmpLt,
        Operator::ScmpCmpMaskedEq,
        Operator::ScmpCmpNe,
    ];
    let seccomp = SeccompBuilder::default()
        .enabled(true)
        .actions(actions)
        .operators(names(&operators))
        .archs(Arch::NATIVE.oci_name().parse().into_iter().collect::<Vec<_>>())
        .known_flags(names(&Flags::NAMES))
        .supported_flags(names(&Flags::NAMES));
    let namespaces = NamespaceKind::ALL.iter().filter_map(|kind| LinuxNamespaceType::try_from(kind.name()).ok());
    let cgroup = CgroupBuilder::default().v1(true).v2(true).systemd(true).systemd_user(true).rdma(true);
    let memory = MemoryPolicyBuilder::default().modes(names(&config::MODES)).flags(names(&config::MODE_FLAGS));
    let idmap = IDMapBuilder::default().enabled(true).build()?;
    let linux = LinuxFeatureBuilder::default()
        .namespaces(namespaces.collect::<Vec<_>>())
        .capabilities(Capability::all().iter().map(ToString::to_string).collect::<Vec<_>>())
        .cgroup(cgroup.build()?)
        .seccomp(seccomp.build()?)
        .apparmor(ApparmorBuilder::default().enabled(true).build()?)
        .selinux(SelinuxBuilder::default().enabled(true).build()?)
        .intel_rdt(IntelRdtBuilder::default().enabled(true).schemata(true).monitoring(true).build()?)
        .memory_policy(memory.build()?)
        .mount_extensions(MountExtensionsBuilder::default().idmap(idmap).build()?)
        .net_devices(NetDevicesBuilder::default().enabled(true).build()?);
    FeaturesBuilder::default()
        .oci_version_min("1.0.0")
        .oci_version_max(OCI_VERSION)
        .hooks(names(&hooks))
        .mount_options(config::mount_options())
        .linux(linux.build()?)
        .annotations([("org.stockade.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())])
        .potentially_unsafe_config_annotations(names(&config::annotations::HONOURED))
        .build()
}

fn names(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
