"""From a claim to an answer: fetch, configuration, checks, hook, CDI spec, checkpoint. All effects are passed in.

Source: KEP-4381, NodePrepareResources and NodeUnprepareResources; the Container Device Interface specification 1.1.
"""
