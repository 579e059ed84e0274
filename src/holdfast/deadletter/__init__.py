"""The dead-letter desk: every failed delivery becomes a row that people can see and act on."""
