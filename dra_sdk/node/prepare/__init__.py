"""From a claim to an answer: fetch, configuration, guard, hook, CDI spec, state. All effects come in from outside."""
