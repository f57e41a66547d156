"""A validating admission webhook for the opaque configuration of drivers."""

from dra_sdk.tools.config_webhook.review import ConfigReviewer
from dra_sdk.tools.config_webhook.server import Certificate, WebhookServer

__all__ = ["Certificate", "ConfigReviewer", "WebhookServer"]
