"""A picture of nodes, devices, partitions and claims as one HTML page.

```python
Path("cluster.html").write_text(render_page(build_scene(snapshot)))
```
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.picture.page import render_page
from dra_sdk.tools.scheduling.picture.scene import NotPlaced, build_scene

__all__ = ["NotPlaced", "build_scene", "render_page"]
