"""Extensions: hook wrappers that run around any driver's hooks, found by the entry points `dra_sdk.extensions`."""
