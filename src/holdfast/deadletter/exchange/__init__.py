"""Failed messages as lines of JSON, out of one desk and into another."""
