"""DRA driver for devices that have a kubelet device plugin: it plays the kubelet for the plugin, which stays unchanged.

Names of devices, attributes and settings are in the README beside this package.
"""

from dra_driver_plugin.driver import PluginDriver
from dra_driver_plugin.settings import PluginSettings

__all__ = ["PluginDriver", "PluginSettings"]
