"""What a container gives, without image or daemon: read-only root, tmpfs, no network, limits, nothing left afterwards."""

from __future__ import annotations

import stockade

PROBES = {
    "write to the root": "touch /usr/planted",
    "write to what is mounted": "touch /etc/ssl/planted",
    "write to the tmpfs": "echo kept > /cache/file; cat /cache/file",
    "fill the tmpfs": "head -c 5000000 /dev/zero > /cache/full",
    "reach the network": "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\"",
    "see the host's processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 20",
    "keep a capability": "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status",
    "gain a privilege": "grep -q 'NoNewPrivs:.0' /proc/self/status",
}


def container(data: str) -> stockade.Sandbox:
    """The sandbox that `docker run --read-only --tmpfs … --network none --cap-drop ALL --rm` would be."""
    return stockade.Sandbox(
        ro=data,
        tmpfs="/cache:size=1M",
        network="none",
        ulimits={"nofile": 256, "nproc": 64},
        scratch_size="16M",
        hostname="container",
        idle_stop=300,
        timeout=3600,
    )


def main() -> None:
    with container("/etc/ssl") as sb:
        for what, probe in PROBES.items():
            result = sb.commands.run(probe, timeout=10, check=False)
            print(f"{what:<26} {'works' if result.exit_code == 0 else 'refused'}")
        name = sb.sandbox_id
    try:
        stockade.Sandbox.connect(name)
    except stockade.NotFound:
        print("nothing is left of it")


if __name__ == "__main__":
    main()
