"""A file sandbox: untrusted names and archives are unpacked under a quota, and nothing gets out of the directory."""

from __future__ import annotations

import io
import tarfile
from typing import Dict

import stockade


def archive() -> bytes:
    """A tar file with a good member, one that climbs, a link that leads out, and one through that link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("good.txt", "../../../../etc/cron.d/evil", "out/evil"):
            member = tarfile.TarInfo(name)
            if name == "out/evil":
                link = tarfile.TarInfo("out")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/cron.d"
                tar.addfile(link)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"data\n"))
    return packed.getvalue()


def unpack(sandbox: stockade.Sandbox, packed: bytes) -> Dict[str, int]:
    """Unpacks it inside, by a tar that may believe every name, and returns what there is."""
    sandbox.files.write("/tmp/packed.tar", packed)
    sandbox.files.make_dir("/tmp/out")
    sandbox.commands.run(["tar", "-xPf", "/tmp/packed.tar", "-C", "/tmp/out"], timeout=30, check=False)
    return {entry.name: entry.size for entry in sandbox.files.list("/tmp/out", depth=None)}


def main() -> None:
    with stockade.Sandbox(network="none", scratch_size="4M", scratch_inodes=200) as sb:
        print("unpacked:", sorted(unpack(sb, archive())))
        for path in ("/etc/cron.d/evil", "/tmp/out/../../etc/shadow", "/proc/1/root/etc/shadow"):
            try:
                sb.files.read(path)
            except stockade.Error as error:
                print("refused:", path, f"({type(error).__name__})")
        try:
            sb.files.write("/tmp/large", b"x" * (8 << 20))
        except stockade.FileError as error:
            print("quota:", error.message)
        many = sb.commands.run("seq 1000 | xargs touch", cwd="/tmp/out", check=False)
        print("files:", "refused" if many.exit_code else "allowed")


if __name__ == "__main__":
    main()
