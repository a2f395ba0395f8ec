"""Podman for an unprivileged user with subordinate ids. The user exists only during the run."""

import os
import shutil

import podman
import scenario
from scenario import Absent, Scenarios, eventually, expect, run

scenarios = Scenarios(podman.both)


class Engine(podman.Engine):
    """podman as the user."""

    name = "rootless"
    scenarios = scenarios
    rootless = True
    driver = ["--storage-driver", "vfs"]
    limits = []

    def prepare(self):
        for program in ("newuidmap", "setpriv"):
            if not shutil.which(program):
                raise Absent(f"not installed: {program}")
        super().prepare()
        name, self.uid, home = self.house.adopt_user()
        runtime = self.house.room("user-run")
        for directory in (self.dir, f"{self.dir}/conf", runtime):
            os.chown(directory, self.uid, self.uid)
        os.chmod(runtime, 0o700)
        self.environment = podman.QUIET | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "USER": name, "XDG_RUNTIME_DIR": runtime, "TERM": "xterm",
                            "CONTAINERS_CONF": f"{self.dir}/conf/containers.conf"}

    def argv(self):
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *super().argv()]

    def down(self):
        # The process that holds the user's namespace.
        self.podman("system", "migrate", status=None)

    def use(self, runtime, program):
        # Programs that the user runs must be in a directory that the user can enter.
        if os.path.exists(program) and not program.startswith(self.house.work):
            reachable = f"{self.house.room('bin')}/{os.path.basename(program)}"
            shutil.copy(program, reachable)
            os.chmod(reachable, 0o755)
            program = reachable
        super().use(runtime, program)


@scenarios.add("--network slirp4netns: the host's loopback is another")
def _(p):
    if not shutil.which("slirp4netns"):
        raise Absent("not installed: slirp4netns")
    p.run("bb", "ip", "addr", network="slirp4netns", says="tap0")


@scenarios.add("--volume :U, --group-add keep-groups", long=True)
def _(p):
    shared = f"{p.dir}/tmp/owned"
    run(["setpriv", f"--reuid={p.uid}", f"--regid={p.uid}", "--clear-groups", "mkdir", "-p", shared])
    p.run("-v", f"{shared}:/owned:U", "--user", "5", "bb", "stat", "-c", "%u", "/owned", says="5")
