"""The files of a node that drivers read, as one archive: `dra-sdk capture` writes it, commands and tests read it.

An archive is a gzipped tar file with `sys`, `proc` and `dev` as on the node, and `dra-sdk-node.json` with what a tar
file of ordinary files cannot hold: the device nodes, and what was left out and why. Capturing needs only the standard
library, so it also works on a node without the packages of `dra-sdk[tools]`.
"""
