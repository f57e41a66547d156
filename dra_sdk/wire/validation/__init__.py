"""Every limit of resource.k8s.io/v1 that can be known without a server, for Kubernetes 1.34 to 1.37.

`validate` answers as an API server does: the same fields, the same types of problem. `check` and `check_device` say
it in sentences that name the object. Whether CEL selectors compile, and what they cost, is asked of a function that the
caller hands in. What needs more than the object itself is not decided here: who may write what, admin access (a label
of the namespace), and names that must be unique in a pool of several slices.
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
