//! Explains why the kernel refuses namespaces and the operations in them, and suggests remedies.

use std::path::Path;

use nix::errno::Errno;

use super::kernel_text;
use crate::sys::mountinfo;
use crate::sys::status::Status;

/// The settings that can forbid a namespace, a mount in one, or a capability in one. `None`: this kernel lacks the setting.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    /// `user.max_user_namespaces` of this user namespace.
    max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a patch of Debian and others.
    unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, in Ubuntu since 23.10.
    apparmor_restrict: Option<u64>,
    /// The AppArmor profile of this process, unless it is unconfined.
    apparmor_profile: Option<String>,
    /// Whether SELinux enforces a policy.
    selinux: bool,
    /// Whether this process already has a system call filter.
    filtered: bool,
    /// Whether this process's `/` is not a mount point, so that it is in a chroot.
    chrooted: bool,
    /// The enclosing container engine, by its marker files.
    container: Option<&'static str>,
}

impl Blockers {
    /// Reads all settings.
    pub(super) fn read() -> Self {
        let number = |path: &str| kernel_text(path)?.parse().ok();
        Self {
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            apparmor_profile: apparmor_profile(),
            selinux: kernel_text("/sys/fs/selinux/enforce").as_deref() == Some("1"),
            filtered: status_field("Seccomp").as_deref() == Some("2"),
            chrooted: std::fs::read(mountinfo::OWN).is_ok_and(|text| is_chrooted(&text)),
            container: container(),
        }
    }

    /// The probable cause of this error, and the command that fixes it.
    pub(super) fn explain(&self, errno: Option<Errno>, privileged: bool) -> (String, Option<String>) {
        let (why, remedy): (String, Option<String>) = match errno {
            Some(Errno::ENOSPC | Errno::EUSERS) => self.used_up(),
            Some(Errno::EPERM | Errno::EACCES) => self.forbidden(privileged),
            Some(Errno::EAGAIN) => {
                let why = "a limit on processes is reached";
                (
                    why.into(),
                    Some("ulimit -u; cat /sys/fs/cgroup/$(sed -n s/^0:://p /proc/self/cgroup)/pids.max".into()),
                )
            }
            Some(Errno::ENOSYS) if self.filtered => {
                let why = "the system call filter of the enclosing sandbox or the kernel does not support this call";
                (why.into(), Some(self.unconfined()))
            }
            Some(Errno::ENOSYS) => ("this kernel does not support it".into(), Some("install a newer kernel".into())),
            Some(Errno::EINVAL | Errno::ENODEV) => {
                let why = "this kernel was built or booted without it";
                (why.into(), Some("install a kernel that supports it, such as the distribution's own".into()))
            }
            _ => (String::new(), None),
        };
        (why, remedy)
    }

    fn used_up(&self) -> (String, Option<String>) {
        let raise = "sysctl -w user.max_user_namespaces=15000  # as root, where the limit was set";
        match self.max_user_namespaces {
            Some(0) => ("user.max_user_namespaces is 0".into(), Some(raise.into())),
            Some(limit) => (
                format!(
                    "a limit on nested or existing namespaces is reached (user.max_user_namespaces is {limit} here)"
                ),
                Some(
                    "sysctl -a --pattern '^user.max_'  # here and in each enclosing container; raise the low limits"
                        .into(),
                ),
            ),
            None => ("a limit on namespaces is reached".into(), Some(raise.into())),
        }
    }

    fn forbidden(&self, privileged: bool) -> (String, Option<String>) {
        let set = |setting: &str| Some(format!("sysctl -w {setting}  # as root; keep it in /etc/sysctl.d"));
        if self.unprivileged_userns_clone == Some(0) && !privileged {
            let why = "kernel.unprivileged_userns_clone is 0";
            return (why.into(), set("kernel.unprivileged_userns_clone=1"));
        }
        if self.apparmor_restrict == Some(1) && !privileged {
            let why = "kernel.apparmor_restrict_unprivileged_userns is 1, and no AppArmor profile allows stockade to create user namespaces";
            let profile = own_apparmor_profile();
            return (why.into(), Some(profile));
        }
        let profile = self.apparmor_profile.as_ref().map(|name| format!("the AppArmor profile {name}"));
        let filter = self.filtered.then(|| "the system call filter of this process".to_owned());
        let suspects: Vec<_> = filter.into_iter().chain(profile).collect();
        if !suspects.is_empty() {
            let engine = self.container.map_or(String::new(), |engine| format!(" (by {engine})"));
            return (format!("{}{engine} may deny it", suspects.join(" or ")), Some(self.unconfined()));
        }
        if self.chrooted {
            let why = "this process is in a chroot, where the kernel forbids user namespaces";
            return (
                why.into(),
                Some("leave the chroot, or enter it with pivot_root: unshare -m, or systemd-nspawn".into()),
            );
        }
        if self.selinux {
            let why = "the SELinux policy may deny it";
            return (why.into(), Some("ausearch -m avc -ts recent  # as root; shows what was denied".into()));
        }
        if let Some(engine) = self.container {
            return (format!("the enclosing container ({engine}) may forbid it"), Some(self.unconfined()));
        }
        (String::new(), None)
    }

