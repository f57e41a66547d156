"""Drivers as pods of the chart, of the image that deploy/Containerfile builds, on a real node.

Nothing in their pods is of this machine's Python or of the checkout.
"""
