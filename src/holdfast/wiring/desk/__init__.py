"""The desk: what it does by itself, what people can ask of it, and its replays."""
