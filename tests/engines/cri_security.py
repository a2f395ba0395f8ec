"""Security contexts: users, capabilities, seccomp, read-only and masked paths, privileged pods, user namespaces."""

import json
import os

from cri_view import LOCALHOST, POD, RUNTIME_DEFAULT, UNCONFINED, pid_of, portrait, status
from scenario import Absent, Scenarios, expect, refusal

scenarios = Scenarios()
AS_USER = "docker.io/library/user:1"


@scenarios.add("runAsUser, runAsGroup, supplementalGroups, fsGroup")
def _(c):
    pod = c.pod(security={"supplemental_groups": [7000]})
    seen = {}
    for name, security in {
        "root": {}, "user": {"run_as_user": {"value": 1234}}, "group": {"run_as_user": {"value": 1000}, "run_as_group": {"value": 1001}},
        "groups": {"run_as_user": {"value": 1000}, "run_as_group": {"value": 1001}, "supplemental_groups": [7000, 7001]},
        "of the image": {"run_as_user": {"value": 1234}, "supplemental_groups": [7000]}, "by name": {"run_as_username": "worker"},
        "high": {"run_as_user": {"value": 2147483647}, "run_as_group": {"value": 2147483647}},
    }.items():
        id = c.stay(pod, name=name.replace(" ", "-"), security=security)
        seen[name] = (status(pid_of(c, id)), c.said(id, "sh", "-c", "id; echo $HOME; touch /tmp/x && stat -c %u:%g /tmp/x; echo x >/dev/stderr"))
    expect("uid=1000 gid=1001 groups=1001,7000,7001" in seen["groups"][1], str(seen["groups"]))
    return seen


@scenarios.add("runAsNonRoot: the image's user")
def _(c):
    image = c.call("ImageStatus", image={"image": AS_USER}).image
    expect(image.uid.value == 1234, f"the image's user: {image}")
    pod = c.pod()
    id = c.stay(pod, image=AS_USER)
    expect("uid=1234(worker) gid=4321(worker)" in c.said(id, "id"), c.said(id, "id"))
    return portrait(c, pod, id)


@scenarios.add("a user that the image lacks is refused")
def _(c):
    pod = c.pod()
    text = refusal(c.container, pod, ["true"], security={"run_as_username": "nobody-knows"})
    expect("no users found" in text, text)


@scenarios.add("readOnlyRootFilesystem: the root alone is read-only")
def _(c):
    pod = c.pod()
    volume = f"{pod.directory}/volume"
    os.makedirs(volume)
    id = c.stay(pod, security={"readonly_rootfs": True}, mounts=[{"container_path": "/volume", "host_path": volume}])
    c.said(id, "sh", "-c", "touch /volume/x /dev/shm/x && echo x >/dev/termination-log")
    return [c.exec(id, "touch", path) for path in ("/x", "/tmp/x", "/etc/x", "/dev/x", "/proc/x", "/sys/x")], portrait(c, pod, id)


@scenarios.add("capabilities: added, dropped, all of them, none; with and without root")
def _(c):
    pod = c.pod()
    seen = {}
    for number, (user, capabilities) in enumerate([
        (0, {}), (0, {"add_capabilities": ["NET_ADMIN", "SYS_TIME"]}), (0, {"drop_capabilities": ["CHOWN", "NET_RAW"]}), (0, {"drop_capabilities": ["ALL"]}),
        (0, {"drop_capabilities": ["ALL"], "add_capabilities": ["NET_BIND_SERVICE"]}), (0, {"add_capabilities": ["ALL"], "drop_capabilities": ["SYS_ADMIN"]}),
        (1000, {}), (1000, {"add_capabilities": ["NET_BIND_SERVICE"]}),
    ]):
        id = c.stay(pod, name=f"n{number}", security={"run_as_user": {"value": user}, "capabilities": capabilities})
        seen[f"{user} {capabilities}"] = (status(pid_of(c, id)), c.said(id, "grep", "Cap", "/proc/self/status"), c.exec(id, "chown", "5", "/tmp"))
    return seen


