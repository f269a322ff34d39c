"""A Maven repository in a folder, filled by a test, and Ivy settings that know no other.

So Ivy itself resolves and fetches, and nothing leaves the machine.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.plugins.jars import JarCoordinates

SETTINGS = """
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{root}/"/></resolvers>
</ivysettings>
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
<dependencies>{needs}</dependencies></project>
"""
NEED = """<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version><scope>{scope}</scope></dependency>"""


def jar_bytes(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in files.items():
            made.writestr(zipfile.ZipInfo(name), content)  # of a time that is always the same
    return stream.getvalue()


class Maven:
    def __init__(self, folder: Path) -> None:
        self._root = folder / "repository"
        self._root.mkdir(parents=True)
        self.settings = folder / "ivysettings.xml"
        self.settings.write_text(SETTINGS.format(root=self._root.as_uri()))

    def publish(
        self,
        coordinates: str,
        *,
        needs: Sequence[str] = (),
        content: bytes | None = None,
        scope: str = "compile",
    ) -> bytes:
        """Put a jar there, with a POM that says what it needs; returns its bytes."""
        jar = JarCoordinates(coordinates)
        folder = self._root.joinpath(*jar.group.split("."), jar.artifact, jar.version)
        folder.mkdir(parents=True, exist_ok=True)
        parts = (JarCoordinates(each) for each in needs)
        listed = "".join(
            NEED.format(group=n.group, artifact=n.artifact, version=n.version, scope=scope)
            for n in parts
        )
        name = f"{jar.artifact}-{jar.version}"
        (folder / f"{name}.pom").write_text(
            POM.format(group=jar.group, artifact=jar.artifact, version=jar.version, needs=listed)
        )
        made = content or jar_bytes({"about.txt": coordinates.encode()})
        (folder / f"{name}.jar").write_bytes(made)
        return made

    def withdraw(self) -> None:
        """Make it unreachable."""
        self._root.rename(self._root.with_name("gone"))
