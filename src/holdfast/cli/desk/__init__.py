"""The commands of the dead-letter desk: failures, replay, audit."""
