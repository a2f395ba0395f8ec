"""The rig: the targets of the attacks, and the canaries that detect success. It exists in separate namespaces."""

import ctypes
import hashlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import time

from outside import Outside

RIG = pathlib.Path("/srv/rig")
LIBC = ctypes.CDLL(None, use_errno=True)
ADDRESSES = ["203.0.113.10", "203.0.113.53", "169.254.169.254", "100.100.100.200", "10.0.0.5"]
SETTINGS = [
    "kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "kernel/domainname", "kernel/sysrq", "kernel/panic",
    "kernel/randomize_va_space", "kernel/kptr_restrict", "fs/suid_dumpable", "fs/protected_symlinks", "vm/overcommit_memory",
    "vm/panic_on_oom", "net/ipv4/ip_forward", "user/max_user_namespaces", "user/max_mnt_namespaces", "user/max_net_namespaces",
]
# A file's capabilities, as the kernel stores them: CAP_SYS_ADMIN, permitted with and without the effective bit.
FILE_CAPABILITIES = {
    "capped": (0x0200_0001).to_bytes(4, "little") + (1 << 21).to_bytes(4, "little") + bytes(12),
    "capped-inherit": (0x0200_0001).to_bytes(4, "little") + bytes(4) + (1 << 21).to_bytes(4, "little") + bytes(8),
}


# Directories of an image that are symlinks to the host's: absolute, relative, dangling, and circular; with a + the target exists
# in the image, too.
LIES = {
    "dev": "/srv/rig/host", "dev+": "/srv/rig/host", "home+": "/srv/rig/host", "tmp+": "/srv/rig/host", "proc": "../../../../../srv/rig/host", "sys": "/srv/rig/host", "tmp": "/proc/self/root/srv/rig/host",
    "run": "/srv/rig/host/nothing", "var": "var", "etc": "srv/../../../../srv/rig/host", "home": "/srv/rig/host", "srv": "/srv/rig/host",
}


def syscall(*arguments):
    return LIBC.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])


