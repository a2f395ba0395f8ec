//! Facilities of this host that tests depend on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use super::{Caller, TempDir};

/// Whether the running kernel is a User-Mode Linux guest.
pub fn is_uml() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("User Mode Linux"))
}

/// Whether strace can put faults into calls here. Reports a skip if not.
pub fn may_trace() -> bool {
    match (super::has_program("strace"), is_uml()) {
        (false, _) => super::skip("there is no strace"),
        (_, true) => super::skip("a User-Mode kernel traces its processes itself, and takes minutes for this"),
        (true, false) => return true,
    }
    false
}

/// The Landlock ABI, read by an independent program; 0 if it is missing, with the reason as reports give it.
pub fn landlock_abi() -> (u32, &'static str) {
    let ask = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
               print(libc.syscall(444, None, ctypes.c_size_t(0), 1), ctypes.get_errno())";
    let (status, answer) = super::python_outside(Caller::Root, ask);
    assert_eq!(status, 0, "{answer}");
    let (abi, errno) = answer.trim().split_once(' ').expect("two numbers");
    match (abi.parse(), errno.parse()) {
        (Ok(abi), _) => (abi, ""),
        (_, Ok(libc::EOPNOTSUPP)) => (0, "not enabled at boot"),
        (_, Ok(libc::ENOSYS)) => (0, "has no Landlock"),
        _ => panic!("what the kernel said: {answer}"),
    }
}

/// A directory of the caller's on a file system that supports idmapped mounts. A guest's own root is a hostfs, which does not;
/// its `/tmp` is a tmpfs.
pub fn idmappable_dir(caller: Caller) -> TempDir {
    TempDir::below(Path::new("/tmp"), caller)
}

/// A root file system with busybox alone, for `--rootfs`; `None` if busybox is not statically linked.
pub fn busybox_rootfs(within: &TempDir) -> Option<PathBuf> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let is_static = busybox.filter(|path| {
        let output = Command::new("ldd").arg(path).output();
        output.is_ok_and(|output| !String::from_utf8_lossy(&output.stdout).contains("libc.so"))
    });
    let Some(busybox) = is_static else {
        super::skip("there is no static busybox (Debian: package busybox-static)");
        return None;
    };
    let root = within.dir("rootfs");
    for name in ["rootfs/bin", "rootfs/etc"] {
        within.dir(name);
    }
    fs::copy(busybox, root.join("bin/busybox")).expect("busybox can be copied");
    super::set_mode(&root.join("bin/busybox"), 0o755);
    for applet in ["sh", "cat", "ls", "true", "id", "echo", "mount", "touch", "stat", "sleep", "readlink", "grep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).expect("an applet can be linked");
    }
    within.file("rootfs/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
    Some(root)
}

/// Every file below a directory with all that a faulty set-up could change: content, mode, owner, times, link target.
pub fn fingerprint(path: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut lines = Vec::new();
    let Ok(meta) = fs::symlink_metadata(path) else { return lines };
    let content = match meta.file_type() {
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path)),
        kind if kind.is_file() => format!("{:?}", fs::read(path).map(|bytes| Sha256::digest(bytes).to_vec())),
        _ => String::new(),
    };
    let owner = (meta.uid(), meta.gid(), meta.mode());
    lines.push(format!(
        "{} {owner:?} {} {} {} {content}",
        path.display(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.nlink()
    ));
    if meta.is_dir() {
        let mut entries: Vec<_> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        lines.extend(entries.iter().flat_map(|entry| fingerprint(entry)));
    }
    lines
}