    fn unconfined(&self) -> String {
        match self.container {
            Some("podman") => {
                let options = ["seccomp=unconfined", "apparmor=unconfined", "unmask=ALL"];
                format!("podman run --security-opt {} …", options.join(" --security-opt "))
            }
            Some("kubernetes") => {
                "set seccompProfile and appArmorProfile of the securityContext to type: Unconfined, procMount: Unmasked"
                    .into()
            }
            Some("docker") => {
                let options = ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"];
                format!("docker run --security-opt {} …", options.join(" --security-opt "))
            }
            _ => "start stockade outside of the confinement of this process  # grep Seccomp /proc/self/status".into(),
        }
    }

    /// The command that gives the enclosing container an unmasked /proc.
    pub(super) fn unmasked(&self) -> String {
        match self.container {
            Some("podman") => "podman run --security-opt unmask=ALL …  # of the enclosing container".into(),
            Some("kubernetes") => "set securityContext.procMount: Unmasked in the enclosing pod".into(),
            Some(_) => "docker run --security-opt systempaths=unconfined …  # of the enclosing container".into(),
            None => "umount what is mounted below /proc  # findmnt -R /proc lists it".into(),
        }
    }
}

/// A profile that allows this very binary what Ubuntu forbids everyone by default.
fn own_apparmor_profile() -> String {
    let program = std::env::current_exe().map_or("/usr/bin/stockade".into(), |path| path.display().to_string());
    format!(
        "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile stockade {program} flags=(unconfined) {{ userns, }}\\n' \
         | sudo tee /etc/apparmor.d/stockade && sudo apparmor_parser -r /etc/apparmor.d/stockade"
    )
}

fn apparmor_profile() -> Option<String> {
    let enabled = kernel_text("/sys/module/apparmor/parameters/enabled")? == "Y";
    let name = kernel_text("/proc/self/attr/current").filter(|_| enabled)?;
    let name = name.trim_end_matches('\0');
    (!name.is_empty() && name != "unconfined").then(|| name.to_owned())
}

/// A field of `/proc/self/status`.
pub(super) fn status_field(name: &str) -> Option<String> {
    Status::own().ok()?.field(name).map(str::to_owned)
}

/// Whether `/` is not a mount point.
fn is_chrooted(text: &[u8]) -> bool {
    let mut mounts = mountinfo::parse(text).peekable();
    mounts.peek().is_some() && !mounts.any(|mount| mount.point() == Path::new("/"))
}

fn container() -> Option<&'static str> {
    let exists = |path: &str| std::path::Path::new(path).exists();
    if exists("/run/.containerenv") {
        return Some("podman");
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("kubernetes");
    }
    if exists("/.dockerenv") {
        return Some("docker");
    }
    std::env::var_os("container").map(|_| "as $container says")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(blockers: Blockers, errno: Errno) -> (String, String) {
        let (why, remedy) = blockers.explain(Some(errno), false);
        (why, remedy.unwrap_or_default())
    }

    #[test]
    fn each_ban_is_named_with_what_lifts_it() {
        let (why, remedy) = says(Blockers { max_user_namespaces: Some(0), ..Blockers::default() }, Errno::ENOSPC);
        assert!(why.contains("is 0") && remedy.starts_with("sysctl -w user.max_user_namespaces="), "{why} {remedy}");
        let debian = Blockers { unprivileged_userns_clone: Some(0), apparmor_restrict: Some(1), ..Blockers::default() };
        let (why, remedy) = says(debian, Errno::EPERM);
        assert!(why.contains("unprivileged_userns_clone") && remedy.contains("unprivileged_userns_clone=1"));
        let ubuntu = Blockers { apparmor_restrict: Some(1), filtered: true, ..Blockers::default() };
        let (why, remedy) = says(ubuntu, Errno::EACCES);
        assert!(why.contains("AppArmor") && remedy.contains("/etc/apparmor.d/stockade"), "{why} {remedy}");
        let docker = Blockers { filtered: true, container: Some("docker"), ..Blockers::default() };
        let (why, remedy) = says(docker, Errno::EPERM);
        assert!(why.contains("(by docker)") && remedy.contains("seccomp=unconfined"), "{why} {remedy}");
        assert_eq!(says(Blockers::default(), Errno::EPERM), (String::new(), String::new()), "nothing is made up");
    }

    #[test]
    fn bans_on_the_unprivileged_are_not_blamed_by_root() {
        let debian = Blockers { unprivileged_userns_clone: Some(0), apparmor_restrict: Some(1), ..Blockers::default() };
        assert_eq!(debian.explain(Some(Errno::EPERM), true), (String::new(), None));
    }

    #[test]
    fn a_chroot_has_no_mount_at_its_root() {
        assert!(is_chrooted(b"30 1 0:5 / /proc rw - proc proc rw\n"));
        assert!(!is_chrooted(b"1 0 8:1 / / rw - ext4 /dev/sda rw\n30 1 0:5 / /proc rw - proc proc rw\n"));
        assert!(!is_chrooted(b""), "unreadable says nothing");
    }
}
