"""The contract suites: subclass one, give it a fixture that makes your backend, and pytest runs it."""
