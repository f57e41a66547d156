"""A picture of nodes, devices, partitions and claims as one HTML page.

```python
Path("cluster.html").write_text(page(scene(snapshot)))
```
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.picture.page import page
from dra_sdk.tools.scheduling.picture.scene import Scene, Waiting, scene

__all__ = ["Scene", "Waiting", "page", "scene"]
