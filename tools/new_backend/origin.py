# SPDX-License-Identifier: BSD-3-Clause
"""The record of a generation, which consists of two files in tools/ of the generated repository.

``generated.toml`` contains the revision of the sources and the arguments of the generation.
``generated.tar.xz`` contains the generated files, with which an update compares the repository.
"""

import io
import json
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.new_backend.tree import File, Tree

_RECORD = "tools/generated.toml"
_ARCHIVE = "tools/generated.tar.xz"


class NotGenerated(ValueError):
    """Raised if this program did not generate a folder. The message states the reason."""


@dataclass(frozen=True)
class Origin:
    """The arguments of a generation, and the revision of the sources."""

    device: str
    prefix: str
    package: str
    build: str
    features: tuple[str, ...]
    revision: str

    def text(self) -> str:
        """Returns the text of generated.toml."""
        return (
            "# SPDX-License-Identifier: BSD-3-Clause\n"
            "#\n"
            "# Where this repository comes from. `new_backend --update` reads this file.\n"
            f'source = "torch_openreg, {self.revision}"\n'
            f"device = {json.dumps(self.device)}\n"
            f"prefix = {json.dumps(self.prefix)}\n"
            f"package = {json.dumps(self.package)}\n"
            f"build = {json.dumps(self.build)}\n"
            f"with = {json.dumps(list(self.features))}\n"
        )


def read(folder: Path) -> tuple[Origin, Tree]:
    """Returns the origin of a generated repository, and its files as they were generated.

    Raises:
        NotGenerated: if the folder lacks one of the two files, or if they cannot be read.
    """
    try:
        record = tomllib.loads((folder / _RECORD).read_text())
        origin = Origin(
            record["device"],
            record.get("prefix", ""),  # older versions always derived these two
            record.get("package", ""),
            record["build"],
            tuple(record["with"]),
            record["source"].rsplit(" ", 1)[-1],
        )
        with tarfile.open(folder / _ARCHIVE) as archive:
            tree = {}
            for member in archive.getmembers():
                content = archive.extractfile(member)
                assert content is not None
                tree[member.name] = File(content.read(), bool(member.mode & 0o100))
    except (OSError, KeyError, tomllib.TOMLDecodeError, tarfile.TarError) as error:
        raise NotGenerated(f"{folder} was not written by new_backend: {error}") from error
    return origin, tree


def files(origin: Origin, tree: Tree) -> Tree:
    """Returns the two files. The same tree results in the same bytes."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for path, file in sorted(tree.items()):
            member = tarfile.TarInfo(path)
            member.size = len(file.content)
            member.mode = 0o755 if file.executable else 0o644
            archive.addfile(member, io.BytesIO(file.content))
    return {
        _RECORD: File(origin.text().encode(), False),
        _ARCHIVE: File(data.getvalue(), False),
    }
