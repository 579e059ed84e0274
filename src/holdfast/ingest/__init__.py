"""How events get in from outside."""
