"""From a claim to an answer: fetch, configuration, checks, hook, CDI spec, checkpoint. All effects are passed in."""
