"""Tests of what makes and boots the machine, without booting it."""