class Rig:
    def __init__(self, base, program):
        self.secret = "attackcanary" + secrets.token_hex(12)
        for command in [
            ["mount", "-t", "tmpfs", "attackcanary", "/srv"],
            ["mkdir", "-p", str(RIG)],
            ["mount", "--bind", str(base), str(RIG)],
            ["mount", "-t", "tmpfs", "run", "/run"],
            ["ip", "link", "set", "lo", "up"],
            *[["ip", "address", "add", f"{address}/32", "dev", "lo"] for address in ADDRESSES],
            ["hostname", "attackcanaryhost"],
        ]:
            subprocess.run(command, check=True)
        (RIG / "bin").mkdir()
        shutil.copy(program, RIG / "bin/attack")
        (RIG / "bin/attack").chmod(0o755)
        (RIG / "bin/armed").touch()
        self.listen()
        self.make_key()
        self.make_root()

    # --- targets ------------------------------------------------------------------------------------------------------

    def listen(self):
        self.listeners = []
        for name, family, kind, address in [
            ("TCP 7001", socket.AF_INET6, socket.SOCK_STREAM, ("::", 7001)),
            ("TCP 80", socket.AF_INET6, socket.SOCK_STREAM, ("::", 80)),
            ("UDP 53", socket.AF_INET6, socket.SOCK_DGRAM, ("::", 53)),
            ("UDP 5353", socket.AF_INET6, socket.SOCK_DGRAM, ("::", 5353)),
            ("abstract socket", socket.AF_UNIX, socket.SOCK_STREAM, "\0attackcanary"),
            ("/run/docker.sock", socket.AF_UNIX, socket.SOCK_STREAM, "/run/docker.sock"),
            ("/run/dbus/system_bus_socket", socket.AF_UNIX, socket.SOCK_STREAM, "/run/dbus/system_bus_socket"),
            ("/run/containerd/containerd.sock", socket.AF_UNIX, socket.SOCK_STREAM, "/run/containerd/containerd.sock"),
        ]:
            if address[0] == "/":
                os.makedirs(os.path.dirname(address), exist_ok=True)
            self.add_listener(name, family, kind, address)
        self.outside = Outside()

    def add_listener(self, name, family, kind, address):
        listener = socket.socket(family, kind)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        if isinstance(address, str) and address[0] == "/":
            os.chmod(address, 0o777)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        listener.setblocking(False)
        self.listeners.append((name, kind, listener))

    def make_key(self):
        syscall(250, 1, None)  # keyctl(KEYCTL_JOIN_SESSION_KEYRING): not the machine's own keyring
        payload = self.secret.encode()
        self.key = syscall(248, b"user", b"attackcanary", payload, len(payload), -3)
        if self.key > 0:
            syscall(250, 5, self.key, 0x3F3F_3F3F)  # keyctl(KEYCTL_SETPERM): every process that finds it may read it
        self.has_keys = self.key > 0

    def make_root(self):
        """A root for containers, and some with a symlink in place of a directory."""
        for lie in ["", *LIES]:
            root = RIG / (f"hostile-{lie}" if lie else "rootfs")
            for directory in ["usr/bin", "lib", "bin", "srv/rig/bin", "srv/rig/ro", "srv/rig/ws", "root", "dev", "proc", "sys", "tmp", "run", "etc", "var/tmp", "home/sandbox"]:
                if directory.split("/")[0] != lie.rstrip("+"):
                    (root / directory).mkdir(parents=True)
            if lie:
                (root / lie.rstrip("+")).symlink_to(LIES[lie])
            if lie.endswith("+"):
                (root / LIES[lie][1:]).mkdir(parents=True)
            if lie != "etc":
                (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")

    def fresh(self, uid):
        """Restores the directories before each attack, owned by the user that starts the sandbox."""
        for name, kind, listener in [one for one in self.listeners if one[0].startswith(str(RIG))]:
            listener.close()
        self.listeners = [one for one in self.listeners if not one[0].startswith(str(RIG))]
        for name in ["host", "ro", "ws", "home"]:
            shutil.rmtree(RIG / name, ignore_errors=True)
            (RIG / name).mkdir()
        (RIG / "home/.ssh").mkdir()
        files = {"host/secret": self.secret, "host/target": "target", "home/.ssh/id_canary": self.secret, "ro/file": "file", "ro/second": "second", "ro/third": "third"}
        for name, text in files.items():
            (RIG / name).write_text(text)
        for name in ["host/socket", "ro/socket"]:
            self.add_listener(f"{RIG}/{name}", socket.AF_UNIX, socket.SOCK_STREAM, f"{RIG}/{name}")
        for name, value in FILE_CAPABILITIES.items():
            shutil.copy(RIG / "bin/attack", RIG / "ro" / name)
            (RIG / "ro" / name).chmod(0o755)
        # A program of the host that can print a secret, and scripts with it as interpreter.
        shutil.copy(RIG / "bin/attack", RIG / "host/program")
        with open(RIG / "host/program", "ab") as program:
            program.write(b"\0" * 80 + self.secret.encode())
        for number in (40, 41):
            script = RIG / f"ro/script-{number}"
            script.write_text(f"#!/proc/self/fd/{number}{'/..' * 12}{RIG}/host/program D59\n")
            script.chmod(0o755)
        (RIG / "ws/cache").mkdir()
        for place in ["host", "ro", "ws", "home", "rootfs", *[f"hostile-{lie}" for lie in LIES]]:
            for where, directories, names in os.walk(RIG / place):
                for name in ["", *directories, *names]:
                    os.chown(os.path.join(where, name), uid, uid, follow_symlinks=False)
        for name, value in FILE_CAPABILITIES.items():  # a change of owner clears them
            os.setxattr(RIG / "ro" / name, "security.capability", value)

    # --- canaries -----------------------------------------------------------------------------------------------------

    def start_victim(self, uid):
        """A process of the caller's that records its signals."""
        reader, writer = os.pipe()
        try:  # a process id that does not exist inside, where it would name another process
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text("20000")
        except OSError:
            pass  # a kernel without CONFIG_CHECKPOINT_RESTORE
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            for number in [signal.SIGCONT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1]:
                signal.signal(number, lambda number, _: os.write(writer, b"."))
            os.setsid()
            os.setgid(uid)
            os.setuid(uid)
            LIBC.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which the change of ids cleared
            os.write(writer, b"r")
            while True:
                time.sleep(1000)
        os.close(writer)
        os.read(reader, 1)
        os.set_blocking(reader, False)
        self.victim, self.signals = pid, reader
        return pid

    def stop_victim(self):
        os.kill(self.victim, signal.SIGKILL)
        os.waitpid(self.victim, 0)
        os.close(self.signals)

    def snapshot(self):
        self.drain()
        self.outside.turn.clear()
        self.before = (self.files(), self.settings(), self.mounts())

    def drain(self):
        """What was heard outside since the last call, and the listeners with new connections."""
        touched = self.outside.heard()
        for name, kind, listener in self.listeners:
            while True:
                try:
                    if kind == socket.SOCK_STREAM:
                        listener.accept()[0].close()
                    else:
                        listener.recv(100)
                    touched.append(f"connected: {name}")
                except OSError:
                    break
        return touched

    def files(self):
        found = {}
        for place in ["host", "ro", "home"]:
            for where, directories, names in os.walk(RIG / place):
                for name in ["", *directories, *names]:
                    path = os.path.join(where, name).rstrip("/")
                    meta = os.lstat(path)
                    regular = os.path.isfile(path) and not os.path.islink(path)
                    content = hashlib.sha256(open(path, "rb").read()).hexdigest() if regular else ""
                    attributes = sorted(os.listxattr(path, follow_symlinks=False))
                    found[path] = (meta.st_mode, meta.st_uid, meta.st_gid, meta.st_mtime_ns, meta.st_nlink, content, attributes)
        return found

    def settings(self):
        values = {}
        for name in SETTINGS:
            try:
                values[name] = pathlib.Path("/proc/sys", name).read_text()
            except OSError:
                pass
        return values

    def mounts(self):
        return pathlib.Path("/proc/self/mountinfo").read_text()

    def touched(self, output):
        """The canaries that fired."""
        songs = []
        if self.secret.encode() in output:
            songs.append("a secret was read")
        files, settings, mounts = self.before
        now = self.files()
        songs += [f"changed on the host: {path}" for path in sorted(files.keys() | now.keys()) if files.get(path) != now.get(path)][:3]
        songs += [f"setting changed: {name}" for name, value in self.settings().items() if value != settings[name]]
        if self.mounts() != mounts:
            songs.append("the host's mounts changed")
        songs += sorted(set(self.drain()))
        try:
            if os.read(self.signals, 100):
                songs.append("a process of the host's got a signal")
        except BlockingIOError:
            pass
        try:
            pid, _ = os.waitpid(self.victim, os.WNOHANG)
        except ChildProcessError:
            pid = 0
        if pid:
            songs.append("a process of the host's was killed")
            self.start_victim(0)
        for where, _, names in os.walk(RIG / "ws"):
            songs += [f"set-id file on the host: {name}" for name in names if os.lstat(os.path.join(where, name)).st_mode & 0o6000]
        return songs + self.left_behind()

    def left_behind(self):
        """Kills leftover processes in the rig, and returns their names."""
        for _ in range(20):
            left = {}
            for entry in os.listdir("/proc"):
                if entry.isdigit() and int(entry) not in (1, os.getpid(), self.victim):
                    try:
                        stat = pathlib.Path("/proc", entry, "stat").read_text()
                    except OSError:
                        continue
                    if stat.rpartition(")")[2].split()[0] != "Z":
                        left[int(entry)] = stat.partition("(")[2].rpartition(")")[0]
            if not left:
                return []
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return [f"left behind: {name}" for name in sorted(set(left.values()))]
