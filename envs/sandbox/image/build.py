"""Build the workers' image: from the Dockerfile, or, with --offline, from Debian's packages.

The offline way needs no registry and no root: it downloads a Python and the libraries it links
against with apt-get, unpacks them, and imports the tree as an image of one layer, in seconds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from envs.sandbox.base import SandboxError
from envs.sandbox.engine import connect
from envs.sandbox.image import HERE, PACKAGES, REPOSITORY, image_tag

UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/lintian", "var")
CHANGES = ["LABEL spo-bench.origin=debian", 'CMD ["python3.11", "-V"]']


class BuildError(RuntimeError):
    """The image was not built; the message says what was missing."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command, return its stdout; BuildError with its last words where it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is needed and not installed here") from error
    if done.returncode:
        raise BuildError(f"{command[0]} {command[1]}: {done.stderr.strip()[-600:]}")
    return done.stdout


def download(packages: Path) -> None:
    """Fetch the packages of packages.txt into a folder, for this machine's Debian release."""
    command = ("apt-get", "download", "-q", *(HERE / "packages.txt").read_text().split())
    try:
        run(*command, cwd=packages)
    except BuildError:
        # A fresh machine has no package lists, and one that cannot write them says why itself.
        run("apt-get", "update", "-q")
        run(*command, cwd=packages)


def unpack(packages: Path, root: Path) -> None:
    """Unpack the packages into a merged-/usr tree, as Debian itself is laid out."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted(packages.glob("*.deb")):
        archive = packages / "package.tar"
        with archive.open("wb") as file:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=file, check=True)
        run("tar", "-xf", archive, "-C", root, "--keep-directory-symlink", "--no-same-owner")
    for name in UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "usr/bin/sh").unlink(missing_ok=True)
    (root / "usr/bin/sh").symlink_to("dash")
    (root / "usr/bin/python3").symlink_to("python3.11")
    # Debian makes these links when it installs, by choosing among alternatives.
    for library in ("blas", "lapack"):
        found = next((root / "usr/lib").glob(f"*-linux-gnu/{library}/lib{library}.so.3"))
        (found.parents[1] / found.name).symlink_to(f"{library}/{found.name}")
    (root / "opt").mkdir()
    packages_inside = root / PACKAGES.lstrip("/")
    (root / "usr/lib/python3/dist-packages").rename(packages_inside)
    for tests in [*packages_inside.rglob("tests")]:
        shutil.rmtree(tests)
    for name in ("proc", "sys", "dev", "tmp", "etc"):
        (root / name).mkdir(exist_ok=True)


def compile_library(root: Path) -> None:
    """Compile the standard library with the unpacked Python itself.

    Its loader is called by hand, because a chroot would need root.
    """
    libraries = next((root / "usr/lib").glob("*-linux-gnu"))
    loader = next(libraries.glob("ld-linux*.so.*"))
    python = (loader, "--library-path", libraries, root / "usr/bin/python3.11")
    mode = ("--invalidation-mode", "unchecked-hash")
    run(
        *python, "-S", "-m", "compileall", "-q", *mode,
        "-s", root, "-p", "/", root / "usr/lib/python3.11", root / PACKAGES.lstrip("/"),
        env={"PYTHONHOME": str(root / "usr")},
    )  # fmt: skip


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, without times and set-user-id bits: the same tree gives the same layer."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else member.mode & 0o755
    return member


def build_offline() -> str:
    """Build from Debian's packages and tag; return the tag. BuildError where something lacks."""
    client = connect(timeout_s=300.0)
    tag = image_tag()
    with tempfile.TemporaryDirectory(prefix="spo-bench-image-") as scratch:
        packages, root = Path(scratch, "packages"), Path(scratch, "root")
        packages.mkdir()
        root.mkdir()
        download(packages)
        unpack(packages, root)
        compile_library(root)
        archive = Path(scratch, "image.tar")
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=plain)
        with archive.open("rb") as file:
            client.api.import_image(
                src=file, repository=REPOSITORY, tag=tag.partition(":")[2], changes=CHANGES
            )
        client.images.get(tag)
    return tag


def build_from_registry() -> str:
    """Build the Dockerfile and tag; return the tag."""
    client = connect(timeout_s=600.0)
    client.images.build(path=str(HERE), tag=image_tag(), rm=True, forcerm=True)
    return image_tag()


def main() -> None:
    """Parse, build, and say what was built."""
    from docker.errors import DockerException

    parser = argparse.ArgumentParser(description="Build the image of the Docker sandbox.")
    parser.add_argument("--offline", action="store_true", help="from Debian's packages")
    arguments = parser.parse_args()
    start = time.monotonic()
    try:
        tag = build_offline() if arguments.offline else build_from_registry()
    except (BuildError, SandboxError, DockerException) as error:
        sys.exit(f"image not built: {error}")
    print(f"{tag} built in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
