"""The nouns of Holdfast: messages, resources, outcomes, failed messages. No I/O, standard library only."""
