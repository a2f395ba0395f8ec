"""buildah: images built step by step, each step in a container of the runtime."""

import os

import scenario
from docker import DOCKERFILE
from scenario import Scenarios, expect, on_terminal, run, version

scenarios = Scenarios()
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]


class Engine(scenario.Engine):
    """buildah, with separate storage."""

    name = "buildah"
    scenarios = scenarios

    def up(self):
        self.dir = self.house.room(self.name)
        with open(f"{self.dir}/policy.json", "w") as file:
            file.write('{"default":[{"type":"insecureAcceptAnything"}]}')
        base = self.buildah("from", "scratch").strip()
        self.buildah("add", base, self.house.tar, "/", timeout=120)
        self.buildah("commit", "--signature-policy", f"{self.dir}/policy.json", base, "localhost/bb", timeout=120)
        self.buildah("rm", base)

    def argv(self):
        return ["buildah", "--root", f"{self.dir}/root", "--runroot", f"{self.dir}/run", "--storage-driver", "overlay"]

    def buildah(self, *words, **rest):
        return run([*self.argv(), *words], **rest)

    def remove(self, name):
        self.buildah("rm", name, status=None)

    def working(self, *options):
        """A working container."""
        name = self.fresh()
        self.buildah("from", "--name", name, "--pull-never", *LIMITS, *options, "localhost/bb")
        return name

    def run(self, name, *words, options=(), **rest):
        return self.buildah("run", "--runtime", self.program, "--isolation", "oci", "--network", "none", *options, name, "--", *words, **rest)

    def versions(self):
        return [version(["buildah", "--version"])]


@scenarios.add("run: output and exit status")
def _(b):
    name = b.working()
    b.run(name, "sh", "-c", "echo ran; exit 3", status=3, says="ran")


@scenarios.add("run: what one step writes the next one reads")
def _(b):
    name = b.working()
    b.run(name, "sh", "-c", "echo kept >/kept")
    b.run(name, "cat", "/kept", says="kept")


@scenarios.add("run: user, directory, environment, volume")
def _(b):
    name = b.working()
    shared = b.house.room("shared")
    b.buildah("config", "--env", "A=b", "--workingdir", "/new/dir", name)
    b.run(name, "sh", "-c", "pwd; echo $A", says=("/new/dir", "b"))
    b.run(name, "id", options=["--user", "worker"], says="uid=1234(worker)")
    b.run(name, "touch", "/v/by-buildah", options=["-v", f"{shared}:/v"])
    expect(os.path.exists(f"{shared}/by-buildah"), "the host does not see it")


@scenarios.add("run -t: a terminal")
def _(b):
    name = b.working()
    on_terminal([*b.argv(), "run", "--runtime", b.program, "--isolation", "oci", "--network", "none", "-t", name, "--", "sh"],
                [("# ", "tty; exit 5\n"), ("/dev/pts/", "")], 5)


@scenarios.add("run: capabilities, seccomp")
def _(b):
    name = b.working("--cap-drop", "CHOWN")
    b.run(name, "chown", "1", "/tmp", status=1, says="Operation not permitted")
    b.run(name, "grep", "Seccomp:", "/proc/self/status", says="2")


@scenarios.add("run: a program that is not there")
def _(b):
    b.run(b.working(), "nonsense", status=None, says="not found")


@scenarios.add("run: a user namespace")
def _(b):
    name = b.working("--userns-uid-map", "0:100000:65536", "--userns-gid-map", "0:100000:65536")
    b.run(name, "cat", "/proc/self/uid_map", says="100000")


@scenarios.add("build with RUN steps, layers, memory limit")
def _(b):
    file = f"{b.dir}/Containerfile"
    with open(file, "w") as out:
        out.write(DOCKERFILE.replace("FROM bb", "FROM localhost/bb"))
    b.buildah("build", "--runtime", b.program, "--isolation", "oci", "--network", "none", "--layers", "--no-cache", "--pull-never", *LIMITS, "-m", "64m",
              "--signature-policy", f"{b.dir}/policy.json", "-t", f"built-{b.runtime}", "-f", file, b.house.room("empty"), timeout=120)
    name = b.fresh()
    b.buildah("from", "--name", name, "--pull-never", *LIMITS, f"localhost/built-{b.runtime}")
    b.run(name, "cat", "/built", "/tmp/mine", says=("built 1\n0", "1234"))


@scenarios.add("build: a RUN step that fails")
def _(b):
    file = f"{b.dir}/Failing"
    with open(file, "w") as out:
        out.write("FROM localhost/bb\nRUN exit 17\n")
    b.buildah("build", "--runtime", b.program, "--isolation", "oci", "--network", "none", "--no-cache", "--pull-never", *LIMITS,
              "--signature-policy", f"{b.dir}/policy.json", "-f", file, b.house.room("empty"), status=None, says="exit status 17")


@scenarios.add("build with a mount of the step's (RUN --mount)")
def _(b):
    file = f"{b.dir}/Mounting"
    context = b.house.room("context")
    with open(f"{context}/given", "w") as out:
        out.write("given by the context\n")
    with open(file, "w") as out:
        out.write("FROM localhost/bb\nRUN --mount=type=bind,src=given,target=/given --mount=type=tmpfs,target=/scratch "
                  "--mount=type=cache,target=/cache cat /given && touch /scratch/x /cache/x\n")
    b.buildah("build", "--runtime", b.program, "--isolation", "oci", "--network", "none", "--no-cache", "--pull-never", *LIMITS,
              "--signature-policy", f"{b.dir}/policy.json", "-f", file, context, says="given by the context")
