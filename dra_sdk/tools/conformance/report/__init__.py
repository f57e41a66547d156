"""What is told of a run: for people, for CI as JUnit XML, for programs as JSON."""
