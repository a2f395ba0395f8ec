"""The files of a package in their places, from [package.metadata.deb] of Cargo.toml. For contrib/deb and contrib/release."""

import glob
import gzip
import json
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def epoch():
    """The time of everything in a package: SOURCE_DATE_EPOCH, or that of the commit, so that two builds of one commit are alike."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        asked = subprocess.run(["git", "-C", HERE, "log", "-1", "--format=%ct"], capture_output=True, text=True)
        given = asked.stdout.strip() or "0"
    return int(given)


def package():
    """What cargo knows about the package `stockade`."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=HERE, check=True, capture_output=True).stdout)
    found = next(one for one in metadata["packages"] if one["name"] == "stockade")
    return found | {"target_directory": metadata["target_directory"]}


def fill(root, assets, programs, skip=()):
    """Copies the assets below `root`: [source, destination, mode], as cargo-deb reads them."""
    os.chmod(root, 0o755)
    for source, destination, mode in assets:
        if destination.startswith(tuple(skip)):
            continue
        source = source.replace("target/release", programs) if source.startswith("target/release/") else source
        files = sorted(glob.glob(source, root_dir=HERE))
        if not files:
            raise SystemExit(f"no file matches {source}")
        for file in files:
            place(os.path.join(HERE, file), root, destination, int(mode, 8))


def place(file, root, destination, mode):
    """Copies a file to its place, compressed where Debian's policy asks for it."""
    target = os.path.join(root, destination, os.path.basename(file)) if destination.endswith("/") else os.path.join(root, destination)
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if "/man/man" in target or target.endswith(("CHANGELOG.md", "changelog")):
        with open(file, "rb") as text, open(target + ".gz", "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed:
            shutil.copyfileobj(text, packed)
        target += ".gz"
    else:
        shutil.copyfile(file, target)
    os.chmod(target, mode)
