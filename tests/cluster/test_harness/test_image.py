"""The one image of the cluster."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

from tests.cluster.harness import image


def unpack(archive: bytes) -> dict[str, tarfile.TarInfo | bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() if entry.isfile() else entry for entry in tar.getmembers()}


def blob(files, descriptor) -> bytes:
    content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(content) == descriptor["size"]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
    return content


def test_image_has_two_names_for_one_busybox():
    files = unpack(image.image_tar(b"the busybox", "arm64"))
    descriptors = json.loads(files["index.json"])["manifests"]
    names = [entry["annotations"]["io.containerd.image.name"] for entry in descriptors]
    assert names == ["localhost/pause:1", "localhost/busybox:1"]
    assert len({entry["digest"] for entry in descriptors}) == 1
    manifest = json.loads(blob(files, descriptors[0]))
    config = json.loads(blob(files, manifest["config"]))
    assert config["architecture"] == "arm64"
    layer = blob(files, manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    inside = unpack(layer)
    assert inside["bin/busybox"] == b"the busybox"
    for applet in ("sh", "env", "cat", "sleep", "ls", "awk", "head", "wget", "nc"):
        assert inside[f"bin/{applet}"].linkname == "busybox"


def test_equal_busybox_gives_equal_image():
    assert image.image_tar(b"x", "amd64") == image.image_tar(b"x", "amd64")
