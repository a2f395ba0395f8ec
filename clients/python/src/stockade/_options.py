"""What a sandbox may do, as keywords, and the flags of `stockade run` that say the same."""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, TypedDict, Union

from stockade.errors import InvalidArgument

Command = Union[str, Sequence[Union[str, bytes, "os.PathLike[str]"]]]
Size = Union[int, str]
Time = Union[float, int]
Words = Union[str, Iterable[str]]
User = Union[int, str]
SHELL = ("/bin/sh", "-c")


class Options(TypedDict, total=False):
    """The flags of `stockade run` of the same names. Sizes are bytes or `"512M"`, times are seconds."""

    profile: Words
    workspace: "str | os.PathLike[str]"
    volumes: Words
    ro: Words
    rw: Words
    tmpfs: Words
    mounts: Words
    rootfs: "str | os.PathLike[str]"
    toolchains: Words
    scratch_size: Size
    scratch_inodes: int
    envs: Mapping[str, str]
    env: Mapping[str, str]
    keep_env: bool
    cwd: str
    umask: int
    user: User
    subuid: bool
    network: str
    hostname: str
    allow_net: Words
    deny_net: Words
    add_hosts: Mapping[str, str]
    dns: str
    upstream_proxy: str
    net_budget: Size
    net_rate: Size
    memory: Size
    cpus: float
    pids: int
    ulimits: Mapping[str, Union[int, str]]
    seccomp: str
    seccomp_allow: Words
    allow_read: Words
    allow_write: Words
    allow_exec: Words
    allow_degraded: Words
    explain_denials: bool
    audit: "str | os.PathLike[str]"
    args: Sequence[str]


class SandboxOptions(Options, total=False):
    """The keywords of `Sandbox`, which describes them."""

    timeout: Optional[Time]
    idle_stop: Optional[Time]
    name: Optional[str]
    shell: Sequence[str]
    interpreters: Optional[Mapping[str, Sequence[str]]]
    max_calls: Optional[int]
    calls_per_minute: Optional[int]


_FLAGS = {
    "profile": "profile",
    "workspace": "workspace",
    "volumes": "volume",
    "ro": "ro",
    "rw": "rw",
    "tmpfs": "tmpfs",
    "mounts": "mount",
    "rootfs": "rootfs",
    "toolchains": "toolchain",
    "scratch_size": "scratch-size",
    "scratch_inodes": "scratch-inodes",
    "cwd": "workdir",
    "user": "user",
    "network": "network",
    "hostname": "hostname",
    "allow_net": "allow-net",
    "deny_net": "deny-net",
    "dns": "dns",
    "upstream_proxy": "upstream-proxy",
    "net_budget": "net-budget",
    "net_rate": "net-rate",
    "memory": "memory",
    "cpus": "cpus",
    "pids": "pids-limit",
    "seccomp": "seccomp",
    "seccomp_allow": "seccomp-allow",
    "allow_read": "allow-read",
    "allow_write": "allow-write",
    "allow_exec": "allow-exec",
    "allow_degraded": "allow-degraded",
    "audit": "audit",
}
_SWITCHES = {"keep_env": "keep-env", "explain_denials": "explain-denials", "subuid": "subuid"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def flags(options: Options) -> List[str]:
    """The flags for these options."""
    table: Dict[str, Any] = dict(options)
    words: List[str] = []
    for name, value in one_env(table).items():
        words += ["--env", f"{name}={value}"]
    for name, value in (table.pop("ulimits", None) or {}).items():
        words += ["--ulimit", f"{name}={value}"]
    for name, value in (table.pop("add_hosts", None) or {}).items():
        words += ["--add-host", f"{name}={value}"]
    umask, more = table.pop("umask", None), table.pop("args", None)
    if umask is not None:
        words += ["--umask", f"{umask:03o}"]
    for key, value in table.items():
        if value is None or value is False:
            continue
        if key in _SWITCHES:
            words.append(f"--{_SWITCHES[key]}")
        elif key in _FLAGS:
            several = not isinstance(value, (str, bytes, os.PathLike)) and isinstance(value, Iterable)
            for one in value if several else [value]:
                words.append(f"--{_FLAGS[key]}={os.fsdecode(one) if isinstance(one, (bytes, os.PathLike)) else one}")
        else:
            raise InvalidArgument(f"{key!r} is not an option of a sandbox")
    return words + list(more or ())


def one_env(table: Dict[str, Any]) -> Mapping[str, str]:
    """Takes `envs`, which is E2B's name, or `env`."""
    envs, env = table.pop("envs", None), table.pop("env", None)
    if envs is not None and env is not None:
        raise InvalidArgument("envs and env are the same: give one of them")
    both: Mapping[str, str] = envs or env or {}
    return both


def words_of(command: Command, shell: Sequence[str] = SHELL) -> List[Union[str, bytes]]:
    """The words of a command; those of a string are the shell's."""
    if isinstance(command, str):
        return [*shell, command]
    words: List[Union[str, bytes]] = [word if isinstance(word, (str, bytes)) else os.fspath(word) for word in command]
    if not words:
        raise InvalidArgument("a command has at least one word")
    return words


def shown(command: Command) -> str:
    """A command for people."""
    return command if isinstance(command, str) else " ".join(shlex.quote(os.fsdecode(word)) for word in command)


def user_field(user: Optional[User]) -> Optional[str]:
    """The user of a command, as a field of the protocol."""
    return None if user is None else str(user)


def size_bytes(size: Optional[Size], what: str) -> Optional[int]:
    """A size as bytes: a number, or a string with K, M, G or T."""
    if size is None or isinstance(size, int):
        return size
    digits = size.strip().rstrip("B").rstrip("i")
    unit = digits[-1:] if digits[-1:] in "KMGT" else ""
    number = digits[: len(digits) - len(unit)]
    if not number.isascii() or not number.isdigit():
        raise InvalidArgument(f"{what}: {size!r} is not a size such as 512M")
    return int(number) * _UNITS[unit]


def command_limits(memory: Optional[Size], pids: Optional[int], cpus: Optional[float]) -> Dict[str, Optional[int]]:
    """The limits of one command, as fields of the protocol."""
    quota = None if cpus is None else max(1, round(cpus * 100_000))
    return {"memory_bytes": size_bytes(memory, "memory"), "pids": pids, "cpu_quota_us": quota}


def time_us(time: Optional[Time], what: str) -> Optional[int]:
    """Seconds as microseconds."""
    if time is None:
        return None
    if not 0 < time < 1e9:
        raise InvalidArgument(f"{what}: {time!r} is not a number of seconds above zero")
    return max(1, round(time * 1_000_000))


def time_flag(time: Time, what: str) -> str:
    """Seconds, as a flag takes them."""
    return f"{max(1, (time_us(time, what) or 0) // 1000)}ms"
