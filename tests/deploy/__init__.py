"""The image and the release: what is built, and that it can be built again."""