@scenarios.add("allowPrivilegeEscalation: false")
def _(c):
    pod = c.pod()
    seen = {}
    for number, more in enumerate([{}, {"no_new_privs": True}, {"no_new_privs": True, "run_as_user": {"value": 1000}},
                                   {"no_new_privs": True, "run_as_user": {"value": 1000}, "seccomp": {"profile_type": RUNTIME_DEFAULT}}]):
        id = c.stay(pod, name=f"n{number}", security=more)
        seen[number] = (status(pid_of(c, id)), c.said(id, "grep", "-E", "NoNewPrivs|Seccomp:", "/proc/self/status"))
    expect("NoNewPrivs:\t1" in seen[1][1] and "NoNewPrivs:\t0" in seen[0][1], str(seen))
    return seen


CALLS = "unshare -U true; unshare -n true; mkdir /tmp/made; keyctl 2>/dev/null; chmod 700 /tmp; hostname x; mount -t tmpfs x /tmp; date -s 2030-01-01"


@scenarios.add("seccomp: RuntimeDefault, Unconfined, Localhost, with and without privileges to gain")
def _(c):
    pod = c.pod()
    profile = f"{pod.directory}/profile.json"
    rules = [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}, {"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_ERRNO"}]
    with open(profile, "w") as file:
        json.dump({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": rules}, file)
    seen = {}
    for kind, seccomp in {"default": {"profile_type": RUNTIME_DEFAULT}, "unconfined": {"profile_type": UNCONFINED},
                          "localhost": {"profile_type": LOCALHOST, "localhost_ref": profile}}.items():
        for strict in (False, True):
            for user in (0, 1000):
                id = c.stay(pod, name=f"{kind}-{strict}-{user}".lower(),
                            security={"seccomp": seccomp, "no_new_privs": strict, "run_as_user": {"value": user}})
                of_first = {name: value for name, value in status(pid_of(c, id)).items() if name in ("Seccomp", "NoNewPrivs")}
                seen[f"{kind} {strict} {user}"] = (of_first, c.exec(id, "sh", "-c", CALLS), c.said(id, "grep", "Seccomp:", "/proc/self/status"))
    expect("Function not implemented" in str(seen["localhost False 0"]) and "not implemented" not in str(seen["default False 0"]), str(seen))
    return seen


@scenarios.add("stockade run in a pod as a user without capabilities")
def _(c):
    if not c.house.stockade:
        raise Absent("not built: stockade")
    pod = c.pod()
    # The image has no /usr, which a run shows.
    mounts = [{"container_path": "/stockade", "host_path": c.house.stockade, "readonly": True},
              {"container_path": "/usr", "host_path": c.house.room("usr"), "readonly": True}]
    user = {"run_as_user": {"value": 1000}, "no_new_privs": True, "capabilities": {"drop_capabilities": ["ALL"]}}
    kinds = {"unconfined": {"profile_type": UNCONFINED}, "default": {"profile_type": RUNTIME_DEFAULT},
             "outer": {"profile_type": LOCALHOST, "localhost_ref": c.house.outer}}
    for name, seccomp in kinds.items():
        id = c.stay(pod, name=name, mounts=mounts, security={**user, "seccomp": seccomp})
        said, status = c.exec(id, "/stockade", "run", "--", "true")
        expect(status == 125 and "--allow-degraded" in said, f"{name}: {status}: {said}")
        said = c.said(id, "/stockade", "run", "-p", "nested", "--", "sh", "-c", "echo r''an; id -u")
        expect("ran\n" in said and ("limits alone" in said) == (name == "default"), f"{name}: {said}")


@scenarios.add("seccomp: profiles that are missing, or no profiles")
def _(c):
    pod = c.pod()
    texts = {"missing": None, "empty": "", "text": "nonsense", "action": '{"defaultAction": "SCMP_ACT_NONSENSE"}'}
    for name, text in texts.items():
        path = f"{pod.directory}/{name}.json"
        if text is not None:
            with open(path, "w") as file:
                file.write(text)
        refusal(c.container, pod, ["true"], name=name, security={"seccomp": {"profile_type": LOCALHOST, "localhost_ref": path}})


@scenarios.add("masked and read-only paths, as the kubelet sends them and none")
def _(c):
    pod = c.pod()
    tries = ("for file in /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug; do wc -c <$file; done; ls /proc/acpi /sys/firmware; "
             "for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/irq/default_smp_affinity; do echo x >$file; done")
    usual = c.stay(pod)
    own = c.stay(pod, name="own", security={"masked_paths": ["/proc/meminfo", "/proc/not-there", "/proc/sys/fs"], "readonly_paths": ["/proc/sys"]})
    # Under procMount: Unmasked, whose pod has a user namespace where the kubelet asks for it.
    bare = c.stay(pod, name="bare", security={"masked_paths": [], "readonly_paths": []})
    expect(c.said(own, "sh", "-c", "wc -c </proc/meminfo; ls /proc/sys/fs | wc -l").split() == ["0", "0"], "a masked path shows something")
    return c.exec(usual, "sh", "-c", tries), c.exec(own, "sh", "-c", "echo x >/proc/sys/kernel/core_pattern"), c.exec(bare, "wc", "-c", "/proc/keys")[1]


@scenarios.add("a privileged pod")
def _(c):
    pod = c.pod(security={"privileged": True})
    id = c.stay(pod, security={"privileged": True})
    c.said(id, "sh", "-c", "mount -t tmpfs none /tmp && mknod /tmp/kmsg c 1 11 && head -c 0 /tmp/kmsg")
    return portrait(c, pod, id)


@scenarios.add("a privileged pod that runs as a user")
def _(c):
    pod = c.pod(security={"privileged": True})
    return portrait(c, pod, c.stay(pod, security={"privileged": True, "run_as_user": {"value": 1000}}))


@scenarios.add("sysctls of a pod; those of the node are refused")
def _(c):
    sysctls = {"kernel.shm_rmid_forced": "1", "net.ipv4.ip_local_port_range": "2000 65000", "net.ipv4.tcp_syncookies": "0", "kernel.msgmax": "16384",
               "net.ipv4.ping_group_range": "0 2147483647", "net.ipv4.ip_unprivileged_port_start": "0", "net.core.somaxconn": "1024"}
    pod = c.pod(sysctls=sysctls)
    id = c.stay(pod)
    found = {name: " ".join(c.said(id, "cat", "/proc/sys/" + name.replace(".", "/")).split()) for name in sysctls}
    expect(found == sysctls, str(found))
    for name, value in {"kernel.pid_max": "4194304", "vm.swappiness": "10", "net.nonsense": "1", "kernel.hostname": "x"}.items():
        refusal(c.pod, sysctls={name: value})


def without_queues(seen):
    """What is seen, except for /dev/mqueue, whose owner differs (docs/oci.md)."""
    if isinstance(seen, dict):
        return {name: without_queues(value) for name, value in seen.items() if name != "mqueue"}
    return [line for line in seen if "mqueue" not in line] if isinstance(seen, list) else seen


@scenarios.add("a user namespace (hostUsers: false)")
def _(c):
    if c.version == 1:
        raise Absent("containerd 1 has no user namespaces for pods")
    maps = [{"host_id": 2000000, "container_id": 0, "length": 65536}]
    pod = c.pod(users={"mode": POD, "uids": maps, "gids": maps})
    volume = f"{pod.directory}/volume"
    os.makedirs(volume)
    id = c.stay(pod, mounts=[{"container_path": "/volume", "host_path": volume}])
    found = status(pid_of(c, id))
    expect(found["Uid"].split()[0] == "2000000", str(found))
    return without_queues(portrait(c, pod, id))
