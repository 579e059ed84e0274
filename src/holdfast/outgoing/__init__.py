"""Every HTTP request that leaves Holdfast: where it may go, how it is sent, and what came back."""
