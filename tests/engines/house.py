"""The environment of the engines during a run: private directories and, outside of a disposable guest, also namespaces
and a private part of the cgroup tree, so that nothing of them outlives the run or conflicts with the machine."""

import os
import shutil
import subprocess
import time

from scenario import Absent

# Makes the rest of the run private: mounts, network, processes.
UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
ROOT = "/sys/fs/cgroup"


def cgroup_hierarchies():
    """(type, mount point, options) of every mounted cgroup hierarchy."""
    found = []
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split()[:3]
            if kind in ("cgroup", "cgroup2"):
                found.append((kind, before.split()[4], options))
    return found


def enter_cgroups(name):
    """Moves this process into a cgroup of this name in every hierarchy, which `private_cgroups` then makes the roots.
    Returns the directories."""
    made = []
    for kind, mount, options in cgroup_hierarchies():
        path = os.path.join(mount, name)
        os.makedirs(path, exist_ok=True)
        made.append(path)
        for file in ("cpuset.cpus", "cpuset.mems"):
            # A cpuset of v1 accepts processes only after both are set.
            if kind == "cgroup" and os.path.exists(os.path.join(path, file)):
                write(os.path.join(path, file), read(os.path.join(mount, file)))
        write(os.path.join(path, "cgroup.procs"), str(os.getpid()))
    return made


def private_cgroups():
    """In a cgroup namespace: mounts the hierarchies again, so that this process's cgroups are the visible roots."""
    hierarchies = cgroup_hierarchies()
    unified = any(mount == ROOT for kind, mount, _ in hierarchies if kind == "cgroup2")
    if unified:
        mount("-t", "cgroup2", "cgroup2", ROOT)
        # Controllers can be enabled for children only in a cgroup without processes.
        os.makedirs(f"{ROOT}/runner", exist_ok=True)
        write(f"{ROOT}/runner/cgroup.procs", str(os.getpid()))
        for controller in read(f"{ROOT}/cgroup.controllers").split():
            write(f"{ROOT}/cgroup.subtree_control", f"+{controller}")
        return
    mount("-t", "tmpfs", "cgroup", ROOT)
    for kind, point, options in hierarchies:
        if point.startswith(ROOT + "/"):
            os.makedirs(point, exist_ok=True)
            names = [one for one in options.split(",") if one not in ("rw", "relatime", "xattr", "nsdelegate", "memory_recursiveprot")]
            mount("-t", kind, *(["-o", ",".join(names)] if kind == "cgroup" else []), kind, point)


def remove_cgroups(paths):
    """Removes cgroups and their children; returns those that remain."""
    left = []
    for top in paths:
        for path, _, _ in os.walk(top, topdown=False):
            for attempt in range(20):
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if attempt == 19:
                        left.append(f"{path}: {error.strerror}")
                    time.sleep(0.05)
    return left


def open_tun(directory):
    """A tun device that every user may open, as in distributions."""
    if os.path.exists("/dev/net/tun"):
        os.mknod(f"{directory}/tun", 0o20666, os.makedev(10, 200))
        os.chmod(f"{directory}/tun", 0o666)
        mount("--bind", f"{directory}/tun", "/dev/net/tun")


def mount(*words):
    """mount(8)."""
    subprocess.run(["mount", *words], check=True)


def read(path):
    """A file's text."""
    with open(path) as file:
        return file.read().strip()


def write(path, text):
    """Writes a file that the kernel may refuse."""
    with open(path, "w") as file:
        file.write(text)


class House:
    """The run's directory, with the file system of the images in it."""

    def __init__(self, work, systemd):
        self.work, self.systemd = work, systemd
        self.cgroup2 = os.path.exists(f"{ROOT}/cgroup.controllers")
        self.root = f"{work}/root"
        self.tar = f"{work}/root.tar"

    def room(self, name):
        """Creates a directory of this name if needed."""
        path = f"{self.work}/{name}"
        os.makedirs(path, exist_ok=True)
        return path

    def furnish(self):
        """A root directory with only a static busybox."""
        busybox = shutil.which("busybox")
        if not busybox or subprocess.run(["ldd", busybox], capture_output=True).returncode == 0:
            raise Absent("not installed: busybox-static")
        for name in ("bin", "etc", "tmp", "root", "proc", "sys", "dev", "run", "var/data"):
            os.makedirs(f"{self.root}/{name}")
        os.chmod(f"{self.root}/tmp", 0o1777)
        shutil.copy(busybox, f"{self.root}/bin/busybox")
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                os.symlink("busybox", f"{self.root}/bin/{applet}")
        write(f"{self.root}/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nworker:x:1234:4321::/tmp:/bin/sh\n")
        write(f"{self.root}/etc/group", "root:x:0:\nworker:x:4321:\nextra:x:5555:worker\n")
        write(f"{self.root}/var/data/file", "from the image\n")
        subprocess.run(["tar", "--numeric-owner", "--owner=0", "--group=0", "-C", self.root, "-cf", self.tar, "."], check=True)

    def adopt_user(self):
        """An unprivileged user with subordinate ids, and such a range for podman's automatic namespaces. If the mounts are
        private, /etc has these only for this run. Returns its name, id and home."""
        name, uid = "stockade-engines", 54321
        home = self.room("home")
        os.chown(home, uid, uid)
        os.chmod(self.work, 0o755)
        for file, lines in {
            "/etc/passwd": f"{name}:x:{uid}:{uid}::{home}:/bin/sh\n",
            "/etc/group": f"{name}:x:{uid}:\n",
            "/etc/subuid": f"{name}:2000000:65536\ncontainers:3000000:1048576\n",
            "/etc/subgid": f"{name}:2000000:65536\ncontainers:3000000:1048576\n",
        }.items():
            had = read(file) + "\n" if os.path.exists(file) else ""
            if name in had:
                continue
            ours = f"{self.room('etc')}/{os.path.basename(file)}"
            write(ours, had + lines)
            os.chmod(ours, 0o644)
            if not os.path.exists(file):
                write(file, "")
            mount("--bind", ours, file)
        return name, uid, home
