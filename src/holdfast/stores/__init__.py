"""Where Holdfast keeps things: one folder per backend, the same file names as the ports they implement."""
