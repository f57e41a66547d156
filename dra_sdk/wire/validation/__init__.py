"""Every limit of resource.k8s.io/v1 that can be known without a server, for Kubernetes 1.34 to 1.37.

`validate` answers as an API server does, with the same fields and the same types of problem. `check` and `check_device`
raise an error with sentences that name the object. A function of the caller compiles CEL selectors and limits their
cost. Rules that need more than the object are not checked: who may write what, admin access (it depends on a label of
the namespace), and names that must be unique in a pool of several slices.
"""

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.api import CompileCel, check, check_device, dropped, title, validate
from dra_sdk.wire.validation.availability import Dropped
from dra_sdk.wire.validation.problems import Problem, ProblemType, Uncompiled, sentence
from dra_sdk.wire.validation.slices import max_devices

__all__ = [
    "CompileCel",
    "Dropped",
    "Problem",
    "ProblemType",
    "ServerProfile",
    "Uncompiled",
    "check",
    "check_device",
    "dropped",
    "max_devices",
    "sentence",
    "title",
    "validate",
]
