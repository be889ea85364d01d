"""Build the workers' image from this environment's own Python and numpy.

It needs no registry, no network and no root. The files that the embedded sandbox would show are
copied into a tree, compiled, and imported as an image of one layer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from envs.command_line import quiet_when_unread, take_no_arguments
from envs.sandbox.base import SandboxError
from envs.sandbox.docker_client import CAGE, REPOSITORY, connect, image_tag
from envs.sandbox.inside.confinement import FOLDER, STDIO, STREAM_LINKS
from envs.sandbox.python_runtime import base_python, hidden_folders, modules, runtime_files


def copy_runtime(cage: Path) -> None:
    """Copy the runtime of programs into the cage, and make its mount points and links."""
    for source, target in (*runtime_files(), (base_python(), base_python())):
        copy = cage / target.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=ignored_names, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, copy)
            copy.chmod(0o755)
    for folder in (STDIO, FOLDER):
        (cage / folder.lstrip("/")).mkdir()
    for link, target in STREAM_LINKS.items():
        path = cage / link.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def ignored_names(folder: str, names: list[str]) -> list[str]:
    """Return the names in a folder that are not copied: hidden folders and compiled files."""
    hidden = hidden_folders()
    return [name for name in names if name == "__pycache__" or f"{folder}/{name}" in hidden]


def compile_modules(cage: Path) -> None:
    """Compile all modules now, since programs cannot write compiled files.

    With unchecked hashes the files stay valid whatever their times are.
    """
    folders = [cage / target.lstrip("/") for _, target in modules()]
    mode = ("--invalidation-mode", "unchecked-hash")
    command = [base_python(), "-S", "-W", "ignore", "-m", "compileall", "-qq", *mode]
    # Files that cannot be compiled, such as some tests of packages, are left as they are.
    subprocess.run([*command, "-s", cage, "-p", "/", *folders])


def link_into(root: Path, cage: Path) -> None:
    """Link the cage's folders into the root, where the interpreter starts, at the same paths."""
    for name in ("proc", "sys", "dev", "etc"):
        (root / name).mkdir()
    for entry in cage.iterdir():
        if not (root / entry.name).exists():
            (root / entry.name).symlink_to(f"{CAGE.lstrip('/')}/{entry.name}")


def normalise(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry root's, readable for all and without times: equal trees give equal layers."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def build() -> str:
    """Build and tag the image; return the tag. Raises SandboxError where no engine answers."""
    client = connect(timeout_s=300)
    tag = image_tag()
    with tempfile.TemporaryDirectory(prefix="spo-bench-image-") as scratch:
        root, archive = Path(scratch, "root"), Path(scratch, "image.tar")
        cage = root / CAGE.lstrip("/")
        cage.mkdir(parents=True)
        copy_runtime(cage)
        compile_modules(cage)
        link_into(root, cage)
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=normalise)
        with archive.open("rb") as file:
            client.api.import_image(src=file, repository=REPOSITORY, tag=tag.partition(":")[2])
    client.images.get(tag)
    client.close()
    return tag


def main() -> None:
    """Build the image and print its tag."""
    from docker.errors import DockerException

    take_no_arguments(__doc__, sys.argv[1:])
    start = time.monotonic()
    try:
        tag = build()
    except (SandboxError, DockerException, OSError) as error:
        sys.exit(f"image not built: {error}")
    print(f"{tag} built in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    with quiet_when_unread():
        main()
